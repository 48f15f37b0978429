package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Family is the device's family of tiles.
func (c *Capabilities) Family() *tiles.Family {
	if c.Tiles != nil {
		return c.Tiles
	}
	return tiles.For(c.TilesDevice())
}

// TilesDevice is what a family of tiles is chosen by.
func (c *Capabilities) TilesDevice() tiles.Device {
	f := c.Facts
	d := tiles.Device{Vendor: f.VendorID, ID: f.DeviceID, Type: f.Type.String(), Multiprocessors: int(f.Multiprocessors),
		Subgroups: int(f.MultiprocessorSubgroups), SharedKiB: int(f.Limits.MaxSharedMemory >> 10), Lanes: int(f.Subgroup.Size),
		LeastLanes: int(f.Subgroup.Min)}
	for _, s := range c.Fragments(attn.F16) {
		d.Fragments = append(d.Fragments, [3]int{s.M, s.N, s.K})
	}
	return d
}

// Asked is a problem as rows of tiles look at it, with the fragment that a kernel on matrices takes.
func Asked(p *attn.Problem, s Fragment) *tiles.Problem {
	return &tiles.Problem{HeadDim: p.HeadDim, ValueDim: p.ValueDim, Queries: p.QueryLen, Keys: p.KeyLen,
		Rows: RowsOf(p), DType: p.DType.Suffix(),
		Causal: p.Masked(), Window: p.Local(), Dropout: p.DropThreshold() > 0, Blocks: !p.Blocks.None(), Scored: !p.Score.Identity(),
		Bias: !p.Bias.None(), Bare: Bare(p), Near: near(p),
		Page: p.Pages.Size, KeyType: p.KeyType.InCache(), ValueType: p.ValueType.InCache(), Packed: !p.Packed.None(), Lanes: s.Lanes,
		Fragment: [3]int{s.M, s.N, s.K}}
}

// Bare says that scores are products of queries and keys alone, which nobody asks for, and that keys are rows of tensors which queries see
// from the first on.
func Bare(p *attn.Problem) bool {
	return !HasFunctions(p) && p.Blocks.None() && !p.Local() && alone(p)
}

// near is Bare but for functions and windows, which make scores near a query's own position the largest as a rule. Where no mask goes by
// position, tiles can only begin there if all keys are used.
func near(p *attn.Problem) bool {
	return (p.Blocks.None() || p.Blocks.Classed) && (p.Masked() || !p.Padded()) && alone(p)
}

// alone says that keys are rows of tensors, and that no other tensor says what they weigh.
func alone(p *attn.Problem) bool {
	return !p.MaxLogit && p.Bias.None() && p.BoolMask.None() && p.Lists.None() && !p.Cached()
}

// RowsOf is the number of rows that kernels for few rows cut blocks from: those of a key head, queries of all query heads that read it, or
// with lists of keys of a query.
func RowsOf(p *attn.Problem) int {
	if !p.Lists.None() {
		return p.Group()
	}
	return p.QueryLen * p.Group()
}

// Suiting are the rows of a kernel that suit a problem, best first; those of further kernels follow.
func (c *Capabilities) Suiting(p *tiles.Problem, kernels ...string) []*tiles.Row {
	var out []*tiles.Row
	f := c.Family()
	for _, kernel := range kernels {
		for _, r := range f.Rows(kernel) {
			if r.Suits(p) {
				out = append(out, r)
			}
		}
	}
	return out
}

// First is the first row of a kernel that suits a problem. Every family has one for every problem: the tests of its files see to that.
func (c *Capabilities) First(p *attn.Problem, s Fragment, kernel string) *tiles.Row {
	return c.Suiting(Asked(p, s), kernel)[0]
}

// Lanes stands for a fragment in kernels that have none.
func (c *Capabilities) Lanes() Fragment { return Fragment{Lanes: int(c.Facts.Subgroup.Size)} }

// Prediction is what times are predicted with on a device.
type Prediction struct {
	tiles.Constants
	Count int // multiprocessors
	Few   int // workgroups below which the device is not full
}

func (c *Capabilities) Prediction() Prediction {
	k := Prediction{Constants: c.Family().Constants}
	if k.Count = int(c.Facts.Multiprocessors); k.Count == 0 {
		k.Count = k.Multiprocessors
	}
	k.Few = k.Groups(k.Count)
	return k
}

// TunedRow is the row with which a file of tiles answers for a kernel and a problem what tune measured; nil for none.
func (c *Capabilities) TunedRow(kernel string, p *attn.Problem) *tiles.Row {
	asked := Asked(p, c.Lanes())
	for _, r := range c.Family().Tuned(kernel) {
		if r.Suits(asked) {
			return r
		}
	}
	return nil
}
