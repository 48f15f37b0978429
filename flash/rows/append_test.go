package rows

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestAppendPages: rows go to the pages that tables name, of shuffled and of shared pages, from lengths before, at and behind the end of a
// page, by dense and compressed tables; nothing goes to a page that is none of the pool's, behind a table, or anywhere else.
func TestAppendPages(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for n, size := range []int{1, 4, 16, 128} {
		for _, compressed := range []bool{false, true} {
			at := []int{0, 1, size - 1, size, size + 1, 3 * size}
			rows := min(2*size+1, 20)
			var lengths []int
			for _, x := range at {
				lengths = append(lengths, x+rows)
			}
			table, pages := shuffledPages(r, size, 0, lengths...)
			table[1][0] = -1                      // what should go there goes nowhere
			table[5] = table[5][:len(table[5])-1] // too short
			if last := len(table[4]) - 1; last > 0 {
				table[4][last] = pages // just outside
			}
			c := appendCase{AppendProblem: AppendProblem{Batch: 6, KeyHeads: 2, Rows: rows, HeadDim: 5 + n, ValueDim: 3,
				DType: flash.F16, Pages: flash.Pages{Size: size, Count: pages, PerSequence: attn.CeilDiv(3*size+rows, size)}},
				at: at, table: table, layout: n}
			if compressed {
				c.Pages.PerSequence, c.Pages.Indices = 0, 2
				for _, list := range table {
					c.Pages.Indices += len(list)
				}
			}
			t.Run(c.String(), func(t *testing.T) { c.run(t, uint64(n)) })
		}
	}
	t.Run("shared", func(t *testing.T) { // two pages of three entries, that go on in pages of their own
		table, pages := shuffledPages(r, 8, 2, 30, 20, 24)
		c := appendCase{AppendProblem: AppendProblem{Batch: 3, KeyHeads: 3, Rows: 4, HeadDim: 8, DType: flash.BF16,
			Pages: flash.Pages{Size: 8, Count: pages, PerSequence: 4}, Rotary: &Rotary{}}, at: []int{26, 16, 18}, table: table, layout: 1}
		c.run(t, 1)
	})
	t.Run("nonsense", func(t *testing.T) { // numbers at the ends of their range, starts that go back and beyond the table
		c := appendCase{AppendProblem: AppendProblem{Batch: 4, KeyHeads: 1, Rows: 3, HeadDim: 4, DType: flash.F32,
			Pages: flash.Pages{Size: 2, Count: 3, PerSequence: 2}},
			at: []int{math.MaxInt32 - 1, math.MinInt32, -2, 3}, table: [][]int{{0, 1}, {2, 0}, {math.MinInt32, math.MaxInt32}, {1, 2}},
			layout: 0}
		c.run(t, 2)
		d := testDevice(t)
		p := c.AppendProblem
		p.Pages.PerSequence, p.Pages.Indices = 0, 3
		plan, err := PlanAppend(d, p)
		require.NoError(t, err)
		defer plan.Close()
		pool := newBytes(t, d, r, flash.F32, [4]int{3, 1, 2, 4}, 2)
		values := newBytes(t, d, r, flash.F32, [4]int{3, 1, 2, 4}, 1)
		rows := plainly(t, d)(flash.F32, [4]int{4, 1, 3, 4})
		f := Append{K: rows, V: rows, KeyCache: pool.tensor, ValueCache: values.tensor,
			At:         integers(t, d, [4]int{1, 1, 1, 4}, []int{0, 0, 2, 0}),
			PageTable:  integers(t, d, [4]int{1, 1, 1, 3}, []int{0, 1, 2}),
			PageStarts: integers(t, d, [4]int{1, 1, 1, 5}, []int{-3, -1, -2, 3, math.MinInt32})}
		require.NoError(t, plan.Append(t.Context(), f))
		pool.expect(t, "the pool")
		values.expect(t, "the pool")
	})
}

// TestAppendTokens: packed tokens, in any order, go to the entries and positions that they name, those of no entry nowhere, in pages and in
// a cache.
func TestAppendTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for n, p := range []AppendProblem{
		{KeyHeads: 2, HeadDim: 8, DType: flash.F16, Rotary: &Rotary{}, Heads: 4},
		{KeyHeads: 1, HeadDim: 64, ValueDim: 32, DType: flash.F32, KeyType: flash.Q8_0, ValueType: flash.Q4_0,
			Rotary: &Rotary{Columns: 32, Interleaved: true}},
		{KeyHeads: 3, HeadDim: 7, DType: flash.BF16, Rotary: &Rotary{Columns: 4, PerToken: true}, Heads: 3},
		{KeyHeads: 2, HeadDim: 6, DType: flash.F16, KeyType: flash.F8E4M3, ValueType: flash.F8E5M2, Rotary: &Rotary{Table: 30}},
		{KeyHeads: 1, HeadDim: 32, ValueDim: 64, DType: flash.F16, KeyType: flash.Q4_1, ValueType: flash.Q5_0, Rotary: &Rotary{}},
		{KeyHeads: 2, HeadDim: 64, ValueDim: 32, DType: flash.F32, KeyType: flash.Q5_1, ValueType: flash.IQ4_NL, Rotary: &Rotary{}},
	} {
		for _, where := range []flash.Pages{{}, {Size: 4, PerSequence: 9}, {Size: 8, Indices: 20}} {
			c := appendCase{AppendProblem: p, layout: n, inPlace: n == 2}
			c.Batch, c.Pages, c.CacheRows = 3, where, 33
			for b := range c.Batch {
				first := r.IntN(10)
				for i := range []int{9, 1, 20}[b] {
					c.entries, c.at = append(c.entries, b), append(c.at, first+i)
				}
			}
			c.entries = append(c.entries, -1, 3, math.MinInt32, 0, 1, 2)
			c.at = append(c.at, 5, 0, 1, -1, 1000, math.MaxInt32)
			c.Tokens = len(c.at)
			r.Shuffle(c.Tokens, func(i, j int) {
				c.entries[i], c.entries[j] = c.entries[j], c.entries[i]
				c.at[i], c.at[j] = c.at[j], c.at[i]
			})
			if where.Size > 0 {
				c.CacheRows = 0
				c.table, c.Pages.Count = shuffledPages(r, where.Size, 0, 20, 11, 30)
			}
			t.Run(c.String(), func(t *testing.T) { c.run(t, uint64(n)) })
		}
	}
}

// TestAppendCounts: one plan serves entries with a chunk of a prompt, with one token, with none and with more than there are rows.
func TestAppendCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for n, where := range []flash.Pages{{}, {Size: 4, PerSequence: 5}} {
		c := appendCase{AppendProblem: AppendProblem{Batch: 5, KeyHeads: 2, Rows: 6, HeadDim: 32, DType: flash.F16,
			KeyType: flash.Q4_0, Counts: true, Pages: where, CacheRows: 20, Rotary: &Rotary{}, Heads: 2},
			at: []int{0, 5, 13, 2, 3}, counts: []int{6, 1, 0, -4, 100}, layout: n, inPlace: n == 1}
		if where.Size > 0 {
			c.CacheRows = 0
			c.table, c.Pages.Count = shuffledPages(r, 4, 0, 20, 20, 20, 20, 20)
		}
		t.Run(c.String(), func(t *testing.T) { c.run(t, uint64(n)) })
	}
}

// TestAppendTypes: every type of row into every type of cache, keys and values apart, by every kind of rotation, whole and partial, in rows
// whose pairs lie in one block and across blocks, of odd numbers of columns and of more than a workgroup has; queries of all types with
// them.
func TestAppendTypes(t *testing.T) {
	vktest.Long(t, "two types in TestAppendTokens")
	turns := []*Rotary{nil, {}, {Interleaved: true}, {Columns: 32}, {Columns: 24, Interleaved: true}, {Columns: 22, Table: 40},
		{Columns: 30, PerToken: true, Interleaved: true}}
	types := cacheTypes()
	n := 0
	for _, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
		for _, key := range types {
			for i, turn := range turns {
				if n++; testing.Short() && n%3 != 0 {
					continue
				}
				c := appendCase{AppendProblem: AppendProblem{Batch: 2, KeyHeads: 2, Rows: 3, CacheRows: 9, HeadDim: 96, ValueDim: 32,
					DType: dtype, KeyType: key,
					ValueType: types[(n+i)%len(types)], Rotary: turn, Circular: n%3 == 0}, at: []int{4, 7}, layout: n, inPlace: n%2 == 0}
				if turn != nil {
					c.Heads = 1 + n%3
				}
				if attn.DType(key).Block() == 1 { // which take any number of columns
					if c.HeadDim = 83; turn != nil && turn.Columns == 0 {
						c.Rotary = &Rotary{Columns: 82, Interleaved: turn.Interleaved}
					}
				}
				t.Run(c.String(), func(t *testing.T) { c.run(t, uint64(n)) })
			}
		}
	}
	for _, c := range []appendCase{
		{AppendProblem: AppendProblem{HeadDim: 576, ValueDim: 512, DType: flash.F16, Rotary: &Rotary{Columns: 64}}},
		{AppendProblem: AppendProblem{HeadDim: 576, KeysOnly: true, DType: flash.F32, Rotary: &Rotary{}, Heads: 16}},
		{AppendProblem: AppendProblem{HeadDim: 576, ValueDim: 512, DType: flash.F16, KeyType: flash.Q8_0, Rotary: &Rotary{Columns: 64}}},
		// More pairs than are kept.
		{AppendProblem: AppendProblem{HeadDim: 2080, ValueDim: 33, DType: flash.BF16, KeyType: flash.Q4_0, ValueType: flash.F8E4M3,
			Rotary: &Rotary{}}},
		{AppendProblem: AppendProblem{HeadDim: 2083, ValueDim: 1, DType: flash.F16,
			Rotary: &Rotary{Columns: 2082, Interleaved: true}, Heads: 1}},
	} {
		c.Batch, c.KeyHeads, c.Rows, c.CacheRows, c.at = 1, 1, 2, 7, []int{3}
		t.Run(c.String(), func(t *testing.T) { c.run(t, 3) })
	}
}

// TestAppendWide: rows of whole vectors, that lie so that they can be moved many columns at once and that do not, into every type of cache,
// are what others are: heads of one run and several, runs of keys, values and queries in one workgroup, rotations of all columns, of the
// first ones, of neighbours, and of more pairs than are kept.
func TestAppendWide(t *testing.T) {
	vktest.Long(t, "narrow rows in TestAppendTokens")
	turns := []*Rotary{nil, {}, {Columns: 64}, {Columns: 20, Interleaved: true}, {Interleaved: true, PerToken: true}}
	types := cacheTypes()
	n := 0
	for _, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
		for i, key := range types {
			for j, turn := range turns {
				if n++; testing.Short() && n%4 != 0 {
					continue
				}
				c := appendCase{AppendProblem: AppendProblem{Batch: 2, KeyHeads: 1 + n%3, Rows: 3, CacheRows: 9,
					HeadDim:  64 * (1 + (i+j)%3),
					ValueDim: 64 * (1 + n%2), DType: dtype, KeyType: key, ValueType: types[(n+j)%len(types)], Rotary: turn,
					Circular: n%3 == 0},
					at: []int{4, 7}, layout: n, aligned: n%5 != 0, inPlace: n%2 == 0}
				if turn != nil {
					c.Heads = n % 4
				}
				t.Run(c.String(), func(t *testing.T) { c.run(t, uint64(n)) })
			}
		}
	}
	for _, c := range []appendCase{
		{AppendProblem: AppendProblem{HeadDim: 2112, ValueDim: 512, DType: flash.F16, KeyType: flash.F8E4M3,
			Rotary: &Rotary{Columns: 2048}}},
		// Rows of blocks in several workgroups, the last of which is not full.
		{AppendProblem: AppendProblem{HeadDim: 192, ValueDim: 128, DType: flash.F16, KeyType: flash.Q4_0, ValueType: flash.Q8_0,
			Rotary: &Rotary{Columns: 64}}},
		{AppendProblem: AppendProblem{HeadDim: 576, ValueDim: 64, DType: flash.BF16, KeyType: flash.Q8_0, Rotary: &Rotary{Columns: 64}}},
		{AppendProblem: AppendProblem{HeadDim: 192, ValueDim: 128, DType: flash.F16, KeyType: flash.Q5_1, ValueType: flash.Q4_1,
			Rotary: &Rotary{Columns: 64}}},
		{AppendProblem: AppendProblem{HeadDim: 128, ValueDim: 192, DType: flash.F16, KeyType: flash.Q5_0, ValueType: flash.Q5_1,
			Rotary: &Rotary{Columns: 64}}},
	} {
		c.Batch, c.KeyHeads, c.Rows, c.CacheRows, c.at, c.aligned = 1, 17, 2, 7, []int{3}, true
		t.Run(c.String(), func(t *testing.T) { c.run(t, 3) })
	}
}

// TestAppendOddBlocks: rows that begin an odd number of blocks apart, at words, are written where they lie.
func TestAppendOddBlocks(t *testing.T) {
	for _, key := range cacheTypes() {
		c := appendCase{AppendProblem: AppendProblem{Batch: 2, KeyHeads: 2, Rows: 3, CacheRows: 9, HeadDim: 64, ValueDim: 64,
			DType: flash.F16, KeyType: key, ValueType: flash.Q5_1}, at: []int{1, 4}, odd: true}
		t.Run(c.String(), func(t *testing.T) { c.run(t, 8) })
	}
}

// TestAppendFarPositions: rows that stand at positions of all 31 bits are turned as near ones are.
func TestAppendFarPositions(t *testing.T) {
	for _, key := range []flash.DType{0, flash.Q8_0} {
		c := appendCase{AppendProblem: AppendProblem{Batch: 2, KeyHeads: 1, Rows: 3, CacheRows: 8, HeadDim: 64, DType: flash.F32,
			KeyType: key, Heads: 1,
			Rotary: &Rotary{Base: 1e6, Positions: true}}, at: []int{0, 5},
			positions: []int{1<<24 + 1, 1<<24 + 3, 1<<30 + 12345, math.MaxInt32, -(1 << 25) - 1, 16777217 * 3}}
		c.run(t, 5)
	}
}

// TestAppendManyTokens: of more rows than the device needs workgroups to be full, a workgroup has several steps.
func TestAppendManyTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for _, key := range []flash.DType{0, flash.Q8_0, flash.F8E4M3, flash.Q5_1, flash.IQ4_NL} {
		c := appendCase{AppendProblem: AppendProblem{Batch: 2, KeyHeads: 5, Rows: 300, HeadDim: 64, DType: flash.F16, KeyType: key,
			ValueType: key,
			Rotary:    &Rotary{}, Heads: 10, Pages: flash.Pages{Size: 16, PerSequence: 21}}, at: []int{0, 35}, layout: 1}
		c.table, c.Pages.Count = shuffledPages(r, 16, 0, 300, 335)
		t.Run(c.String(), func(t *testing.T) { c.run(t, 6) })
	}
}

// TestAppendGGML: blocks are those that ggml's own library makes, byte for byte.
func TestAppendGGML(t *testing.T) {
	golden, _, err := ref.ReadSafetensors("../../testdata/ggml/blocks.safetensors")
	require.NoError(t, err)
	x, err := golden["x"].Floats()
	require.NoError(t, err)
	d := testDevice(t)
	for _, dim := range []int{64, 32} { // rows that are wide, and that are not
		n := len(x) / dim
		shape := [4]int{1, 1, n, dim}
		rows := plainly(t, d)(flash.F32, shape)
		require.NoError(t, rows.Upload(t.Context(), x))
		for _, types := range [][2]flash.DType{{flash.Q8_0, flash.Q4_0}, {flash.Q4_1, flash.Q5_0}, {flash.Q5_1, flash.Q4_1},
			{flash.IQ4_NL, flash.Q5_1}} {
			plan, err := PlanAppend(d, AppendProblem{Batch: 1, KeyHeads: 1, Rows: n, CacheRows: n, HeadDim: dim, DType: flash.F32,
				KeyType: types[0], ValueType: types[1]})
			require.NoError(t, err)
			f := Append{K: rows, V: rows, KeyCache: plainly(t, d)(types[0], shape), ValueCache: plainly(t, d)(types[1], shape),
				At: integers(t, d, [4]int{1, 1, 1, 1}, []int{0})}
			require.NoError(t, plan.Append(t.Context(), f))
			plan.Close()
			for _, cache := range []*flash.Tensor{f.KeyCache, f.ValueCache} {
				want := golden[cache.DType().String()].Data
				got := make([]byte, len(want))
				require.NoError(t, cache.DownloadBytes(t.Context(), got))
				size := cache.DType().Bytes(32)
				for i := 0; i < len(want); i += size {
					require.Equal(t, want[i:i+size], got[i:i+size], "%v block %d: %v", cache.DType(), i/size, x[i/size*32:i/size*32+32])
				}
			}
		}
	}
}

// orderMatters draws a block whose scale in iq4_nl is another one if its sums go from the last number to the first.
func orderMatters(r *rand.Rand) []float32 {
	x, back := make([]float32, 32), make([]float32, 32)
	var forth, other [18]byte
	for forth[0] == other[0] {
		for i := range x {
			x[i] = float32(r.NormFloat64())
			back[31-i] = x[i]
		}
		attn.Encode(attn.IQ4_NL, forth[:], x)
		attn.Encode(attn.IQ4_NL, other[:], back)
	}
	return x
}

// TestAppendQuantisedExactly: what quantising makes of numbers of all magnitudes, of halves between two steps, of numbers that are too
// large and of the smallest is what the host's arithmetic makes of them, bit by bit.
func TestAppendQuantisedExactly(t *testing.T) {
	d := testDevice(t)
	const rows, dim = 400, 64
	for _, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
		for _, key := range cacheTypes()[1:] {
			t.Run(dtype.String()+" "+key.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(dtype), uint64(key)))
				scale := float32(math.Exp(r.NormFloat64()))
				x := make([]float32, rows*dim)
				for i := range rows {
					size := math.Exp2(float64(r.IntN(60) - 40))
					if dtype != flash.F16 && i%7 == 0 {
						size = math.Exp2(float64(r.IntN(240) - 116)) // what fp16 cannot hold as d, and what is not a denormal fp32
					}
					if dtype == flash.F16 && key == flash.IQ4_NL {
						size = min(size, 256) // whose sums have nothing to say of infinities
					}
					for j := range dim {
						v := r.NormFloat64() * size
						switch {
						case i%5 == 1: // halves of steps of a scale that fp16 has
							v = size * float64(r.IntN(509)-254) / 2
						case i%5 == 2 && j%3 > 0:
							v = 0
						case i%5 == 3 && attn.DType(key).Float8(): // between two neighbours, and near there
							v = float64(scale) * math.Ldexp(float64(2*r.IntN(16)+1), r.IntN(20)-12) *
								(1 + float64(r.IntN(3)-1)*math.Exp2(-23))
						}
						x[i*dim+j] = float32(v)
					}
				}
				if dtype == flash.F32 && key == flash.IQ4_NL {
					for i := range 20 {
						copy(x[i*dim:], orderMatters(r))
					}
				}
				refTypes[dtype].RoundAll(x)
				shape := [4]int{1, 1, rows, dim}
				from := plainly(t, d)(dtype, shape)
				require.NoError(t, from.Upload(t.Context(), x))
				plan, err := PlanAppend(d, AppendProblem{Batch: 1, KeyHeads: 1, Rows: rows, CacheRows: rows, HeadDim: dim, DType: dtype,
					KeyType: key, KeysOnly: true})
				require.NoError(t, err)
				defer plan.Close()
				f := Append{K: from, KeyCache: plainly(t, d)(key, shape), At: integers(t, d, [4]int{1, 1, 1, 1}, []int{0})}
				want := make([]byte, attn.DType(key).Bytes(len(x)))
				if attn.DType(key).Float8() {
					f.KeyScales = plainly(t, d)(flash.F32, [4]int{1, 1, 1, 1})
					require.NoError(t, f.KeyScales.Upload(t.Context(), []float32{scale}))
					for i := range x {
						x[i] /= scale
					}
				}
				attn.Encode(attn.DType(key), want, x)
				require.NoError(t, plan.Append(t.Context(), f))
				got := make([]byte, len(want))
				require.NoError(t, f.KeyCache.DownloadBytes(t.Context(), got))
				size := attn.DType(key).Bytes(32)
				for i := 0; i < len(want); i += size {
					require.Equal(t, want[i:i+size], got[i:i+size], "%v", x[i/size*32:i/size*32+32])
				}
			})
		}
	}
}
