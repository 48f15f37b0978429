package specialize

// reach finds what is constant in a function and which blocks are reached, from nothing known up: sweeps over the blocks in their order,
// which has a block behind those that dominate it, until nothing is new.
func (m *module) reach(f *function) {
	if len(f.blocks) == 0 {
		return
	}
	f.blocks[0].reachable = true
	for changed := true; changed; {
		changed = false
		for i := range f.blocks {
			if f.blocks[i].reachable && m.sweep(f, &f.blocks[i]) {
				changed = true
			}
		}
	}
}

// sweep computes a block again, and says whether anything is new.
func (m *module) sweep(f *function, b *block) (changed bool) {
	for at := b.begin; at < b.last; {
		n := int(m.words[at] >> 16)
		op, a := m.words[at]&0xffff, m.words[at+1:at+n]
		at += n
		id := result(op, a)
		if id == 0 || m.values[id].state == varying {
			continue
		}
		var v value
		if op == opPhi {
			v = m.meet(f, b.label, a[2:])
		} else {
			v = m.compute(a[0], op, a[2:])
		}
		if was := &m.values[id]; v.state > was.state || v.state == constant && v.bits != was.bits {
			if was.state == constant && v.state == constant {
				v.state = varying
			}
			*was, changed = v, true
		}
	}
	live := func(i int) {
		if !b.live[i] {
			b.live[i], changed = true, true
			f.blocks[f.index[b.next[i]]].reachable = true
		}
	}
	a := m.words[b.last+1 : b.end]
	switch m.words[b.last] & 0xffff {
	case opBranch:
		live(0)
	case opBranchConditional:
		switch v := m.of(a[0]); {
		case v.state == varying:
			live(0)
			live(1)
		case v.state == constant && f.closesUnrolled(b):
			live(0)
			live(1)
		case v.state == constant:
			live(1 - int(v.bits&1))
		}
	case opSwitch:
		switch v := m.of(a[0]); {
		case v.state == varying:
			for i := range b.next {
				live(i)
			}
		case v.state == constant:
			to := 0
			for i := 2; i+1 < len(a); i += 2 {
				if a[i] == v.bits {
					to = i / 2
					break
				}
			}
			live(to)
		}
	}
	return changed
}

// of is what is known of an identifier; of one beyond the bound nothing can be known.
func (m *module) of(id uint32) value {
	if int(id) >= len(m.values) {
		return value{state: varying}
	}
	return m.values[id]
}

// meet is a phi's value: what comes by edges that are taken.
func (m *module) meet(f *function, label uint32, a []uint32) value {
	var out value
	for i := 0; i+1 < len(a); i += 2 {
		if !f.taken(a[i+1], label) {
			continue
		}
		switch v := m.of(a[i]); {
		case v.state == varying, v.state == constant && out.state == constant && v.bits != out.bits:
			return value{state: varying}
		case v.state == constant:
			out = v
		}
	}
	return out
}

// taken says whether an edge between two blocks is.
func (f *function) taken(from, to uint32) bool {
	i, ok := f.index[from]
	if !ok {
		return true // it is wrong, and whoever validates the module says so
	}
	b := &f.blocks[i]
	for k, l := range b.next {
		if l == to && b.live[k] {
			return true
		}
	}
	return false
}

// compute is an operation's value by those of its operands.
func (m *module) compute(typ, op uint32, a []uint32) value {
	if !m.ints[typ] && !m.bools[typ] || len(a) == 0 || len(a) > 3 {
		return value{state: varying}
	}
	if _, ok := evaluate(op, []uint32{0, 1, 1}[3-len(a):]); !ok { // defined for these, if for any
		return value{state: varying}
	}
	var x [3]uint32
	worst := constant
	for i, id := range a {
		v := m.of(id)
		switch {
		case op == opLogicalAnd && v.is(0):
			return value{constant, 0}
		case op == opLogicalOr && v.is(1):
			return value{constant, 1}
		case op == opSelect && i == 0 && v.state == constant:
			return m.of(a[2-v.bits&1])
		}
		x[i] = v.bits
		if v.state == varying {
			worst = varying
		} else if v.state == unknown && worst != varying {
			worst = unknown
		}
	}
	if worst != constant {
		return value{state: worst}
	}
	v, ok := evaluate(op, x[:len(a)])
	if !ok {
		return value{state: varying}
	}
	return value{constant, v}
}

// closesUnrolled says whether a block's selection is the last thing in a loop that is to be unrolled. It stays undecided. Without it the
// selection before it would stand beside the loop's own condition; NVIDIA's compiler then joins the two, loses the request to unroll with
// the jump that it takes out, and matrix_forward runs at two thirds of its speed (docs/notes/host.md).
func (f *function) closesUnrolled(b *block) bool {
	if b.merge == 0 || b.loopNext != 0 {
		return false
	}
	end := &f.blocks[f.index[b.merge]]
	return end.begin == end.last && len(end.next) == 1 && f.unrolled[end.next[0]]
}
