package flash

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Blocks says that attention has a block mask, and of what blocks: block (r, c) is the scores of queries r·Queries to
// (r+1)·Queries−1 with keys c·Keys to (c+1)·Keys−1, the last row and column of blocks as long as there are queries and keys. A BlockMask
// holds a bit for each block; where it is 0, nothing in the block is attended to. The zero Blocks is no mask.
//
// Any size from 1 on will do. What makes it fast is that whole tiles of the kernel lie in a block and are skipped: sizes of 64 and 128,
// or other multiples of 16 from 32 on. Smaller and odd ones skip tiles without any bit and look at each score of the others.
type Blocks struct {
	Queries, Keys int  // size of a block: queries (rows of the scores) by keys (columns), each at least 1
	PerHead       bool // each query head has a mask of its own; else they share one
	PerBatch      bool // each batch entry has masks of its own; else they share them
}

// check gives the error of sizes that cannot be.
func (b Blocks) check(field string) error {
	for _, f := range []struct {
		name  string
		value int
	}{{"Queries", b.Queries}, {"Keys", b.Keys}} {
		if f.value < 1 || f.value > math.MaxInt32/2 {
			return badArgument("Problem."+field+"."+f.name, f.value, "must be from 1 to %d, or %s zero", math.MaxInt32/2, field)
		}
	}
	return nil
}

// MaskShape is the shape of the problem's block mask, or of its MaskBlocks: masks, rows and columns of blocks. There is one mask, Heads
// with Blocks.PerHead, Batch with Blocks.PerBatch, and with both Batch·Heads, those of the first batch entry first. It is zero without a
// mask, and where Blocks.Queries or Blocks.Keys is missing, which no plan takes.
func (p Problem) MaskShape() [3]int { return p.filled().MaskShape() }

// BlockMask is a block mask in device memory: which blocks of a problem's scores are attended to. It may be used by any number of plans
// and recordings at once.
type BlockMask struct {
	blocks  Blocks
	shape   [3]int
	heads   int // of which batch entries have masks of their own; else 0
	nonzero int
	words   *Tensor
}

// NewBlockMask puts the block mask of a problem into device memory: bits in row-major order, of shape MaskShape, true where the block is
// attended to. Forward and backward passes take the same mask. The error is an *ArgumentError where Problem.Blocks is zero or the number of
// bits is wrong.
func (d *Device) NewBlockMask(ctx context.Context, p Problem, bits []bool) (_ *BlockMask, err error) {
	defer during("NewBlockMask", &err)
	p, err = p.Normalize()
	if err != nil {
		return nil, err
	}
	if p.Blocks == (Blocks{}) {
		return nil, badArgument("Problem.Blocks", p.Blocks, "must be the sizes of the mask's blocks")
	}
	shape := p.MaskShape()
	if n := uint64(shape[0]) * uint64(shape[1]) * uint64(shape[2]); uint64(len(bits)) != n {
		return nil, badArgument("len(bits)", len(bits), "must be %d, for %d masks of %d × %d blocks", n, shape[0], shape[1], shape[2])
	}
	m := &BlockMask{blocks: p.Blocks, shape: shape, heads: p.Blocks.attn().HeadsOf(p.Heads)}
	if m.words, err = d.allocate("block mask", F32, [4]int{1, 1, shape[0], kernel.MaskWords(shape)}, attn.Contiguous); err != nil {
		return nil, err
	}
	for _, bit := range bits {
		m.nonzero += kernel.BoolInt(bit)
	}
	if err := m.words.UploadBytes(ctx, kernel.PackMask(shape, bits)); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Nonzero counts the blocks that are attended to, and all.
func (m *BlockMask) Nonzero() (blocks, of int) {
	if m == nil {
		return 0, 0
	}
	return m.nonzero, m.shape[0] * m.shape[1] * m.shape[2]
}

// Blocks is the sizes of the mask's blocks, as the problem had them that it was made for.
func (m *BlockMask) Blocks() Blocks {
	if m == nil {
		return Blocks{}
	}
	return m.blocks
}

// Bits reads the mask back, as NewBlockMask was given it.
func (m *BlockMask) Bits(ctx context.Context) (_ []bool, err error) {
	defer during("BlockMask.Bits", &err)
	if m == nil || m.words == nil {
		return nil, badArgument("BlockMask", nil, "must come from NewBlockMask")
	}
	if err := m.words.usable("BlockMask"); err != nil {
		return nil, err
	}
	raw := make([]byte, 4*m.shape[0]*kernel.MaskWords(m.shape))
	if err := m.words.DownloadBytes(ctx, raw); err != nil {
		return nil, err
	}
	return kernel.UnpackMask(m.shape, raw), nil
}

// String describes the mask.
func (m *BlockMask) String() string {
	if m == nil {
		return "no block mask"
	}
	n, of := m.Nonzero()
	return fmt.Sprintf("%d of %v blocks (%d) of %d × %d", n, m.shape, of, m.blocks.Queries, m.blocks.Keys)
}

// Close frees the mask after waiting for work of this library that uses it. Closing again, or nil, does nothing.
func (m *BlockMask) Close() error {
	if m == nil {
		return nil
	}
	return m.words.Close()
}

// otherHeads is the rule of masks for each head of each batch entry.
const otherHeads = "must be made for %d query heads, as each batch entry has a mask for each, and is for %d"

// place checks what a pass was given against the problem, and puts it where kernels find it. It does not allocate unless it fails.
func (m *BlockMask) place(pass string, d *Device, p *Problem, to *pipeline.Binding) error {
	*to = pipeline.Binding{}
	switch {
	case m == nil && p.Blocks == (Blocks{}):
		return nil
	case m == nil || m.words == nil:
		return badArgument(pass+".Blocks", nil, "must be the mask of the problem's blocks, from NewBlockMask")
	case p.Blocks == (Blocks{}):
		return badArgument(pass+".Blocks", m, "must be nil: Problem.Blocks is zero")
	case m.blocks != p.Blocks || m.shape != p.MaskShape():
		return badArgument(pass+".Blocks", m, "must be of %v blocks of %d × %d", p.MaskShape(), p.Blocks.Queries, p.Blocks.Keys)
	case m.heads != p.Blocks.attn().HeadsOf(p.Heads):
		return badArgument(pass+".Blocks", m, otherHeads, p.Heads, m.heads)
	}
	if m.words.usable(pass) != nil {
		return m.words.usable(pass + ".Blocks")
	}
	if m.words.dev != d {
		return badArgument(pass+".Blocks", m, "must be a mask of the plan's device")
	}
	*to = m.words.bound.Binding
	return nil
}

// String gives the size of a block, queries by keys, for example "64x128 per head".
func (b Blocks) String() string { return b.attn().String() }

func (b Blocks) attn() attn.Blocks {
	return attn.Blocks{Queries: b.Queries, Keys: b.Keys, PerHead: b.PerHead, PerBatch: b.PerBatch}
}
