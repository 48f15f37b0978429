package conformance

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Cases lists the suite for a device: fewer and smaller cases on a CPU driver, where each new kernel is
// compiled for tens of milliseconds and more.
func Cases(dev *flash.Device, o Options) ([]*Case, error) {
	small := onCPU(dev.Info())
	s := &suite{seed: o.Seed, small: small}
	if o.Folder != nil {
		var err error
		if s.cases, err = o.Folder.cases(); err != nil {
			return nil, fmt.Errorf("conformance: %w", err)
		}
		return s.chosen(o)
	}
	for _, add := range generators {
		add(s)
	}
	if !small {
		large(s)
	}
	if err := golden(s, o.Vectors); err != nil {
		return nil, err
	}
	n := o.Random
	if n == 0 {
		n = 100
		if small {
			n = 15
		}
	}
	random(s, n, small)
	differentiated(s)
	return s.chosen(o)
}

// chosen are the cases that the options leave.
func (s *suite) chosen(o Options) ([]*Case, error) {
	var out []*Case
	for _, c := range s.cases {
		if (!o.Quick || c.Core) && (o.Filter == nil || o.Filter.MatchString(c.Name)) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("conformance: no case matches %v", o.Filter)
	}
	return out, nil
}

// generators make the cases that every device runs.
var generators = []func(*suite){core, dimensions, lengths, heads, wideHeads, fewQueries, layouts, numerics, thresholds, magnitudes,
	grids, dropouts,
	blockMasks, windows, scored, classes, paddedBatches, packedSequences, paddedWideHeads, caches, mixed, maxLogits, listed}

// suite collects cases.
type suite struct {
	cases []*Case
	seed  uint64
	small bool // for a CPU driver
}

// dim is the head dimension of cases that are about something else: on a CPU, where each is another kernel to compile, the same for all.
func (s *suite) dim(d int) int {
	if s.small {
		return 8
	}
	return d
}

func (s *suite) add(c *Case) *Case {
	c.seed ^= s.seed
	s.cases = append(s.cases, c)
	return c
}

// name adds the dtype's short name to a case's name.
func name(dtype flash.DType, format string, a ...any) string {
	return fmt.Sprintf(format, a...) + "/" + refType(dtype).String()
}

var (
	dtypes  = []flash.DType{flash.F16, flash.BF16, flash.F32}
	causals = []flash.Causal{flash.CausalNone, flash.CausalBottomRight, flash.CausalTopLeft}
)

// core is the part of the suite that runs everywhere, also where each kernel takes seconds to compile:
// few dimensions, every other property.
func core(s *suite) {
	for _, dtype := range dtypes {
		for _, d := range []int{8, 16, 29, 32} {
			for _, causal := range causals[:2] {
				if causal == flash.CausalNone && d%16 != 0 {
					continue
				}
				s.add(&Case{Name: name(dtype, "core/d%d/%v", d, causal), Core: true, Problem: flash.Problem{
					Batch: 1, Heads: 2, QueryLen: 77, KeyLen: 93, HeadDim: d, DType: dtype, Causal: causal}})
			}
		}
		for _, l := range []Layout{Odd, Wide, OddBNHD} {
			s.add(&Case{Name: name(dtype, "core/layout-%v", l), Core: true, Layouts: all(l), Problem: flash.Problem{
				Batch: 2, Heads: 2, QueryLen: 67, HeadDim: s.dim(16), DType: dtype, Causal: flash.CausalBottomRight}})
		}
		s.add(&Case{Name: name(dtype, "core/gqa"), Core: true, Problem: flash.Problem{
			Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 40, HeadDim: s.dim(16), DType: dtype, Causal: flash.CausalBottomRight}})
		s.add(&Case{Name: name(dtype, "core/dv"), Core: true, Problem: flash.Problem{
			Batch: 1, Heads: 1, QueryLen: 50, HeadDim: 8, ValueDim: 16, DType: dtype}})
		s.add(&Case{Name: name(dtype, "core/empty-rows"), Core: true, Problem: flash.Problem{
			Batch: 1, Heads: 2, QueryLen: 100, KeyLen: 30, HeadDim: s.dim(16), DType: dtype, Causal: flash.CausalBottomRight}})
		s.add(&Case{Name: name(dtype, "core/top-left"), Core: true, Problem: flash.Problem{
			Batch: 1, Heads: 2, QueryLen: 33, KeyLen: 70, HeadDim: 8, DType: dtype, Causal: flash.CausalTopLeft}})
		s.add(&Case{Name: name(dtype, "core/narrow"), Core: true, Problem: flash.Problem{
			Batch: 1, Heads: 2, QueryLen: 37, KeyLen: 53, HeadDim: 5, ValueDim: 3, DType: dtype, Causal: flash.CausalBottomRight}})
		s.add(&Case{Name: name(dtype, "core/one"), Core: true, Problem: flash.Problem{
			Batch: 1, Heads: 1, QueryLen: 1, HeadDim: s.dim(16), DType: dtype}})
		s.add(&Case{Name: name(dtype, "core/negative-scale"), Core: true, Problem: flash.Problem{
			Batch: 1, Heads: 2, QueryLen: 45, HeadDim: s.dim(16), DType: dtype, Scale: -0.8}})
	}
	s.add(&Case{Name: lightLast, Core: true, Problem: flash.Problem{
		Batch: 1, Heads: 2, QueryLen: 70, HeadDim: 64, DType: flash.F16, Causal: flash.CausalBottomRight}})
}

// dimensions sweeps head and value dimensions, odd ones too.
func dimensions(s *suite) {
	dims := []int{1, 2, 3, 5, 7, 9, 12, 15, 17, 24, 31, 33, 40, 48, 63, 64, 65, 72, 80, 96, 99, 112, 127, 128, 129, 160, 191, 192,
		224, 255, 256}
	every := map[int]bool{1: true, 33: true, 64: true, 128: true, 256: true} // in all dtypes; else they take turns
	if s.small {
		dims, every = []int{1, 3, 7, 24, 33, 40, 63, 80, 96, 127, 129, 192, 256}, map[int]bool{40: true}
	}
	for i, d := range dims {
		for j, dtype := range dtypes {
			if every[d] || i%len(dtypes) == j {
				s.add(&Case{Name: name(dtype, "dim/%d", d), Problem: flash.Problem{
					Batch: 1, Heads: 2, QueryLen: 37, KeyLen: 45, HeadDim: d, DType: dtype, Causal: causals[i%2]}})
			}
		}
	}
	pairs := [][2]int{{64, 128}, {128, 64}, {192, 128}, {40, 72}, {1, 256}, {256, 1}, {33, 65}, {8, 16}, {80, 96}, {7, 3}, {128, 127}}
	if s.small {
		pairs = [][2]int{{192, 128}, {40, 72}, {1, 256}, {256, 1}, {7, 3}}
	}
	for i, p := range pairs {
		dtype := dtypes[i%len(dtypes)]
		s.add(&Case{Name: name(dtype, "dim/%d-dv%d", p[0], p[1]), Problem: flash.Problem{
			Batch: 1, Heads: 2, QueryLen: 41, KeyLen: 35, HeadDim: p[0], ValueDim: p[1], DType: dtype, Causal: causals[i%3]}})
	}
}

// lengths sweeps ragged numbers of queries and keys around the sizes of tiles, with rows that have
// nothing to attend to (bottom-right, more queries than keys) among them.
func lengths(s *suite) {
	pairs := [][2]int{{1, 1}, {1, 2}, {2, 1}, {1, 65}, {65, 1}, {3, 7}, {8, 8}, {15, 17}, {16, 16}, {17, 15}, {31, 33}, {32, 32}, {33, 31},
		{63, 65}, {64, 64}, {65, 63}, {64, 1}, {127, 129}, {128, 128}, {129, 127}, {130, 64}, {64, 130}, {200, 3}, {5, 300}, {257, 255}}
	for i, n := range pairs {
		for _, causal := range causals {
			dtype := dtypes[i%len(dtypes)]
			s.add(&Case{Name: name(dtype, "length/%dx%d/%v", n[0], n[1], causal), Problem: flash.Problem{
				Batch: 1, Heads: 2, QueryLen: n[0], KeyLen: n[1], HeadDim: s.dim(16), DType: dtype, Causal: causal}})
		}
	}
	for _, causal := range causals {
		s.add(&Case{Name: name(flash.F16, "length/d64/97x150/%v", causal), Problem: flash.Problem{
			Batch: 1, Heads: 1, QueryLen: 97, KeyLen: 150, HeadDim: 64, DType: flash.F16, Causal: causal}})
		s.add(&Case{Name: name(flash.F32, "length/d128/150x97/%v", causal), Problem: flash.Problem{
			Batch: 1, Heads: 1, QueryLen: 150, KeyLen: 97, HeadDim: 128, DType: flash.F32, Causal: causal}})
	}
}

// heads sweeps how query heads share key heads, in batches.
func heads(s *suite) {
	for i, h := range [][3]int{{1, 4, 4}, {2, 8, 2}, {3, 6, 1}, {2, 3, 3}, {1, 32, 8}, {5, 5, 1}} {
		for _, dtype := range dtypes[:1+i%2*2] {
			s.add(&Case{Name: name(dtype, "heads/b%d-%d-%d", h[0], h[1], h[2]), Problem: flash.Problem{
				Batch: h[0], Heads: h[1], KeyHeads: h[2], QueryLen: 35, KeyLen: 40, HeadDim: s.dim(32), DType: dtype,
				Causal: causals[i%3]}})
		}
	}
	decode := dtypes
	if s.small {
		decode = dtypes[1:2]
	}
	for _, dtype := range decode {
		s.add(&Case{Name: name(dtype, "heads/decode"), Problem: flash.Problem{
			Batch: 2, Heads: 8, KeyHeads: 2, QueryLen: 1, KeyLen: 777, HeadDim: 128, DType: dtype, Causal: flash.CausalBottomRight}})
	}
	s.add(&Case{Name: name(flash.F16, "heads/few-queries"), Problem: flash.Problem{
		Batch: 1, Heads: 8, KeyHeads: 1, QueryLen: 4, KeyLen: 300, HeadDim: 64, DType: flash.F16, Causal: flash.CausalBottomRight}})
}

// layouts sweeps where tensors lie; surroundings are NaN and infinity in every case of the suite.
func layouts(s *suite) {
	for l := range layoutEnd {
		for i, d := range []int{16, 33, 64} {
			d, dtype := s.dim(d), dtypes[(int(l)+i)%len(dtypes)]
			s.add(&Case{Name: name(dtype, "layout/%v/d%d", l, d), Layouts: all(l), Problem: flash.Problem{
				Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 50, HeadDim: d, DType: dtype, Causal: causals[i]}})
		}
	}
	for i, l := range []Layouts{{Dense, Odd, BNHD, Wide}, {OddBNHD, Dense, Odd, Dense}, {Wide, BNHD, Wide, Odd},
		{BNHD, Wide, Dense, OddBNHD}} {
		dtype := dtypes[i%len(dtypes)]
		s.add(&Case{Name: name(dtype, "layout/%v", l), Layouts: l, Problem: flash.Problem{
			Batch: 2, Heads: 2, QueryLen: 66, KeyLen: 34, HeadDim: s.dim(40), ValueDim: s.dim(12) * 2, DType: dtype, Causal: causals[i%3]}})
	}
}
