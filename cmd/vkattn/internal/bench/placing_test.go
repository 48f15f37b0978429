package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
)

// downloaded gives a tensor's values in the order b, h, n, d.
func downloaded(t *testing.T, from *flash.Tensor) []float32 {
	t.Helper()
	values := make([]float32, from.Elements())
	require.NoError(t, from.Download(context.Background(), values))
	return values
}

// lookUp finds row i of head h of batch entry b in a tensor of queries or keys as the device has it: by the numbers that are in device
// memory.
type lookUp func(b, h, i int) (row []float32)

// inTensor looks rows up in values of that shape.
func inTensor(values []float32, shape [4]int) lookUp {
	return func(b, h, i int) []float32 {
		at := ((b*shape[1]+h)*shape[2] + i) * shape[3]
		return values[at : at+shape[3]]
	}
}

// TestTensorsHoldTheirStreams: whatever the type and wherever rows lie, what is downloaded is the stream that outputs are checked against,
// value by value, found as kernels find it; what is no row is NaN.
func TestTensorsHoldTheirStreams(t *testing.T) {
	d := quick(testDevice(t), result.Peaks{})
	base := result.Case{Impl: "flash2", DType: "float16", B: 3, H: 4, Hkv: 2, Nq: 5, N: 37, D: 64, Dv: 32}
	for _, set := range []func(*result.Case){
		func(*result.Case) {},
		func(c *result.Case) { c.DType = "bfloat16" },
		func(c *result.Case) { c.DType, c.D, c.Dv = "float32", 7, 9 },
		func(c *result.Case) { c.Nq, c.Packed = c.N, "equal" },
		func(c *result.Case) { c.Nq, c.Packed, c.B, c.DType = c.N, "mixed", 5, "bfloat16" },
		func(c *result.Case) { c.Nq, c.Packed, c.B, c.Cache, c.Hkv = c.N, "mixed", 40, "q8_0", 4 },
		func(c *result.Case) { c.Page = 1 },
		func(c *result.Case) { c.Used, c.B = "mixed", 5 },
		func(c *result.Case) { c.Used, c.Page, c.Cache, c.B = "mixed", 4, "q8_0", 5 },
		func(c *result.Case) { c.Page, c.DType = 16, "float32" },
		func(c *result.Case) { c.Page, c.N = 256, 300 },
		func(c *result.Case) { c.Cache = "q8_0" },
		func(c *result.Case) { c.Cache, c.Page = "q8_0", 4 },
		func(c *result.Case) { c.Cache, c.Page, c.DType = "q4_0", 16, "bfloat16" },
		func(c *result.Case) { c.Cache, c.Page = "fp8", 8 },
		func(c *result.Case) { c.Cache, c.DType = "fp8", "float32" },
		func(c *result.Case) { c.Cache, c.Page = "q4_1", 8 },
		func(c *result.Case) { c.Cache = "q5_0" },
		func(c *result.Case) { c.Cache, c.Page = "q5_1", 4 },
		func(c *result.Case) { c.Cache, c.DType = "iq4_nl", "bfloat16" },
		func(c *result.Case) { c.Cache, c.Page = "fp8_e5m2", 8 },
	} {
		c := base
		set(&c)
		t.Run(c.String(), func(t *testing.T) {
			require.NoError(t, c.Validate())
			p, err := c.Problem()
			require.NoError(t, err)
			set, err := d.newSet(context.Background(), c, p, result.Passes{Bwd: c.Page == 0 && c.Cache == ""}, 11)
			require.NoError(t, err)
			defer set.close()
			streamsIn(t, c, &set)
		})
	}
}

// streamsIn compares the tensors of a set with their streams.
func streamsIn(t *testing.T, c result.Case, set *tensorSet) {
	sequences := func(find lookUp) lookUp { // of packed ones
		if c.Packed == "" {
			return find
		}
		starts := downloaded(t, set.starts)
		require.Equal(t, float32(set.q.Shape()[2]), starts[c.B])
		return func(b, h, i int) []float32 {
			if int(starts[b])+i >= int(starts[b+1]) {
				return nil
			}
			return find(0, h, int(starts[b])+i)
		}
	}
	queries := func(x *flash.Tensor) lookUp { return sequences(inTensor(downloaded(t, x), x.Shape())) }
	keys := func(x *flash.Tensor, scales *flash.Tensor) lookUp {
		values := downloaded(t, x)
		find := sequences(inTensor(values, x.Shape()))
		if c.Page > 0 {
			table, pool, used := downloaded(t, set.pages), find, map[float32]bool{}
			for _, page := range table {
				require.False(t, used[page], "page %v twice", page)
				used[page] = true
			}
			find = func(b, h, i int) []float32 {
				return pool(int(table[b*set.pages.Shape()[3]+i/c.Page]), h, i%c.Page)
			}
		}
		if c.Page > 0 || c.Used != "" {
			rows, nan := 0, 0
			for b := range c.B {
				rows += c.Entry(b).N
			}
			for _, v := range values {
				if math.IsNaN(float64(v)) {
					nan++
				}
			}
			require.Equal(t, len(values)-rows*c.Hkv*x.Shape()[3], nan, "what is no row is NaN")
		}
		if scales == nil {
			return find
		}
		by := downloaded(t, scales)
		require.Greater(t, slices.Max(by), slices.Min(by))
		return func(b, h, i int) []float32 {
			row := slices.Clone(find(b, h, i))
			for at := range row {
				row[at] *= by[b*c.Hkv+h]
			}
			return row
		}
	}
	for _, x := range []struct {
		name   string
		tensor *flash.Tensor
		stream rowStream
		find   lookUp
		heads  int
	}{
		{"q", set.q, set.in.q, queries(set.q), c.H}, {"k", set.k, set.in.k, keys(set.k, set.keyScales), c.Hkv},
		{"v", set.v, set.in.v, keys(set.v, set.valueScales), c.Hkv},
	} {
		require.Equal(t, x.heads, x.stream.heads, x.name)
		sameRows(t, c, x.name, x.tensor, x.stream, x.find)
	}
	if set.grad.do != nil {
		sameRows(t, c, "do", set.grad.do, set.in.do, queries(set.grad.do))
	}
}

// sameRows compares the rows of a tensor with those of a stream: those that the checks compute with, to the bit, and the stream's own
// values as near as the type has them.
func sameRows(t *testing.T, c result.Case, name string, tensor *flash.Tensor, stream rowStream, find lookUp) {
	// half a step, of which q4_0 cuts one end, and that of the scale in fp16
	step := map[string]float64{"q8_0": 0.57 / 127, "q4_0": 1.01 / 8, "fp8": 1.0 / 16, "q4_1": 1.02 / 15, "q5_0": 1.01 / 16,
		"q5_1": 1.02 / 31, "iq4_nl": 26.0 / 127, "fp8_e5m2": 1.0 / 8}[c.Cache]
	if name == "q" || name == "do" {
		step = 0
	}
	rows := 0
	for b := range c.B {
		for h := range stream.heads {
			bh := b*stream.heads + h
			checked := stream.head(bh, stream.n)
			for i := range min(stream.n, c.Entry(b).N) {
				what := fmt.Sprintf("%s[%d,%d,%d]", name, b, h, i)
				got := find(b, h, i)
				rows++
				require.Equal(t, checked[i*stream.width:(i+1)*stream.width], got, what)
				exact := stream.Floats(uint64((bh*stream.n+i)*stream.width), stream.width)
				for at, v := range got {
					most := 0.0
					for _, near := range exact[at/32*32 : min(at/32*32+32, stream.width)] {
						most = max(most, math.Abs(float64(near)))
					}
					require.InDelta(t, exact[at], v, step*most, "%s[%d]", what, at)
				}
			}
		}
	}
	if c.Page == 0 && c.Used == "" {
		require.Equal(t, tensor.Elements(), rows*stream.width, "%s has other rows besides", name)
	}
}
