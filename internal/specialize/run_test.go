package specialize

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/spirv"
)

// run interprets the function of a module: it gives what is stored where, in turn.
func run(words []uint32, given, input map[uint32]uint32) ([][2]uint32, error) {
	m, err := parse(words, given)
	if err != nil {
		return nil, err
	}
	values := map[uint32]uint32{}
	for id, v := range m.values {
		if v.state == constant {
			values[uint32(id)] = v.bits
		}
	}
	f := &m.functions[0]
	var trace [][2]uint32
	from, at := uint32(0), &f.blocks[0]
	for range 10000 {
		phis := map[uint32]uint32{}
		to := uint32(0)
		for w := at.begin; w < at.end; w += int(words[w] >> 16) {
			op, a := words[w]&0xffff, words[w+1:w+int(words[w]>>16)]
			switch op {
			case opPhi:
				k := -1
				for i := 3; i < len(a); i += 2 {
					if a[i] == from {
						k = i - 1
					}
				}
				if k < 0 {
					return nil, fmt.Errorf("block %d has no value from %d", at.label, from)
				}
				phis[a[1]] = values[a[k]]
				continue
			case opLoopMerge, opSelectionMerge:
				continue
			}
			for id, v := range phis {
				values[id] = v
			}
			clear(phis)
			switch op {
			case opLoad:
				values[a[1]] = input[a[2]]
			case opStore:
				trace = append(trace, [2]uint32{a[0], values[a[1]]})
			case opBranch:
				to = a[0]
			case opBranchConditional:
				to = a[2-values[a[0]]]
			case opSwitch:
				to = a[1]
				for i := 2; i < len(a); i += 2 {
					if a[i] == values[a[0]] {
						to = a[i+1]
					}
				}
			case opReturn:
				return trace, nil
			case opUnreachable:
				return nil, fmt.Errorf("block %d is reached", at.label)
			default:
				var x []uint32
				for _, id := range a[2:] {
					x = append(x, values[id])
				}
				v, ok := evaluate(op, x)
				if !ok { // what it leaves undefined is the same each time here
					v = 77
				}
				values[a[1]] = v
			}
		}
		from, at = at.label, &f.blocks[f.index[to]]
	}
	return nil, fmt.Errorf("it does not end")
}

// validate checks what SPIR-V asks for of blocks and identifiers (section 2.16.1): definitions dominate uses, phis have a value for each
// block that comes before, blocks stand behind those that dominate them, and labels that instructions name exist.
func validate(words []uint32) error {
	m, err := parse(words, nil)
	if err != nil {
		return err
	}
	defined := map[uint32]int{} // the block, −1 for the module
	where := map[uint32]int{}   // and the place
	for at := spirv.HeaderWords; at < m.globals; at += int(words[at] >> 16) {
		switch op := words[at] & 0xffff; {
		case op == opUndef || op >= opConstantTrue && op <= opVariable:
			defined[words[at+2]] = -1
		case op == opDecorate:
		default:
			defined[words[at+1]] = -1
		}
	}
	f := &m.functions[0]
	before := make([][]int, len(f.blocks))
	for i := range f.blocks {
		b := &f.blocks[i]
		for w := b.begin; w < b.end; w += int(words[w] >> 16) {
			if id := result(words[w]&0xffff, words[w+1:w+int(words[w]>>16)]); id != 0 {
				if _, ok := defined[id]; ok || id >= words[spirv.BoundWord] {
					return fmt.Errorf("%d is made twice, or beyond the bound", id)
				}
				defined[id], where[id] = i, w
			}
		}
		for _, l := range slices.Compact(slices.Sorted(slices.Values(b.next))) {
			before[f.index[l]] = append(before[f.index[l]], i)
		}
	}
	// dominators by sweeps over sets
	all := map[int]bool{}
	for i := range f.blocks {
		all[i] = true
	}
	dominators := make([]map[int]bool, len(f.blocks))
	for i := range dominators {
		dominators[i] = all
	}
	dominators[0] = map[int]bool{0: true}
	for changed := true; changed; {
		changed = false
		for i := 1; i < len(f.blocks); i++ {
			set := map[int]bool{i: true}
			if len(before[i]) == 0 {
				set = all // it is not reached: everything dominates it
			}
			for k := range all {
				if k != i && len(before[i]) > 0 && !slices.ContainsFunc(before[i], func(p int) bool { return !dominators[p][k] }) {
					set[k] = true
				}
			}
			changed = changed || len(set) != len(dominators[i])
			dominators[i] = set
		}
	}
	for i := range f.blocks {
		label, back := f.blocks[i].label, 0
		for _, k := range before[i] {
			if k >= i {
				back++
			}
		}
		if loop := f.blocks[i].loopNext != 0; back > 1 || loop != (back == 1) {
			return fmt.Errorf("%d blocks go back to %d", back, label)
		}
	}
	uses := func(i, w int, id uint32) error {
		at, ok := defined[id]
		if !ok || at >= 0 && !dominators[i][at] || at == i && where[id] >= w {
			return fmt.Errorf("block %d uses %d, which is not there", f.blocks[i].label, id)
		}
		return nil
	}
	for i := range f.blocks {
		b := &f.blocks[i]
		if len(dominators[i]) < len(all) {
			for k := range dominators[i] {
				if k > i {
					return fmt.Errorf("block %d stands before one that dominates it", b.label)
				}
			}
		}
		for w := b.begin; w < b.end; w += int(words[w] >> 16) {
			op, a := words[w]&0xffff, words[w+1:w+int(words[w]>>16)]
			var ids []uint32
			switch op {
			case opPhi:
				var labels []uint32
				for k := 2; k < len(a); k += 2 {
					from, ok := f.index[a[k+1]]
					if !ok {
						return fmt.Errorf("a phi of block %d names %d", b.label, a[k+1])
					}
					labels = append(labels, a[k+1])
					if err := uses(from, f.blocks[from].end, a[k]); err != nil {
						return err
					}
				}
				var want []uint32
				for _, p := range before[i] {
					want = append(want, f.blocks[p].label)
				}
				slices.Sort(labels)
				slices.Sort(want)
				if !slices.Equal(labels, want) {
					return fmt.Errorf("a phi of block %d is of %d, before it are %d", b.label, labels, want)
				}
			case opStore:
				ids = a
			case opBranchConditional, opSwitch:
				ids = a[:1]
			case opLoad:
				ids = a[2:]
			case opLoopMerge, opSelectionMerge, opBranch, opReturn, opUnreachable:
			default:
				ids = a[2:]
			}
			for _, id := range ids {
				if err := uses(i, w, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
