package ring

import "github.com/vkattn/vkattn/flash"

// A block of many bytes comes by groups of heads, keys and values of one group after those of the other: what needs the first can be
// computed while the second is on its way. Heads do not know one another, so that nothing else changes.
const mostGroups = 2

// groupBytes is from how many bytes of a block on that is done. It is a variable for tests.
var groupBytes = 32 << 20

// groups is how many groups of heads a block comes in.
func (p *Plan) groups() int {
	if g := &p.problem; p.sched.entries() > 1 || g.KeyHeads%mostGroups != 0 || p.blockBytes() < groupBytes || p.ring.Size() == 1 ||
		p.sched.positional {
		return 1
	}
	return mostGroups
}

// group is part of a launch: some of its heads.
func (l *launch) group(of int) launch {
	part := *l
	part.problem.Heads /= of
	part.problem.KeyHeads /= of
	return part
}

// heads is a group's of a tensor.
func (w *pass) heads(t *flash.Tensor, group, of int) *flash.Tensor {
	if of == 1 || t == nil {
		return t
	}
	shape, strides := t.Shape(), t.Strides()
	shape[1] /= of
	offset := t.Offset() + uint64(group*shape[1]*strides[1]*t.DType().Size())
	if shape[0] == 1 && shape[1] > 1 && strides[1] == shape[2]*strides[2] { // in one piece: a tensor in row-major order stays one
		strides[0] = shape[1] * strides[1]
	}
	return w.view(t, offset, t.DType(), shape, strides)
}

// eachHeads puts a group's heads of tensors in their places.
func (w *pass) eachHeads(group, of int, places ...**flash.Tensor) {
	for _, t := range places {
		*t = w.heads(*t, group, of)
	}
}
