package flash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// pagedCache is keys and values in pages on a device and in the oracle's words, each batch entry with pages of its own from a pool in
// disorder.
type pagedCache struct {
	p      Problem
	f      Forward
	q      ref.Tensor
	pools  [2]ref.Tensor // of K and V
	table  [][]int       // as many pages as an entry may have
	length []int
}

func newPagedCache(t *testing.T, d *Device, p Problem) *pagedCache {
	p, err := p.Normalize()
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 9))
	c := &pagedCache{p: p, length: make([]int, p.Batch)}
	numbers := func(dtype DType, shape [4]int) (*Tensor, ref.Tensor) {
		x, values := mustTensor(t, d, dtype, shape), ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		for i := range values.Data {
			values.Data[i] = float32(r.NormFloat64())
		}
		raw := make([]byte, dtype.Bytes(len(values.Data)))
		attn.Encode(attn.DType(dtype), raw, values.Data)
		attn.Decode(attn.DType(dtype), values.Data, raw)
		require.NoError(t, x.Upload(bg, values.Data))
		return x, values
	}
	c.f.Q, c.q = numbers(p.DType, p.QShape())
	c.f.K, c.pools[0] = numbers(p.KeyType, p.KShape())
	c.f.V, c.pools[1] = numbers(p.ValueType, p.VShape())
	c.f.O, c.f.LSE = mustTensor(t, d, p.DType, p.OShape()), mustTensor(t, d, F32, p.LSEShape())
	c.f.PageTable, c.f.KeyLengths = mustTensor(t, d, Int32, [4]int{1, 1, p.Batch, p.Pages.PerSequence}),
		mustTensor(t, d, Int32, [4]int{1, 1, 1, p.Batch})
	pages := r.Perm(p.Pages.Count)
	for range p.Batch {
		c.table, pages = append(c.table, pages[:p.Pages.PerSequence]), pages[p.Pages.PerSequence:]
	}
	return c
}

func mustTensor(t *testing.T, d *Device, dtype DType, shape [4]int) *Tensor {
	x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
	require.NoError(t, err)
	return x
}

// tell writes lengths and table to the device; pages behind the length are numbers of none.
func (c *pagedCache) tell(t *testing.T) {
	var table, lengths []float32
	for b, pages := range c.table {
		for i, page := range pages {
			if i*c.p.Pages.Size >= c.length[b] {
				page = -1 - i
			}
			table = append(table, float32(page))
		}
		lengths = append(lengths, float32(c.length[b]))
	}
	require.NoError(t, errors.Join(c.f.PageTable.Upload(bg, table), c.f.KeyLengths.Upload(bg, lengths)))
}

// check compares o and lse with the oracle on what the table names.
func (c *pagedCache) check(t *testing.T, near float64) {
	in := ref.Problem{Q: c.q}
	in.Causal, in.Scale, in.KeyLens = ref.BottomRight, c.p.Scale, c.length
	var err error
	in.K, err = ref.Gather(c.pools[0], c.table, c.p.KeyLen)
	require.NoError(t, err)
	in.V, err = ref.Gather(c.pools[1], c.table, c.p.KeyLen)
	require.NoError(t, err)
	o, lse, err := ref.Forward(in)
	require.NoError(t, err)
	require.InDeltaSlice(t, o.Data, wide(download(t, c.f.O)), near)
	for i, x := range download(t, c.f.LSE) {
		if math.IsInf(lse.Data[i], -1) {
			require.True(t, math.IsInf(float64(x), -1), "lse[%d] is %v", i, x)
			continue
		}
		require.InDelta(t, lse.Data[i], x, near, "lse[%d]", i)
	}
}

// TestPagesGrow: one plan and one recording serve caches that grow: lengths and tables are the device's, and nothing is planned or built
// again.
func TestPagesGrow(t *testing.T) {
	d := decodeDevice(t)
	for _, x := range []struct {
		p      Problem
		tuning map[string]int
	}{
		{Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 90, HeadDim: 8, DType: F16,
			Pages: Pages{Size: 16, Count: 20, PerSequence: 6}}, nil},
		// Several groups of lanes, whose keys lie in one page, in several, and in one each.
		{Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 90, HeadDim: 8, DType: F16,
			Pages: Pages{Size: 16, Count: 20, PerSequence: 6}},
			map[string]int{"lpr": 2, "u": 2, "w": 2, "parts": 2}},
		{Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 2, KeyLen: 70, HeadDim: 32, DType: F32,
			Pages: Pages{Size: 4, Count: 40, PerSequence: 18}, KeyType: Q8_0,
			ValueType: Q4_0}, map[string]int{"lpr": 1, "u": 3, "w": 1, "parts": 1}},
		{Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 2, KeyLen: 70, HeadDim: 64, DType: F16,
			Pages: Pages{Size: 1, Count: 150, PerSequence: 70}, KeyType: Q4_0},
			map[string]int{"lpr": 2, "u": 2, "w": 2, "parts": 1}},
	} {
		p := x.p
		p.Causal, p.KeyLengths = CausalBottomRight, true
		c := newPagedCache(t, d, p)
		plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(x.tuning))
		require.Equal(t, "scalar_decode", plan.ForwardInfo().KernelName)
		recording, err := plan.NewRecording()
		require.NoError(t, err)
		d.env.Modules = func(name string) ([]uint32, error) { // of which every pipeline is built
			return nil, fmt.Errorf("%s is built while caches grow", name)
		}
		for _, lengths := range [][3]int{{0, 1, 16}, {1, 2, 17}, {15, 16, 31}, {64, 65, 66}, {p.KeyLen, p.KeyLen, 0}} {
			copy(c.length, lengths[:])
			for i := range c.length {
				c.length[i] = min(c.length[i], p.KeyLen)
			}
			c.tell(t)
			require.NoError(t, recording.Forward(c.f), "the same commands for all lengths")
			pending, err := recording.Submit()
			require.NoError(t, err)
			require.NoError(t, pending.Wait(bg))
			c.check(t, 2e-3)
		}
		d.env.Modules = nil
		require.NoError(t, recording.Close())
	}
}

// TestPagesAllocateNothing: recording a pass over pages again, for another cache, leaves the garbage collector alone.
func TestPagesAllocateNothing(t *testing.T) {
	d := decodeDevice(t)
	p := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 90, HeadDim: 8, DType: F16, KeyLengths: true,
		Causal: CausalBottomRight,
		Pages:  Pages{Size: 16, Count: 20, PerSequence: 6}}
	plan, sets := mustPlan(t, d, p, WithTier(TierScalar)), [2]Forward{newPagedCache(t, d, p).f, newPagedCache(t, d, p).f}
	r, err := plan.NewRecording()
	require.NoError(t, err)
	i := 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		i++
		if err := r.Forward(sets[i%2]); err != nil {
			t.Fatal(err)
		}
	}))
}

// TestPagesOnMatrices: kernels on matrices prove themselves on pages and quantised keys and values, in parts too: self-checks compare with
// float64 what comes out of pages between others that hold no numbers.
func TestPagesOnMatrices(t *testing.T) {
	d := testDevice(t)
	for _, x := range []struct {
		p    Problem
		more map[string]int
		long string
	}{
		{Problem{KeyLen: 300, HeadDim: 8, Pages: Pages{Size: 16, Count: 50, Indices: 60}}, map[string]int{"parts": 2}, ""},
		{Problem{KeyLen: 300, HeadDim: 8, Pages: Pages{Size: 64, Count: 50, PerSequence: 5}},
			map[string]int{"steps": 1, "prefetch": 3, "parts": 1}, ""},
		{Problem{KeyLen: 64, HeadDim: 32, KeyType: F8E4M3, ValueType: Q8_0}, map[string]int{"form": 3},
			"conformance has quantised keys and values in short runs"},
		{Problem{KeyLen: 300, HeadDim: 32, KeyType: Q4_0, ValueType: F8E4M3, Pages: Pages{Size: 16, Count: 50, PerSequence: 20}},
			map[string]int{"parts": 3}, "conformance has quantised keys and values in short runs"},
	} {
		p := x.p
		p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.DType, p.Causal = 2, 4, 2, 40, F16, CausalBottomRight
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			plan, err := d.Plan(p, WithTier(TierMatrix), WithTuning(x.more))
			skipUnsupported(t, err)
			defer plan.Close()
			require.Equal(t, "matrix_forward", plan.ForwardInfo().KernelName)
			require.Equal(t, max(1, x.more["parts"]), plan.ForwardInfo().Tuning["parts"])
		})
	}
}

// TestBadPages: what goes with pages and quantised keys and values is given as the problem has it, and nowhere else; what cannot read them
// says so.
func TestBadPages(t *testing.T) {
	d := decodeDevice(t)
	p := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 1, KeyLen: 40, HeadDim: 32, DType: F16, KeyLengths: true,
		Pages:   Pages{Size: 16, Count: 9, PerSequence: 3},
		KeyType: F8E4M3}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	tensor := func(dtype DType, shape ...int) *Tensor { return mustTensor(t, d, dtype, [4]int(shape)) }
	good := Forward{Q: tensor(F16, 2, 2, 1, 32), K: tensor(F8E4M3, 9, 1, 16, 32), V: tensor(F16, 9, 1, 16, 32), O: tensor(F16, 2, 2, 1, 32),
		PageTable: tensor(Int32, 1, 1, 2, 3), KeyLengths: tensor(Int32, 1, 1, 1, 2), KeyScales: tensor(F32, 1, 1, 2, 1)}
	require.NoError(t, good.PageTable.Upload(bg, []float32{0, 1, 2, 3, 4, 5}))
	require.NoError(t, good.KeyLengths.Upload(bg, []float32{40, 7}))
	require.NoError(t, plan.Forward(bg, good))
	whole := tensor(F16, 1, 1, 1, 9*16*32+64)
	for name, c := range map[string]struct {
		change   func(f *Forward)
		argument string
	}{
		"no table":              {func(f *Forward) { f.PageTable = nil }, "Forward.PageTable"},
		"a table of fp32":       {func(f *Forward) { f.PageTable = tensor(F32, 1, 1, 2, 3) }, "Forward.PageTable"},
		"a table too short":     {func(f *Forward) { f.PageTable = tensor(Int32, 1, 1, 2, 2) }, "Forward.PageTable"},
		"a table of one entry":  {func(f *Forward) { f.PageTable = tensor(Int32, 1, 1, 1, 3) }, "Forward.PageTable"},
		"starts of a dense one": {func(f *Forward) { f.PageStarts = tensor(Int32, 1, 1, 1, 3) }, "Forward.PageStarts"},
		"last pages":            {func(f *Forward) { f.LastPages = tensor(Int32, 1, 1, 1, 2) }, "Forward.LastPages"},
		"no scales":             {func(f *Forward) { f.KeyScales = nil }, "Forward.KeyScales"},
		"scales of fp16":        {func(f *Forward) { f.KeyScales = tensor(F16, 1, 1, 2, 1) }, "Forward.KeyScales"},
		"scales for each query": {func(f *Forward) { f.KeyScales = tensor(F32, 1, 1, 2, 2) }, "Forward.KeyScales"},
		"scales of values":      {func(f *Forward) { f.ValueScales = f.KeyScales }, "Forward.ValueScales"},
		"keys of fp16":          {func(f *Forward) { f.K = f.V }, "Forward.K"},
		"values of q8":          {func(f *Forward) { f.V = tensor(Q8_0, 9, 1, 16, 32) }, "Forward.V"},
		"a pool too small":      {func(f *Forward) { f.V = tensor(F16, 8, 1, 16, 32) }, "Forward.V"},
		"keys as a batch":       {func(f *Forward) { f.K = tensor(F8E4M3, 2, 1, 40, 32) }, "Forward.K"},
		"no lengths":            {func(f *Forward) { f.KeyLengths = nil }, "Forward.KeyLengths"},
		"o over the pool": {func(f *Forward) {
			f.V, _ = whole.View(0, F16, [4]int{9, 1, 16, 32}, [4]int{})
			f.O, _ = whole.View(2*32, F16, [4]int{2, 2, 1, 32}, [4]int{})
		}, "Forward.O"},
	} {
		f := good
		c.change(&f)
		_, err := plan.SubmitForward(f)
		t.Run(name, func(t *testing.T) { requireRefused(t, c.argument, err) })
	}
	require.NoError(t, plan.Forward(bg, good), "refused calls leave the plan usable")

	_, err := plan.BackwardInfo()
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "caches have no gradients")
	_, err = plan.NewRecording(ForBackward())
	require.ErrorIs(t, err, ErrUnsupported)
	for _, of := range []Implementation{Standard, Flash1} {
		_, err = d.Plan(p, WithImplementation(of))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "it has no")
	}
	masked := p
	masked.Blocks = Blocks{Queries: 16, Keys: 16}
	_, err = d.Plan(masked, WithTuning(map[string]int{"parts": 2}))
	requireRefused(t, "WithTuning", err)
	wide := p
	wide.HeadDim, wide.ValueDim = 288, 288
	_, err = d.Plan(wide, WithTier(TierMatrix))
	require.ErrorIs(t, err, ErrUnsupported)
	_, err = d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{"decode": 0, "parts": 2}))
	requireRefused(t, "WithTuning", err)
}

// TestFP8Numbers: every byte of e4m3 and of e5m2 is the number that it is, in K and in V, whatever the row's place in a word.
func TestFP8Numbers(t *testing.T) {
	for _, dtype := range []DType{F8E4M3, F8E5M2} {
		t.Run(dtype.String(), func(t *testing.T) { testFP8Numbers(t, dtype) })
	}
}

func testFP8Numbers(t *testing.T, dtype DType) {
	d := decodeDevice(t)
	const n, dim = 8, 35
	// all weights alike
	p := Problem{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: n, HeadDim: dim, DType: F32, KeyType: dtype, ValueType: dtype, Scale: 1e-30}
	values := make([]float32, n*dim)
	for i := range values {
		raw := []byte{byte(i)}
		if attn.Decode(attn.DType(dtype), values[i:i+1], raw); math.IsNaN(float64(values[i])) || math.IsInf(float64(values[i]), 0) {
			values[i] = 0
		}
	}
	want, size := make([]float64, dim), make([]float64, dim)
	for i, v := range values {
		want[i%dim] += float64(v) / n
		size[i%dim] += math.Abs(float64(v)) / n
	}
	for _, decode := range []int{0, 1} {
		plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(map[string]int{"decode": decode}))
		k := mustTensor(t, d, dtype, p.KShape())
		require.NoError(t, k.Upload(bg, values))
		one := mustTensor(t, d, F32, [4]int{1, 1, 1, 1})
		require.NoError(t, one.Upload(bg, []float32{1}))
		f := Forward{Q: mustTensor(t, d, F32, p.QShape()), K: k, V: k, O: mustTensor(t, d, F32, p.OShape()), KeyScales: one,
			ValueScales: one}
		require.NoError(t, f.Q.Upload(bg, slices.Repeat([]float32{1}, dim)))
		require.NoError(t, plan.Forward(bg, f))
		for c, x := range download(t, f.O) {
			require.InDelta(t, want[c], x, 1e-6*size[c], "column %d", c)
		}
	}
}

// TestKeyScaleOfZero: keys that are all 0 may have the scale 0. Every score is 0 then, and rows are means of the values that they see.
func TestKeyScaleOfZero(t *testing.T) {
	d := decodeDevice(t)
	const keys, dim = 40, 8
	for _, x := range []struct {
		tier    Tier
		decode  int
		queries int
	}{{TierScalar, 0, 13}, {TierScalar, 1, 1}, {TierMatrix, 0, 13}, {TierMatrix, 1, 1}} {
		p := Problem{Batch: 1, Heads: 1, QueryLen: x.queries, KeyLen: keys, HeadDim: dim, DType: F16, KeyType: F8E4M3, ValueType: F8E4M3,
			Causal: CausalBottomRight}
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			plan, err := d.Plan(p, WithTier(x.tier), WithTuning(map[string]int{"decode": x.decode}))
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			p := plan.Problem()
			tensor := func(dtype DType, shape [4]int, values []float32) *Tensor {
				x := mustTensor(t, d, dtype, shape)
				require.NoError(t, x.Upload(bg, values))
				return x
			}
			values := make([]float32, keys*dim)
			for i := range values {
				values[i] = float32(i % 5)
			}
			f := Forward{Q: tensor(F16, p.QShape(), slices.Repeat([]float32{0.5}, x.queries*dim)), K: tensor(F8E4M3, p.KShape(), values),
				V: tensor(F8E4M3, p.VShape(), values), O: mustTensor(t, d, F16, p.OShape()), LSE: mustTensor(t, d, F32, p.LSEShape()),
				KeyScales: tensor(F32, [4]int{1, 1, 1, 1}, []float32{0}), ValueScales: tensor(F32, [4]int{1, 1, 1, 1}, []float32{1})}
			require.NoError(t, plan.Forward(bg, f))
			o, lse := download(t, f.O), download(t, f.LSE)
			for i := range x.queries {
				seen := keys - x.queries + i + 1
				require.InDelta(t, math.Log(float64(seen)), lse[i], 1e-3)
				for c := range dim {
					want := 0.0
					for j := range seen {
						want += float64(values[j*dim+c]) / float64(seen)
					}
					require.InDelta(t, want, o[i*dim+c], 4e-3, "query %d, column %d", i, c)
				}
			}
			require.NoError(t, plan.Close())
		})
	}
}

// TestE5M2Infinities: what no upload makes, infinities and NaNs of e5m2, comes through as such from values that others wrote.
func TestE5M2Infinities(t *testing.T) {
	d := decodeDevice(t)
	const n, dim = 3, 4
	p := Problem{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: n, HeadDim: dim, DType: F32, KeyType: F8E5M2, ValueType: F8E5M2, Scale: 1}
	for _, decode := range []int{0, 1} {
		plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(map[string]int{"decode": decode}))
		k, v := mustTensor(t, d, F8E5M2, p.KShape()), mustTensor(t, d, F8E5M2, p.VShape())
		require.NoError(t, k.UploadBytes(bg, make([]byte, n*dim)))
		require.NoError(t, v.UploadBytes(bg, slices.Repeat([]byte{0x7c, 0xfc, 0x7d, 0x3c}, n)))
		one := mustTensor(t, d, F32, [4]int{1, 1, 1, 1})
		require.NoError(t, one.Upload(bg, []float32{2}))
		f := Forward{Q: mustTensor(t, d, F32, p.QShape()), K: k, V: v, O: mustTensor(t, d, F32, p.OShape()), KeyScales: one,
			ValueScales: one}
		require.NoError(t, f.Q.Upload(bg, make([]float32, dim)))
		require.NoError(t, plan.Forward(bg, f))
		o := download(t, f.O)
		require.True(t, math.IsInf(float64(o[0]), 1) && math.IsInf(float64(o[1]), -1) && math.IsNaN(float64(o[2])), "%v", o)
		require.Equal(t, float32(2), o[3])
	}
}

// TestBlocksInTheMiddleOfWords: blocks of every type are the same numbers where rows begin at whole words, in the middle of one, and, of
// sizes that are not multiples of 4 bytes, in turn.
func TestBlocksInTheMiddleOfWords(t *testing.T) {
	d := decodeDevice(t)
	for _, dtype := range attn.QuantisedTypes() {
		if dtype.Float8() {
			continue
		}
		for _, decode := range []int{0, 1} {
			t.Run(fmt.Sprint(dtype, " decode ", decode), func(t *testing.T) {
				testMiddleOfWords(t, d, DType(dtype), WithTier(TierScalar), WithTuning(map[string]int{"decode": decode}))
			})
		}
	}
}

// TestMatrixBlocksInTheMiddleOfWords is that of matrix_decode, which moves words of rows through shared memory.
func TestMatrixBlocksInTheMiddleOfWords(t *testing.T) {
	d := matrixDecodeDevice(t)
	for _, dtype := range []DType{Q5_1, Q5_0} {
		t.Run(dtype.String(), func(t *testing.T) {
			if dtype == Q5_0 {
				vktest.Long(t, "a type whose blocks are whole words, and the conformance suite")
			}
			vktest.Budget(t)
			testMiddleOfWords(t, d, dtype, WithTier(TierMatrix), WithTuning(map[string]int{"decode": 1, "w": 1, "parts": 1}))
		})
	}
}

func testMiddleOfWords(t *testing.T, d *Device, dtype DType, options ...PlanOption) {
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 1, KeyLen: 37, HeadDim: 64, ValueDim: 32, DType: F16}
	s := newSample(t, p)
	p = s.p
	p.KeyType, p.ValueType = dtype, dtype
	plan, err := d.Plan(p, options...)
	skipUnsupported(t, err)
	defer plan.Close()
	// in a buffer of words that are no numbers, and none behind the last block
	shifted := func(from []float32, shape [4]int, by int) *Tensor {
		raw := make([]byte, by+dtype.Bytes(len(from)))
		for i := range by {
			raw[i] = 0xff
		}
		attn.Encode(attn.DType(dtype), raw[by:], from)
		raw = append(raw, slices.Repeat([]byte{0xff}, -len(raw)&3)...)
		whole := mustTensor(t, d, Int32, [4]int{1, 1, 1, len(raw) / 4})
		require.NoError(t, whole.UploadBytes(bg, raw))
		x, err := whole.View(uint64(by), dtype, shape, [4]int{})
		require.NoError(t, err)
		return x
	}
	oracle := s.in
	copy(oracle.K.Data, stored(dtype, s.k, p.HeadDim))
	copy(oracle.V.Data, stored(dtype, s.v, p.ValueDim))
	want, _, err := ref.Forward(oracle)
	require.NoError(t, err)
	for _, by := range []int{0, 2} {
		f := s.tensors(t, d, plainly(t, d))
		f.K, f.V = shifted(s.k, p.KShape(), by), shifted(s.v, p.VShape(), by)
		require.NoError(t, plan.Forward(bg, f))
		for i, x := range download(t, f.O) {
			require.InDelta(t, want.Data[i], x, 2e-3, "element %d from byte %d", i, by)
		}
	}
}
