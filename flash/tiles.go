package flash

import (
	"github.com/vkattn/vkattn/internal/tiles"
)

// family is the device's family of tiles.
func (c *capabilities) family() *tiles.Family {
	if c.tiles != nil {
		return c.tiles
	}
	return tiles.For(c.tilesDevice())
}

// tilesDevice is what a family of tiles is chosen by.
func (c *capabilities) tilesDevice() tiles.Device {
	f := c.facts
	d := tiles.Device{Vendor: f.VendorID, ID: f.DeviceID, Type: f.Type.String(), Multiprocessors: int(f.Multiprocessors),
		Subgroups: int(f.MultiprocessorSubgroups), SharedKiB: int(f.Limits.MaxSharedMemory >> 10), Lanes: int(f.Subgroup.Size)}
	for _, s := range c.fragments(F16) {
		d.Fragments = append(d.Fragments, [3]int{s.M, s.N, s.K})
	}
	return d
}

// asked is a problem as rows of tiles look at it, with the fragment that a kernel on matrices takes.
func asked(p *Problem, s matrixShape) *tiles.Problem {
	return &tiles.Problem{HeadDim: p.HeadDim, ValueDim: p.ValueDim, Queries: p.QueryLen, Keys: p.KeyLen, DType: p.DType.suffix(),
		Causal: p.Causal != CausalNone, Dropout: p.dropThreshold() > 0, Blocks: !p.Blocks.none(), Lanes: s.Lanes, Fragment: [3]int{s.M, s.N, s.K}}
}

// suiting are the rows of a kernel that suit a problem, best first; those of further kernels follow.
func (c *capabilities) suiting(p *tiles.Problem, kernels ...string) []*tiles.Row {
	var out []*tiles.Row
	f := c.family()
	for _, kernel := range kernels {
		for _, r := range f.Rows(kernel) {
			if r.Suits(p) {
				out = append(out, r)
			}
		}
	}
	return out
}

// first is the first row of a kernel that suits a problem. Every family has one for every problem: the tests of its files see to that.
func (c *capabilities) first(p *Problem, s matrixShape, kernel string) *tiles.Row {
	return c.suiting(asked(p, s), kernel)[0]
}

// lanes stands for a fragment in kernels that have none.
func (c *capabilities) lanes() matrixShape { return matrixShape{Lanes: int(c.facts.Subgroup.Size)} }

// prediction is what times are predicted with on a device.
type prediction struct {
	tiles.Constants
	count int // multiprocessors
	few   int // workgroups below which the device is not full
}

func (c *capabilities) prediction() prediction {
	k := prediction{Constants: c.family().Constants}
	if k.count = int(c.facts.Multiprocessors); k.count == 0 {
		k.count = k.Multiprocessors
	}
	k.few = k.Groups(k.count)
	return k
}

// tunedRow is the row with which a file of tiles answers for a kernel and a problem what tune measured; nil for none.
func (c *capabilities) tunedRow(kernel string, p *Problem) *tiles.Row {
	asked := asked(p, c.lanes())
	for _, r := range c.family().Tuned(kernel) {
		if r.Suits(asked) {
			return r
		}
	}
	return nil
}
