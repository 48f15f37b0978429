package flash

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Forward names the tensors of one forward pass, which computes o and lse as [Problem] says. Inputs may overlap one another; outputs are
// overwritten, and must not overlap any other tensor of the pass.
type Forward struct {
	Q, K, V *Tensor // inputs, of the problem's DType (K and V: KeyType and ValueType) and of shapes Problem.QShape, KShape, VShape
	O       *Tensor // output, of the problem's DType and Problem.OShape
	LSE     *Tensor // output, fp32 in row-major order, of Problem.LSEShape: what a backward pass needs; nil: not written
	// Output, of Problem.MaxLogit: fp32 [1, 1, Batch, Heads]; nil without
	MaxLogit *Tensor

	Bias  *Tensor // of Problem.Bias, nil where that is zero
	Mask  *Tensor // of Problem.Mask, where nonzero bytes, or bits, may be attended to; nil where that is zero
	Sinks *Tensor // of Problem.Sinks, fp32 [1, 1, 1, Heads]; nil without
	// Of Problem.KeyLengths and QueryLengths: Int32 [1, 1, 1, Batch], numbers outside 0 to KeyLen, or QueryLen, are clamped; nil without.
	KeyLengths, QueryLengths *Tensor
	// Of Problem.Packed: Int32 [1, 1, 1, Batch + 1], the row at which each sequence starts and, last, at which the last one ends
	// (FlashAttention's cu_seqlens, FlashInfer's indptr); nil without.
	QueryStarts, KeyStarts *Tensor
	Lists                  *Tensor  // of Problem.Lists: Int32 [Batch, 1 or KeyHeads, QueryLen, Lists.Keys], row-major; nil without
	PageTable              *Tensor  // of Problem.Pages (FlashAttention's block_table), nil where that is zero
	PageStarts, LastPages  *Tensor  // likewise, of a compressed table; nil without
	KeyScales, ValueScales *Tensor  // what keys or values of F8E4M3 or F8E5M2 are multiplied by: fp32 [1, 1, Batch, KeyHeads]; nil without
	Captured               Captured // what Problem.ScoreFunction and Problem.MaskFunction capture

	// of standard attention whose backward pass is to follow, from Plan.NewWeights; nil: P stays in the workspace, and is lost
	Weights    *Weights
	Blocks     *BlockMask  // of Problem.Blocks, from Device.NewBlockMask; nil where that is zero
	MaskBlocks *MaskBlocks // of Problem.MaskBlocks, from Device.NewMaskBlocks; nil where that is zero
	// Seed and Offset say which weights dropout drops; a training step takes a new offset, or a new seed. They are ignored
	// where Problem.Dropout is 0.
	Seed   uint64
	Offset uint32
}

// given lists the tensors in the order of attn.ForwardOperands.
func (f *Forward) given() [len(attn.ForwardOperands)]*Tensor {
	return [...]*Tensor{f.Q, f.K, f.V, f.O, f.LSE, f.MaxLogit, f.Bias, f.Mask, f.Sinks, f.KeyLengths, f.QueryLengths, f.QueryStarts,
		f.KeyStarts, f.Lists, f.PageTable, f.PageStarts, f.LastPages, f.KeyScales, f.ValueScales}
}

// check validates the tensors against the problem and gives what kernels are given. It does not allocate unless it fails.
func (f *Forward) check(p *Plan, ops *kernel.Operands) error {
	given, to := f.given(), ops.List()
	ops.HasLSE = f.LSE != nil
	return f.place("Forward", attn.ForwardOperands[:], p, given[:], to[:], ops)
}

// place checks all that a pass of any direction is given, its tensors in the order of its table and what else it has of a forward pass, and
// puts it where kernels find it.
func (f *Forward) place(pass string, table []attn.Operand, p *Plan, given []*Tensor, to []*kernel.Operand, ops *kernel.Operands) error {
	if err := place(p.dev, pass, table, &p.attn, given, to); err != nil {
		return err
	}
	if err := f.Captured.place(pass, "Captured", p, &ops.Captured); err != nil {
		return err
	}
	if err := f.Captured.apart(pass, table, given); err != nil {
		return err
	}
	if err := f.Blocks.place(pass, p.dev, &p.problem, &ops.Blocks); err != nil {
		return err
	}
	ops.Drop = kernel.Draw{Seed: f.Seed, Offset: f.Offset}
	return f.MaskBlocks.place(pass, p, &ops.Blocks)
}

// tensors lists what a recording keeps: the tensors, the block mask's among them.
func (f *Forward) tensors(held *[mostHeld]*Tensor) {
	given := f.given()
	f.hold(held, given[:])
}

// hold lists the tensors of a pass, and what else it has of a forward pass.
func (f *Forward) hold(held *[mostHeld]*Tensor, given []*Tensor) {
	clear(held[copy(held[:], given):])
	if f.Blocks != nil {
		held[len(given)] = f.Blocks.words
	}
	if f.MaskBlocks != nil {
		held[len(given)] = f.MaskBlocks.words // a problem has one of them
	}
	copy(held[mostHeld-MaxCaptured:], f.Captured[:])
}
