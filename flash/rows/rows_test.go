package rows

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/ref"
)

// turned is what is right of rows at positions at(b, i), with cos and sin of the angles as fp32 has them.
func turned(t *testing.T, x ref.Tensor, turn Rotary, inverse bool, angle func(b, i, j int) (c, s float64)) ref.Array {
	t.Helper()
	cos, sin := ref.NewTensor(x.B, 1, x.N, turn.Columns/2), ref.NewTensor(x.B, 1, x.N, turn.Columns/2)
	for b := range x.B {
		for i := range x.N {
			for j := range turn.Columns / 2 {
				c, s := angle(b, i, j)
				if inverse {
					s = -s
				}
				cos.Row(b, 0, i)[j], sin.Row(b, 0, i)[j] = float32(c), float32(s)
			}
		}
	}
	y, err := ref.Rotary(x, cos, sin, turn.Interleaved)
	require.NoError(t, err)
	return y
}

// allowed is how far an element of y may be off: roundings of fp32 products, cosines and sines, and of the result.
func allowed(dtype flash.DType, y float64) float64 { return 2e-6 + refTypes[dtype].Ulp(y) }

// put puts rows of y where they belong in a buffer.
func (g *guarded) put(want []float64, off map[int]float64, y ref.Array, dtype flash.DType, columns int, place func(b, i int) (int, bool)) {
	for b := range y.B {
		for h := range y.H {
			for i := range y.N {
				at, ok := place(b, i)
				if !ok {
					continue
				}
				for c, x := range y.Row(b, h, i) {
					to := g.row(b, h, at) + c
					want[to] = x
					if delete(off, to); c < columns {
						off[to] = allowed(dtype, x)
					}
				}
			}
		}
	}
}

// TestPlanCloseBesideUse: a plan that is closed between a call's first look and its recording makes none, which nobody would close.
func TestPlanCloseBesideUse(t *testing.T) {
	d := flashtest.Device(t)
	p, err := PlanRotate(d, RotateProblem{Batch: 1, Heads: 1, Rows: 2, HeadDim: 8, Rotary: Rotary{Columns: 8, Base: 10000}})
	require.NoError(t, err)
	x := flashtest.RowMajor(t, d)(flash.F32, [4]int{1, 1, 2, 8})
	env := within.Env
	defer func() { within.Env = env }()
	within.Env = func(d *flash.Device) (*kernel.Env, error) { // which a call asks after it has found the plan open
		within.Env = env
		require.NoError(t, p.Close())
		return env(d)
	}
	require.ErrorIs(t, p.Rotate(bg, Rotation{X: x}), flash.ErrClosed)
	require.Nil(t, p.kept)
}

// TestRotate: rows of any layout and type are turned as float64 says, by frequencies at positions near and far, tables by position and by
// token, also in place; the rotation back is the adjoint; nothing else is touched.
func TestRotate(t *testing.T) {
	d := testDevice(t)
	for n, c := range []struct {
		turn  Rotary
		dim   int
		first int32
	}{
		{Rotary{}, 8, 0},
		{Rotary{Columns: 6, Interleaved: true}, 9, 131000},
		{Rotary{Base: 500000, Scale: 0.25}, 64, -70},
		{Rotary{Columns: 4, Frequencies: []float64{1, -2.5}, Positions: true}, 7, 0},
		{Rotary{Columns: 4, Table: 30, Interleaved: true, Positions: true}, 5, 0},
		{Rotary{Table: 20}, 16, 17}, // the last positions are beyond the table
		{Rotary{Columns: 2, PerToken: true}, 3, 0},
		{Rotary{PerToken: true, Interleaved: true}, 10, 0},
		{Rotary{Positions: true, Interleaved: true}, 128, 0},
	} {
		for k, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
			for _, inverse := range []bool{false, true} {
				t.Run(fmt.Sprint(n, dtype, inverse), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
					shape := [4]int{1 + n%3, 3, 6, c.dim}
					p := RotateProblem{Batch: shape[0], Heads: 3, Rows: 6, HeadDim: c.dim, DType: dtype, Rotary: c.turn, Inverse: inverse}
					plan, err := PlanRotate(d, p)
					require.NoError(t, err)
					defer plan.Close()
					turn, err := c.turn.check(c.dim)
					require.NoError(t, err)
					x, y := newGuarded(t, d, r, dtype, shape, n%3), newGuarded(t, d, r, dtype, shape, (n+k)%3)
					f := Rotation{X: x.tensor, Y: y.tensor, First: c.first}
					position := func(b, i int) int { return int(c.first) + i }
					if turn.Positions {
						at := newGuarded(t, d, r, flash.Int32, [4]int{1, 1, shape[0], 6}, 0)
						for i := range shape[0] * 6 {
							at.values[at.offset+i] = float32(r.IntN(40)) - 5
						}
						at.values[at.offset] = 1 << 23 // far away
						at.send(t)
						position = func(b, i int) int { return int(at.values[at.offset+6*b+i]) }
						f.Positions, f.First = at.tensor, 99
					}
					angle := func(b, i, j int) (float64, float64) {
						a := float64(position(b, i)) * turn.Frequencies[j]
						return math.Cos(a), math.Sin(a)
					}
					if turn.Table > 0 || turn.PerToken {
						rows := [4]int{1, 1, turn.Table, turn.Columns / 2}
						if turn.PerToken {
							rows = [4]int{shape[0], 1, 6, turn.Columns / 2}
						}
						cos, sin := newGuarded(t, d, r, flash.F32, rows, 1), newGuarded(t, d, r, flash.F32, rows, 0)
						f.Cos, f.Sin = cos.tensor, sin.tensor
						angle = func(b, i, j int) (float64, float64) {
							if !turn.PerToken {
								b, i = 0, min(max(position(b, i), 0), turn.Table-1)
							}
							return float64(cos.values[cos.row(b, 0, i)+j]), float64(sin.values[sin.row(b, 0, i)+j])
						}
					}
					right := turned(t, x.elements(), turn, inverse, angle)
					stays := func(_, i int) (int, bool) { return i, true }
					require.NoError(t, plan.Rotate(t.Context(), f))
					want, off := wide(y.values), map[int]float64{}
					y.put(want, off, right, dtype, turn.Columns, stays)
					y.expect(t, want, off)
					x.expect(t, wide(x.values), nil)

					f.Y = nil // in place
					require.NoError(t, plan.Rotate(t.Context(), f))
					want, off = wide(x.values), map[int]float64{}
					x.put(want, off, right, dtype, turn.Columns, stays)
					x.expect(t, want, off)
				})
			}
		}
	}
}

// TestRotateBackIsTheAdjoint: ⟨R x, y⟩ = ⟨x, Rᵀ y⟩, Rᵀ being the rotation by the negative angle.
func TestRotateBackIsTheAdjoint(t *testing.T) {
	d := testDevice(t)
	r := rand.New(rand.NewPCG(3, 4))
	shape := [4]int{2, 2, 9, 24}
	var in, out [2]*guarded
	for i, inverse := range []bool{false, true} {
		p := RotateProblem{Batch: 2, Heads: 2, Rows: 9, HeadDim: 24, DType: flash.F32, Rotary: Rotary{Columns: 20}, Inverse: inverse}
		plan, err := PlanRotate(d, p)
		require.NoError(t, err)
		defer plan.Close()
		in[i], out[i] = newGuarded(t, d, r, flash.F32, shape, i), newGuarded(t, d, r, flash.F32, shape, 0)
		require.NoError(t, plan.Rotate(t.Context(), Rotation{X: in[i].tensor, Y: out[i].tensor, First: 123}))
		require.NoError(t, out[i].whole.Download(t.Context(), out[i].values))
	}
	dot := func(a, b ref.Tensor) (sum float64) {
		for i, x := range a.Data {
			sum += float64(x) * float64(b.Data[i])
		}
		return sum
	}
	require.InDelta(t, dot(out[0].elements(), in[1].elements()), dot(in[0].elements(), out[1].elements()), 1e-4)
	require.Greater(t, math.Abs(dot(out[0].elements(), in[1].elements())-dot(in[0].elements(), in[1].elements())), 1e-2)
}

// TestAppend: new rows go where each batch entry's position says, turned on the way; those outside a cache go nowhere, those beyond the end
// of a circular one to its beginning; every other byte of the caches stays.
func TestAppend(t *testing.T) {
	d := testDevice(t)
	for n, c := range []struct {
		rows, cache, dim, valueDim int
		at                         [3]int
		circular                   bool
		turn                       *Rotary
	}{
		{2, 10, 8, 8, [3]int{0, 3, 8}, false, nil},
		{1, 7, 5, 3, [3]int{6, 0, 2}, false, &Rotary{Columns: 4}},
		{5, 6, 16, 7, [3]int{-3, 4, 1 << 30}, false, &Rotary{Interleaved: true}}, // in part or wholly outside
		{4, 5, 9, 10, [3]int{3, 0, -7}, true, nil},
		{3, 8, 12, 12, [3]int{7, 6, 100005}, true, &Rotary{Columns: 8, Table: 20}},
		{6, 6, 4, 0, [3]int{1, 2, 5}, true, &Rotary{Positions: true, Scale: 2}},
		{9, 4, 6, 6, [3]int{0, -2, -5}, false, &Rotary{PerToken: true}}, // more than there is room for
	} {
		for k, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
			t.Run(fmt.Sprint(n, dtype), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
				p := AppendProblem{Batch: 3, KeyHeads: 2, Rows: c.rows, CacheRows: c.cache, HeadDim: c.dim, ValueDim: c.valueDim,
					DType: dtype, Circular: c.circular,
					KeysOnly: c.valueDim == 0, Rotary: c.turn}
				plan, err := PlanAppend(d, p)
				require.NoError(t, err)
				defer plan.Close()
				keys := newGuarded(t, d, r, dtype, [4]int{3, 2, c.rows, c.dim}, (n+1)%3)
				cache := newGuarded(t, d, r, dtype, [4]int{3, 2, c.cache, c.dim}, n%3)
				at := newGuarded(t, d, r, flash.Int32, [4]int{1, 1, 1, 3}, 0)
				for b, x := range c.at {
					at.values[at.offset+b] = float32(x)
				}
				at.send(t)
				place := func(b, i int) (int, bool) {
					to := c.at[b] + i
					if c.circular {
						return ((to % c.cache) + c.cache) % c.cache, true
					}
					return to, to >= 0 && to < c.cache
				}
				f := Append{K: keys.tensor, KeyCache: cache.tensor, At: at.tensor}
				columns, right := 0, ref.NewArray(3, 2, c.rows, c.dim)
				copy(right.Data, wide(keys.elements().Data))
				if c.turn != nil {
					turn, err := c.turn.check(c.dim)
					require.NoError(t, err)
					columns = turn.Columns
					position := func(b, i int) int { return c.at[b] + i }
					if turn.Positions {
						given := newGuarded(t, d, r, flash.Int32, [4]int{1, 1, 3, c.rows}, 0)
						for i := range 3 * c.rows {
							given.values[given.offset+i] = float32(r.IntN(90))
						}
						given.send(t)
						f.Positions = given.tensor
						position = func(b, i int) int { return int(given.values[given.offset+b*c.rows+i]) }
					}
					angle := func(b, i, j int) (float64, float64) {
						a := float64(position(b, i)) * turn.Frequencies[j]
						return math.Cos(a), math.Sin(a)
					}
					if turn.Table > 0 || turn.PerToken {
						shape := [4]int{1, 1, turn.Table, columns / 2}
						if turn.PerToken {
							shape = [4]int{3, 1, c.rows, columns / 2}
						}
						cos, sin := newGuarded(t, d, r, flash.F32, shape, 2), newGuarded(t, d, r, flash.F32, shape, 1)
						f.Cos, f.Sin = cos.tensor, sin.tensor
						angle = func(b, i, j int) (float64, float64) {
							if !turn.PerToken {
								b, i = 0, min(max(position(b, i), 0), turn.Table-1)
							}
							return float64(cos.values[cos.row(b, 0, i)+j]), float64(sin.values[sin.row(b, 0, i)+j])
						}
					}
					right = turned(t, keys.elements(), turn, false, angle)
				}
				want, off := wide(cache.values), map[int]float64{}
				cache.put(want, off, right, dtype, columns, place)
				var values, valueCache *guarded
				var wantValues []float64
				if c.valueDim > 0 {
					values = newGuarded(t, d, r, dtype, [4]int{3, 2, c.rows, c.valueDim}, n%3)
					valueCache = newGuarded(t, d, r, dtype, [4]int{3, 2, c.cache, c.valueDim}, (n+2)%3)
					f.V, f.ValueCache = values.tensor, valueCache.tensor
					wantValues = wide(valueCache.values)
					same := ref.NewArray(3, 2, c.rows, c.valueDim)
					copy(same.Data, wide(values.elements().Data))
					valueCache.put(wantValues, map[int]float64{}, same, dtype, 0, place)
				}
				require.NoError(t, plan.Append(t.Context(), f))
				cache.expect(t, want, off)
				if values != nil {
					valueCache.expect(t, wantValues, nil)
				}
			})
		}
	}
}

// TestRowRecordings: recordings of rows run again and again without allocating, and end with their plan.
func TestRowRecordings(t *testing.T) {
	d := testDevice(t)
	turn := Rotary{Positions: true}
	plan, err := PlanAppend(d, AppendProblem{Batch: 1, KeyHeads: 2, Rows: 3, CacheRows: 8, HeadDim: 4, DType: flash.F16, Rotary: &turn})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	rows, cache := [4]int{1, 2, 3, 4}, [4]int{1, 2, 8, 4}
	f := Append{K: newGuarded(t, d, r, flash.F16, rows, 0).tensor, V: newGuarded(t, d, r, flash.F16, rows, 1).tensor,
		KeyCache: newGuarded(t, d, r, flash.F16, cache, 2).tensor, ValueCache: newGuarded(t, d, r, flash.F16, cache, 0).tensor,
		At:        newGuarded(t, d, r, flash.Int32, [4]int{1, 1, 1, 1}, 0).tensor,
		Positions: newGuarded(t, d, r, flash.Int32, [4]int{1, 1, 1, 3}, 0).tensor}
	rec, err := plan.NewRecording()
	require.NoError(t, err)
	requireRefused(t, "Recording", flashtest.Finish(rec.Submit()))
	requireRefused(t, "Recording", rec.Rotate(Rotation{}))
	run := func() {
		require.NoError(t, rec.Append(f))
		require.NoError(t, flashtest.Finish(rec.Submit()))
	}
	run()
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if rec.Append(f) != nil || flashtest.Finish(rec.Submit()) != nil {
			t.Error("a run failed")
		}
	}))
	require.NoError(t, rec.Append(f))
	_, err = rec.Submit()
	require.NoError(t, err)
	require.ErrorIs(t, rec.Append(f), flash.ErrInFlight)
	require.NoError(t, rec.Close())
	require.ErrorIs(t, rec.Append(f), flash.ErrClosed)
	require.NoError(t, plan.Append(t.Context(), f))
	require.NoError(t, plan.Close())
	require.ErrorIs(t, plan.Append(t.Context(), f), flash.ErrClosed)
}

// TestBadRows: what cannot be is refused with the argument's name.
func TestBadRows(t *testing.T) {
	d := testDevice(t)
	for _, c := range []struct {
		argument string
		p        AppendProblem
	}{
		{"AppendProblem.Batch", AppendProblem{KeyHeads: 1, Rows: 1, CacheRows: 1, HeadDim: 2}},
		{"AppendProblem.CacheRows", AppendProblem{Batch: 1, KeyHeads: 1, Rows: 1, HeadDim: 2}},
		{"AppendProblem.Rows", AppendProblem{Batch: 1, KeyHeads: 1, Rows: 3, CacheRows: 2, HeadDim: 2, Circular: true}},
		{"AppendProblem.ValueDim", AppendProblem{Batch: 1, KeyHeads: 1, Rows: 3, CacheRows: 3, HeadDim: 2, ValueDim: 2, KeysOnly: true}},
		{"AppendProblem.ValueDim", AppendProblem{Batch: 1, KeyHeads: 1, Rows: 3, CacheRows: 3, HeadDim: 2, ValueDim: -2}},
		{"AppendProblem.DType", AppendProblem{Batch: 1, KeyHeads: 1, Rows: 3, CacheRows: 3, HeadDim: 2, DType: flash.Int32}},
	} {
		_, err := PlanAppend(d, c.p)
		requireRefused(t, c.argument, err)
	}
	for _, c := range []struct {
		argument string
		turn     Rotary
	}{
		{"Rotary.Columns", Rotary{Columns: 3}}, {"Rotary.Columns", Rotary{Columns: 10}}, {"Rotary.Columns", Rotary{Columns: -2}},
		{"Rotary.Table", Rotary{Table: -1}}, {"Rotary.Table", Rotary{Table: 3, PerToken: true}},
		{"Rotary.Positions", Rotary{PerToken: true, Positions: true}},
		{"Rotary.Frequencies", Rotary{Table: 3, Base: 2}}, {"len(Rotary.Frequencies)", Rotary{Frequencies: []float64{1}}},
		{"Rotary.Frequencies", Rotary{Columns: 2, Frequencies: []float64{math.NaN()}}},
		{"Rotary.Base", Rotary{Columns: 2, Frequencies: []float64{1}, Base: 3}},
		{"Rotary.Base", Rotary{Base: -1}}, {"Rotary.Scale", Rotary{Scale: math.Inf(1)}},
	} {
		_, err := PlanRotate(d, RotateProblem{Batch: 1, Heads: 1, Rows: 1, HeadDim: 8, Rotary: c.turn})
		requireRefused(t, c.argument, err)
	}
	plan, err := PlanRotate(d, RotateProblem{Batch: 1, Heads: 1, Rows: 2, HeadDim: 8, DType: flash.F16, Rotary: Rotary{Table: 5}})
	require.NoError(t, err)
	defer plan.Close()
	r := rand.New(rand.NewPCG(1, 1))
	x, table := newGuarded(t, d, r, flash.F16, [4]int{1, 1, 2, 8}, 0).tensor, newGuarded(t, d, r, flash.F32, [4]int{1, 1, 5, 4}, 0).tensor
	good := Rotation{X: x, Cos: table, Sin: table}
	require.NoError(t, plan.Rotate(t.Context(), good))
	for argument, spoil := range map[string]func(*Rotation){
		"Rotation.X":         func(f *Rotation) { f.X = table },
		"Rotation.Y":         func(f *Rotation) { f.Y = x },
		"Rotation.Cos":       func(f *Rotation) { f.Cos = nil },
		"Rotation.Sin":       func(f *Rotation) { f.Sin = x },
		"Rotation.Positions": func(f *Rotation) { f.Positions = table },
	} {
		f := good
		spoil(&f)
		requireRefused(t, argument, plan.Rotate(t.Context(), f))
	}
	var none *Plan
	requireRefused(t, "Plan", none.Rotate(t.Context(), good))
	requireRefused(t, "Recording", plan.Append(t.Context(), Append{}))
}
