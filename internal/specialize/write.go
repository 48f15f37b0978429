package specialize

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/spirv"
)

// Module writes the values of specialization constants, by their SpecId, into a module and leaves out what cannot be reached then.
// Constants without a value get the module's own. Nothing is left to specialize in the result. It is an error if the module is none, or has
// what this package does not handle: decorations by groups, switches on 64 bits, specialization constants of other than 32 bits. The given
// words are never written to.
//
// The module must be valid (SPIR-V specification, section 2.16). Of one that is not, the result is not either.
func Module(words []uint32, given map[uint32]uint32) ([]uint32, error) {
	m, err := parse(words, given)
	if err != nil {
		return nil, err
	}
	w := &writer{m: m, bound: words[spirv.BoundWord], undefined: map[uint32]uint32{}, kept: make([]bool, len(m.values))}
	for i := range m.functions {
		f := &m.functions[i]
		m.reach(f)
		if err := w.function(f); err != nil {
			return nil, err
		}
	}
	out := append(make([]uint32, 0, len(w.code)+m.globals), words[:spirv.HeaderWords]...)
	out = append(w.globals(out), w.code...)
	out[spirv.BoundWord] = w.bound
	return out, nil
}

// writer writes what is left of a module.
type writer struct {
	m         *module
	bound     uint32
	code      []uint32          // the functions
	undefined map[uint32]uint32 // an undefined value of each type that one is needed of
	order     []uint32          // these types
	kept      []bool            // by identifier: what makes it is left
}

// globals writes what stands before the functions: constants have their values, and nothing is said of what is gone.
func (w *writer) globals(out []uint32) []uint32 {
	for at := spirv.HeaderWords; at < w.m.globals; at += int(w.m.words[at] >> 16) { // constants and variables
		if op := w.m.words[at] & 0xffff; op >= opConstantTrue && op <= opVariable && w.m.words[at]>>16 > 2 &&
			int(w.m.words[at+2]) < len(w.kept) {
			w.kept[w.m.words[at+2]] = true
		}
	}
	gone := w.gone()
	for at := spirv.HeaderWords; at < w.m.globals; {
		n := int(w.m.words[at] >> 16)
		op, a := w.m.words[at]&0xffff, w.m.words[at+1:at+n]
		whole := w.m.words[at : at+n]
		at += n
		switch op {
		case opName, opDecorateID, opDecorateString:
			if gone[a[0]] {
				continue
			}
		case opDecorate:
			if a[1] == specIDDeco || gone[a[0]] {
				continue
			}
		case opSpecComposite:
			out = append(out, spirv.Instruction(opConstantComposite, a...)...)
			continue
		case opSpecConstant:
			v, ok := w.m.value(a[1])
			if !ok {
				v = a[2]
			}
			out = append(out, spirv.Instruction(opConstant, append([]uint32{a[0], a[1], v}, a[3:]...)...)...)
			continue
		case opSpecTrue, opSpecFalse, opSpecOp:
			if v := w.m.values[a[1]]; v.state == constant {
				out = append(out, w.constant(a[0], a[1], v.bits)...)
				continue
			}
		}
		out = append(out, whole...)
	}
	for _, typ := range w.order {
		out = append(out, spirv.Instruction(opUndef, typ, w.undefined[typ])...)
	}
	return out
}

func (w *writer) constant(typ, id, bits uint32) []uint32 {
	switch {
	case w.m.ints[typ]:
		return spirv.Instruction(opConstant, typ, id, bits)
	case bits == 0:
		return spirv.Instruction(opConstantFalse, typ, id)
	}
	return spirv.Instruction(opConstantTrue, typ, id)
}

// gone are the identifiers of functions that are left out.
func (w *writer) gone() map[uint32]bool {
	gone := map[uint32]bool{}
	for i := range w.m.functions {
		for k := range w.m.functions[i].blocks {
			b := &w.m.functions[i].blocks[k]
			if b.reachable {
				continue
			}
			if !w.kept[b.label] {
				gone[b.label] = true
			}
			for at := b.begin; at < b.end; at += int(w.m.words[at] >> 16) {
				n := int(w.m.words[at] >> 16)
				if id := result(w.m.words[at]&0xffff, w.m.words[at+1:at+n]); id != 0 && !w.kept[id] {
					gone[id] = true
				}
			}
		}
	}
	return gone
}

// place is what stays of a block that is not reached.
type place struct {
	needed bool
	to     uint32 // the label that it jumps to, 0 for none
}

// places are the blocks that are not reached but that those that are name: where decided branches do not go, and merge blocks and continue
// targets.
func (f *function) places() (map[uint32]place, error) {
	places := map[uint32]place{}
	dead := func(label uint32) bool { return label != 0 && !f.blocks[f.index[label]].reachable }
	for i := range f.blocks {
		b := &f.blocks[i]
		if !b.reachable || f.straight(b) {
			continue
		}
		if dead(b.merge) {
			places[b.merge] = place{needed: true}
		}
		if b.loopNext == 0 {
			continue
		}
		if dead(b.loopNext) {
			places[b.loopNext] = place{true, b.label}
		} else if !slices.ContainsFunc(f.blocks[i:], func(x block) bool { return x.reachable && slices.Contains(x.next, b.label) }) {
			return nil, fmt.Errorf("specialize: the loop of block %d goes on, but never comes back", b.label)
		}
	}
	for i := range f.blocks {
		b := &f.blocks[i]
		if !b.reachable || f.straight(b) {
			continue
		}
		if len(b.next) > 0 && !slices.Contains(b.live, true) {
			return nil, fmt.Errorf("specialize: nothing is known of where block %d goes", b.label)
		}
		for _, l := range b.next {
			if _, ok := places[l]; ok || !dead(l) {
				continue
			}
			p := place{needed: true}
			// A side of a selection goes on to its end, unless it never did: what comes behind may need what the other side makes.
			if b.loopNext == 0 && b.merge != 0 && f.leads(l, b.merge) {
				p.to = b.merge
			}
			places[l] = p
		}
	}
	return places, nil
}

// leads says whether there is a way from one block to another one, taken or not.
func (f *function) leads(from, to uint32) bool {
	seen := map[uint32]bool{}
	for ahead := []uint32{from}; len(ahead) > 0; {
		label := ahead[len(ahead)-1]
		ahead = ahead[:len(ahead)-1]
		if label == to {
			return true
		}
		if b := &f.blocks[f.index[label]]; !seen[label] && !b.reachable {
			seen[label] = true
			ahead = append(ahead, b.next...)
		}
	}
	return false
}

// function writes one.
func (w *writer) function(f *function) error {
	if len(f.blocks) == 0 {
		w.code = append(w.code, w.m.words[f.begin:f.end]...)
		return nil
	}
	places, err := f.places()
	if err != nil {
		return err
	}
	empty := f.emptyBefore(places)
	w.code = append(w.code, w.m.words[f.begin:f.body]...)
	for i := range f.blocks {
		b := &f.blocks[i]
		p, ok := places[b.label]
		switch {
		case b.reachable:
			w.code = append(w.code, spirv.Instruction(opLabel, b.label)...)
			w.block(f, b, empty[b.label])
		case ok && p.to != 0:
			w.code = append(append(w.code, spirv.Instruction(opLabel, b.label)...), spirv.Instruction(opBranch, p.to)...)
		case ok:
			w.code = append(append(w.code, spirv.Instruction(opLabel, b.label)...), spirv.Instruction(opUnreachable)...)
		}
		if b.reachable || ok {
			w.kept[b.label] = true
		}
	}
	w.code = append(w.code, spirv.Instruction(opFunctionEnd)...)
	return nil
}

// block writes one that is reached. Its phis lose what came from blocks that are gone, and get an undefined value from those that are empty
// now.
func (w *writer) block(f *function, b *block, empty []uint32) {
	end := b.end
	if f.straight(b) {
		end = b.last - mergeWords
	}
	for at := b.begin; at < end; {
		n := int(w.m.words[at] >> 16)
		op, a := w.m.words[at]&0xffff, w.m.words[at+1:at+n]
		if id := result(op, a); id != 0 {
			w.kept[id] = true
		}
		if op != opPhi {
			w.code = append(w.code, w.m.words[at:at+n]...)
			at += n
			continue
		}
		at += n
		phi := []uint32{a[0], a[1]}
		for i := 2; i+1 < len(a); i += 2 {
			if from, ok := f.index[a[i+1]]; ok && f.blocks[from].reachable {
				phi = append(phi, a[i], a[i+1])
			}
		}
		for _, label := range empty {
			phi = append(phi, w.undef(a[0]), label)
		}
		w.code = append(w.code, spirv.Instruction(opPhi, phi...)...)
	}
	if end < b.end {
		w.code = append(w.code, spirv.Instruction(opBranch, b.next[slices.Index(b.live, true)])...)
	}
}

// mergeWords is the length of a selection's merge instruction, which stands before what ends a block.
const mergeWords = 3

// straight says whether a block's selection is decided, and the side taken leaves for what is around it. It is no selection any more: its
// end would stay as a block that is never reached. Mesa takes such a block for a way out of the function, and so out of a loop around it,
// which it does not unroll then (docs/notes/host.md).
func (f *function) straight(b *block) bool {
	if b.merge == 0 || b.loopNext != 0 || f.blocks[f.index[b.merge]].reachable {
		return false
	}
	taken := 0
	for _, live := range b.live {
		if live {
			taken++
		}
	}
	return taken == 1
}

// emptyBefore are, by a block's label, the labels of empty blocks that jump to it, in the function's order.
func (f *function) emptyBefore(places map[uint32]place) map[uint32][]uint32 {
	out := map[uint32][]uint32{}
	for i := range f.blocks {
		if p, ok := places[f.blocks[i].label]; ok && p.to != 0 {
			out[p.to] = append(out[p.to], f.blocks[i].label)
		}
	}
	return out
}

// undef is an undefined value of a type.
func (w *writer) undef(typ uint32) uint32 {
	id, ok := w.undefined[typ]
	if !ok {
		id = w.bound
		w.bound++
		w.undefined[typ], w.order = id, append(w.order, typ)
	}
	return id
}
