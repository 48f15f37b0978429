package flash

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/pipeline"
)

// UsualMaskBlocks are blocks that suit most tiles of kernels, forward and backward, as Problem.MaskBlocks.
var UsualMaskBlocks = Blocks{Queries: 128, Keys: 128}

// MaskBlocks is what a problem's mask functions, Problem.MaskFunction, make of the blocks of its scores, in device memory. Of the pairs of
// a block that exist and that Causal and Window allow, MaskFunction allows
//
//	none of them: the block is empty, and left out, without loads and arithmetic
//	all of them: it is full, and MaskFunction is not asked
//	some of them: it is partial, and MaskFunction is asked of each pair
//
// Where batch entries or packed sequences have lengths of their own, Causal and Window lie elsewhere in each: there blocks are classed by
// MaskFunction alone, of all pairs that QueryLen queries and KeyLen keys have. Entries use the top left corner of such a mask, blocks
// counting from their first query and key. MaskFunction may not read [score.Position] then, which lengths move.
//
// A MaskBlocks follows from the values that MaskFunction captures when it is made: for other values make another one, or use Update. It may
// be used by any number of plans and recordings at once.
//
// FlexAttention calls it a BlockMask. (Dong, Feng, Guessous, Liang and He, "Flex Attention", 2024.)
type MaskBlocks struct {
	of         attn.Problem // as far as bits depend on it
	key        string       // of the functions
	words      *Tensor
	classifier *pass.Classifier
	captured   []captured
}

// maxClassedPairs is the most pairs that a block of MaskBlocks may have: one workgroup asks about all of them, in one dispatch, which must
// end before a watchdog takes the device for stuck.
const maxClassedPairs = 1 << 26

// blocks are those of the problem's block mask or of its classes; a normalized problem has one of them.
func (p Problem) blocks() attn.Blocks {
	if p.MaskBlocks == (Blocks{}) {
		return p.Blocks.attn()
	}
	b := p.MaskBlocks.attn()
	b.PerHead, b.PerBatch, b.Classed = p.MaskFunction.ByHead(), p.MaskFunction.ByBatch(), true
	return b
}

// checkClasses gives the error of MaskBlocks that cannot be.
func (p *Problem) checkClasses() error {
	if err := p.MaskBlocks.check("MaskBlocks"); err != nil {
		return err
	}
	if n := int64(min(p.MaskBlocks.Queries, p.QueryLen)) * int64(min(p.MaskBlocks.Keys, p.KeyLen)); n > maxClassedPairs {
		return badArgument("Problem.MaskBlocks", p.MaskBlocks, "must have at most %d pairs of the problem in a block, not %d",
			maxClassedPairs, n)
	}
	if p.MaskFunction.Everything() {
		return badArgument("Problem.MaskBlocks", p.MaskBlocks, "must be zero: Problem.MaskFunction lets all pairs take part, so that "+
			"there is nothing "+
			"to class")
	}
	if p.Blocks != (Blocks{}) {
		return badArgument("Problem.MaskBlocks", p.MaskBlocks, "must be zero beside Problem.Blocks: leave MaskFunction unclassed, or "+
			"make the block "+
			"mask a part of it")
	}
	if q := p.attn(); q.Padded() && p.MaskFunction.ByPosition() {
		return badArgument("Problem.MaskBlocks", p.MaskBlocks, "must be zero beside lengths and packed sequences, which move the "+
			"Position that MaskFunction reads: use Query in its place, or leave the function unclassed")
	}
	return nil
}

// NewMaskBlocks asks the mask functions of a problem with MaskBlocks of all its pairs, on the device, and keeps the classes of its blocks.
// captured are the tensors that Problem.MaskFunction captures by name, in the order of its Captures, each as [Captured] has it. Forward and
// backward passes take the same mask.
//
// It waits until the classes are there; nothing is read back. The error is an [*ArgumentError] where Problem.MaskBlocks is zero or a tensor
// does not fit, a [*MemoryError] where there is no room.
func (d *Device) NewMaskBlocks(ctx context.Context, p Problem, captured ...*Tensor) (_ *MaskBlocks, err error) {
	defer during("NewMaskBlocks", &err)
	if p, err = p.Normalize(); err != nil {
		return nil, err
	}
	if p.MaskBlocks == (Blocks{}) {
		return nil, badArgument("Problem.MaskBlocks", p.MaskBlocks, "must be the sizes of the blocks that are classed, such as "+
			"UsualMaskBlocks")
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	p.ScoreFunction = Problem{}.ScoreFunction // with what it captures
	m := &MaskBlocks{of: p.attn(), key: kernel.FunctionKey(p.MaskFunction)}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.words, err = d.allocate("mask", F32, [4]int{1, 1, 1, kernel.ClassWords(&m.of)}, attn.Contiguous); err != nil {
		return nil, err
	}
	if m.captured, err = d.captured(ctx, &p); err != nil {
		return nil, err
	}
	if m.classifier, err = pass.NewClassifier(d.env, &m.of); err != nil {
		return nil, d.fail(err)
	}
	if err := m.update(ctx, captured); err != nil && !errors.Is(err, ErrCompileOnly) {
		return nil, err
	}
	return m, nil
}

// Update makes the mask anew from other values of what MaskFunction captures. No work that uses the mask may be under way. Errors are those
// of NewMaskBlocks.
func (m *MaskBlocks) Update(ctx context.Context, captured ...*Tensor) (err error) {
	defer during("MaskBlocks.Update", &err)
	if err := m.usable("MaskBlocks"); err != nil {
		return err
	}
	return m.update(ctx, captured)
}

func (m *MaskBlocks) update(ctx context.Context, captured []*Tensor) error {
	if err := unlessEnded(ctx); err != nil {
		return err
	}
	var given Captured
	if len(captured) > len(given) {
		return badArgument("len(captured)", len(captured), "must be at most %d", len(given))
	}
	copy(given[:], captured)
	var to [MaxCaptured]pipeline.Binding
	d := m.words.dev
	if err := given.place("NewMaskBlocks", "captured", &Plan{dev: d, captured: m.captured}, &to); err != nil {
		return err
	}
	uses := (&Plan{captured: m.captured}).withTables([]*Tensor{m.words})
	for _, t := range captured {
		if t != nil {
			uses = append(uses, t)
		}
	}
	for i, t := range uses {
		if err := t.hold(); err != nil {
			letGo(uses[:i])
			return err
		}
	}
	defer letGo(uses)
	return d.fail(m.classifier.Run(&to, m.words.bound.Binding))
}

// letGo is the end of what hold kept tensors for.
func letGo(all []*Tensor) {
	for _, t := range all {
		t.letGo()
	}
}

// usable says why nothing can be done with the mask.
func (m *MaskBlocks) usable(name string) error {
	if m == nil || m.words == nil {
		return badArgument(name, "nil or zero", "must come from Device.NewMaskBlocks")
	}
	return m.words.usable(name)
}

// Count reads back how many blocks there are of each class, of all masks together: a mask each for the batch entries and the heads that
// MaskFunction depends on. A block that Causal and Window leave out is empty.
func (m *MaskBlocks) Count(ctx context.Context) (empty, full, partial int, err error) {
	defer during("MaskBlocks.Count", &err)
	if err := m.usable("MaskBlocks"); err != nil {
		return 0, 0, 0, err
	}
	raw := make([]byte, 4*kernel.ClassWords(&m.of))
	if err := m.words.DownloadBytes(ctx, raw); err != nil {
		return 0, 0, 0, err
	}
	shape := m.of.MaskShape()
	words, rows := kernel.MaskWords(shape), shape[1]*attn.CeilDiv(shape[2], 32)
	var set [2]int // of some pairs, and of all
	for i := range 2 * shape[0] {
		for w := range rows {
			set[i%2] += bits.OnesCount32(binary.NativeEndian.Uint32(raw[4*(i*words+w):]))
		}
	}
	return shape[0]*shape[1]*shape[2] - set[0], set[1], set[0] - set[1], nil
}

// String describes the mask, for example "16x64 blocks of 128x128, Documents(…)".
func (m *MaskBlocks) String() string {
	if m == nil || m.words == nil {
		return "no mask"
	}
	return fmt.Sprintf("%v blocks of %v, seen %v", m.of.MaskShape(), m.of.Blocks, m.of.Sees)
}

// Close frees the mask after waiting for work of this library that uses it. Closing again, or nil, does nothing.
func (m *MaskBlocks) Close() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.words.Close(), closeTables(m.captured))
}

// place checks what a pass was given against the problem, and puts it where kernels find it, unless there is neither. It does not
// allocate unless it fails.
func (m *MaskBlocks) place(pass string, plan *Plan, to *pipeline.Binding) error {
	p := &plan.attn
	switch {
	case m == nil && !p.Blocks.Classed:
		return nil
	case m == nil || m.words == nil:
		return badArgument(pass+".MaskBlocks", nil, "must be the mask of the problem's classes, from NewMaskBlocks")
	case !p.Blocks.Classed:
		return badArgument(pass+".MaskBlocks", m, "must be nil: Problem.MaskBlocks is zero")
	case m.of.Blocks != p.Blocks || m.of.ClassMask() != p.ClassMask() || m.of.MaskShape() != p.MaskShape():
		return badArgument(pass+".MaskBlocks", m, "must be of %v blocks of %v, and made with the problem's QueryLen, KeyLen, Causal "+
			"and Window, and with lengths where it has them", p.MaskShape(), p.Blocks)
	case m.of.Blocks.HeadsOf(m.of.Heads) != p.Blocks.HeadsOf(p.Heads):
		return badArgument(pass+".MaskBlocks", m, otherHeads, p.Heads, m.of.Heads)
	case m.key != plan.classes:
		return badArgument(pass+".MaskBlocks", m, "must be of the problem's own mask functions, %v", p.Sees)
	}
	if m.words.usable(pass) != nil {
		return m.words.usable(pass + ".MaskBlocks")
	}
	if m.words.dev != plan.dev {
		return badArgument(pass+".MaskBlocks", m, "must be a mask of the plan's device")
	}
	*to = m.words.bound.Binding
	return nil
}
