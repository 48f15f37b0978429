package flash

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/pipeline"
)

// countedTable is the table of a kernel's blocks in a recording's workspace, and what the test knows of the kernel.
type countedTable struct {
	blocks kernel.RowBlocks // how it cuts rows
	groups int              // workgroups of a block: heads and parts
	at     pipeline.Binding
}

// check says that the table has counted the workgroups that sequences of these lengths have, those that indirect dispatches start: a table
// has room for Most blocks, and behind it the workgroups of each dispatch.
func (c *countedTable) check(t *testing.T, d *Device, p Problem, queries, keys []int) {
	t.Helper()
	data := make([]byte, c.at.Size)
	require.NoError(t, d.env.Ctx.Download(t.Context(), c.at, data))
	word := func(i int) int { return int(binary.NativeEndian.Uint32(data[4*i:])) }
	blocks, lens := 0, queries
	if c.blocks.Keys {
		lens = keys
	}
	for _, n := range lens {
		blocks += attn.CeilDiv(n*max(c.blocks.Members, 1), c.blocks.Rows)
	}
	require.Equal(t, blocks, word(0), "blocks of %v", lens)
	counts := 8 + 8*(len(lens)+1) + 2*int(c.blocks.Most(attnOf(p)))
	require.Less(t, counts, len(data)/4, "nothing is counted")
	const most = 65535 // of a dimension
	started, spare := 0, 0
	for at := counts; at < len(data)/4; at += 3 {
		x, y, z := word(at), word(at+1), word(at+2)
		require.True(t, x <= most && y <= most && z == 1, "%d %d %d", x, y, z)
		started += x * y
		spare += max(y, 1) - 1
	}
	if n := blocks * c.groups; n > 0 && len(data)/4 == counts+3 { // split as the host does it
		g, err := kernel.NewGrid(uint64(n), 0)
		require.NoError(t, err)
		require.Equal(t, g.Size(0), [3]uint32{uint32(word(counts)), uint32(word(counts + 1)), uint32(word(counts + 2))})
	}
	require.GreaterOrEqual(t, started, blocks*c.groups)
	require.LessOrEqual(t, started, blocks*c.groups+spare, "workgroups of %v, cut into blocks of %d", lens, c.blocks.Rows)
}

// bits are a tensor's values, NaN among them.
func (m packedTensors) bits(x *Tensor) []uint32 {
	var out []uint32
	for _, v := range m.values(x) {
		out = append(out, math.Float32bits(v))
	}
	return out
}

// TestPackedIndirect: of packed sequences a kernel starts the workgroups that there are blocks for and no others, whatever is packed into
// the rows of one recording, and gives bit for bit what it gives where the host dispatches as many as there may be.
func TestPackedIndirect(t *testing.T) {
	vktest.Long(t, "packed sequences of the conformance suite")
	long := Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: 2000, KeyLen: 150, HeadDim: 8, DType: F16, Causal: CausalBottomRight,
		Packed: Packed{2200, 400}}
	few := Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: 3, KeyLen: 150, HeadDim: 8, DType: F16, Packed: Packed{20, 400}}
	some := Problem{Batch: 5, Heads: 2, KeyHeads: 1, QueryLen: 60, KeyLen: 150, HeadDim: 8, DType: F16, Packed: Packed{300, 400}}
	for _, x := range []struct {
		name    string
		p       Problem
		tier    Tier
		tuning  map[string]int
		queries []int // of the first run
		long    string
	}{
		{"scalar", long, TierScalar, map[string]int{"decode": 0, "br": 32, "bc": 32, "parts": 1}, []int{2000, 0, 1, 33, 64}, ""},
		{"scalar, keys in parts", some, TierScalar, map[string]int{"decode": 0, "br": 16, "bc": 16, "parts": 3},
			[]int{60, 0, 1, 33, 16}, ""},
		{"scalar, several dispatches", some, TierScalar, map[string]int{"decode": 0, "br": 16, "bc": 16, "parts": 3, "max_groups": 7},
			[]int{60, 0, 1, 33, 16}, ""},
		{"scalar, few rows", few, TierScalar, map[string]int{"decode": 1, "rows": 4, "parts": 2}, []int{3, 0, 1, 2, 3}, ""},
		{"matrix", some, TierMatrix, map[string]int{"decode": 0, "w": 2, "rm": 1, "pack": 0, "parts": 1}, []int{60, 0, 1, 33, 16}, ""},
		{"matrix, packed heads, keys in parts", some, TierMatrix, map[string]int{"decode": 0, "w": 2, "rm": 1, "pack": 1, "parts": 2,
			"max_groups": 5}, []int{60, 0, 1, 33, 16}, ""},
		{"matrix, few rows", few, TierMatrix, map[string]int{"decode": 1, "parts": 2}, []int{3, 0, 1, 2, 3}, "few rows on scalar kernels"},
	} {
		t.Run(x.name, func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			d := testDevice(t)
			if x.tier == TierMatrix {
				d = matrixDevice(t)
			}
			m, p := newPackedTensors(t, d), x.p
			f := m.forward(p)
			f.QueryStarts, f.KeyStarts = m.ints(make([]int, p.Batch+1)...), m.ints(make([]int, p.Batch+1)...)
			poison := m.values(f.O)
			var recordings [2]*Recording
			var table countedTable
			for indirect := range recordings {
				tuning := maps.Clone(x.tuning)
				tuning[kernel.IndirectParameter] = indirect
				if x.tier == TierMatrix {
					tuning = forwardTile(t, d, Flash, p, tuning)
				}
				plan, err := d.Plan(p, WithTier(x.tier), WithTuning(tuning))
				skipUnsupported(t, err)
				defer plan.Close()
				rec, err := plan.NewRecording(WithTimestamps())
				require.NoError(t, err)
				defer rec.Close()
				require.NoError(t, rec.Forward(f))
				recordings[indirect] = rec
				cut := max(x.tuning["max_groups"], 0)
				parts := max(x.tuning["parts"], 1)
				table = countedTable{groups: p.Heads * parts, at: rec.writer.Scratch[len(rec.writer.Scratch)-1]}
				tile := constantsOf(plan)
				table.blocks = kernel.RowBlocks{Rows: max(tile["BR"], tile["ROWS"])}
				if tile["ROWS"] > 0 || tile["PACK"] > 0 {
					table.blocks.Members, table.groups = p.Heads/p.KeyHeads, p.KeyHeads*parts
				}
				most, dispatches := int(table.blocks.Most(attnOf(p)))*table.groups, 1
				if cut > 0 {
					dispatches = attn.CeilDiv(most, cut)
				}
				require.Equal(t, indirect*dispatches, rec.rec.Indirect())
			}
			for _, lens := range [][2][]int{
				{x.queries, {50, 83, 9, 64, 1}},
				{{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
				{{0, 0, 1, 0, 0}, {0, 150, 0, 0, 1}},
				{{3, 3, 3, 3, 3}, {0, 10, 20, 30, 40}},
			} {
				for i, to := range []*Tensor{f.QueryStarts, f.KeyStarts} {
					starts := make([]float32, p.Batch+1)
					for b, n := range lens[i] {
						starts[b+1] = starts[b] + float32(n)
					}
					require.NoError(t, to.Upload(t.Context(), starts))
				}
				var o, lse [2][]uint32
				for indirect, rec := range recordings {
					require.NoError(t, f.O.Upload(t.Context(), poison))
					require.NoError(t, f.LSE.Upload(t.Context(), poison[:f.LSE.Elements()]))
					pending, err := rec.Submit()
					require.NoError(t, err)
					require.NoError(t, pending.Wait(t.Context()))
					o[indirect], lse[indirect] = m.bits(f.O), m.bits(f.LSE)
				}
				require.Equal(t, o[0], o[1], "o of %v", lens)
				require.Equal(t, lse[0], lse[1], "lse of %v", lens)
				table.check(t, d, p, lens[0], lens[1])
			}
		})
	}
}

// TestPackedIndirectInRows: more workgroups than one dimension of a dispatch can have are counted in as many rows as there must be.
func TestPackedIndirectInRows(t *testing.T) {
	vktest.Long(t, "dispatches of one row in TestPackedIndirect")
	d := testDevice(t)
	m := newPackedTensors(t, d)
	p := Problem{Batch: 2, Heads: 3, QueryLen: 100_000, KeyLen: 2, HeadDim: 8, DType: F16, Packed: Packed{200_000, 4}}
	f := m.forward(p)
	poison := m.values(f.O)
	f.KeyStarts = m.ints(0, 2, 3)
	var got [2][]uint32
	for _, n := range []int{100_000, 88_009, 11} { // 75,000 workgroups, 70,503, which two rows do not divide, and 37,506
		f.QueryStarts = m.ints(1, 1+100_000, 1+100_000+n-1)
		for indirect := range got {
			tuning := map[string]int{"decode": 0, "br": 8, "bc": 16, "mr": 1, "mc": 4, "parts": 1, "indirect": indirect}
			plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(tuning))
			defer plan.Close()
			rec, err := plan.NewRecording()
			require.NoError(t, err)
			defer rec.Close()
			require.NoError(t, f.O.Upload(t.Context(), poison))
			require.NoError(t, rec.Forward(f))
			pending, err := rec.Submit()
			require.NoError(t, err)
			require.NoError(t, pending.Wait(t.Context()))
			if got[indirect] = m.bits(f.O); indirect == 1 {
				c := countedTable{kernel.RowBlocks{Rows: 8}, p.Heads, rec.writer.Scratch[0]}
				c.check(t, d, p, []int{100_000, n - 1}, nil)
			}
		}
		require.Equal(t, got[0], got[1])
	}
}

// TestPackedIndirectBackward is the same of the backward pass: its kernel of keys, that of queries and that of gradients with respect to
// captured tensors.
func TestPackedIndirectBackward(t *testing.T) {
	vktest.Long(t, "packed sequences of the conformance suite")
	for _, tier := range []Tier{TierScalar, TierMatrix} {
		t.Run(string(tier), func(t *testing.T) {
			vktest.Budget(t)
			d := testDevice(t)
			if tier == TierMatrix {
				d = matrixDevice(t)
			}
			m := newPackedTensors(t, d)
			p := Problem{Batch: 4, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 90, HeadDim: 8, DType: F16, Causal: CausalBottomRight,
				Packed: Packed{250, 300}}
			if tier == TierScalar {
				p.ScoreFunction = score.RelativeBias(score.Capture("buckets", 8, 4), score.T5Bucket(true, 8, 40))
			}
			f := m.forward(p)
			f.QueryStarts, f.KeyStarts = m.ints(0, 0, 70, 75, 75), m.ints(0, 40, 130, 130, 131)
			queries, keys := []int{0, 70, 5, 0}, []int{40, 90, 0, 1}
			b := m.backward(p, f)
			outputs := []*Tensor{b.DQ, b.DK, b.DV}
			if tier == TierScalar {
				f.Captured[0] = m.input(F32, [4]int{1, 1, 8, 4})
				b.Captured = f.Captured
				b.DCaptured[0] = m.output(F32, [4]int{1, 1, 8, 4})
				outputs = append(outputs, b.DCaptured[0])
			}
			var got [2][][]uint32
			for indirect := range got {
				plan := planGradients(t, d, p, tier, WithBackwardTuning(map[string]int{"kv_indirect": indirect, "q_indirect": indirect}))
				defer plan.Close()
				require.NoError(t, plan.Forward(t.Context(), f))
				for _, x := range outputs {
					nan := make([]float32, x.Elements())
					for i := range nan {
						nan[i] = float32(math.NaN())
					}
					require.NoError(t, x.Upload(t.Context(), nan))
				}
				rec, err := plan.NewRecording(ForBackward())
				if errors.Is(err, ErrUnsupported) {
					require.NotContains(t, err.Error(), "self-check failed")
					t.Skip(err)
				}
				require.NoError(t, err)
				defer rec.Close()
				require.NoError(t, rec.Backward(b))
				pending, err := rec.Submit()
				require.NoError(t, err)
				require.NoError(t, pending.Wait(t.Context()))
				for _, x := range outputs {
					got[indirect] = append(got[indirect], m.bits(x))
				}
				if indirect == 0 {
					require.Zero(t, rec.rec.Indirect())
					continue
				}
				program := plan.gradient.is.program
				if s, ok := program.(*scoreGradients); ok {
					program = s.BackwardProgram
					rows := s.anyCaptured().Passes(pass.Variant{}).Stages[1].Constants["BR"]
					last := countedTable{kernel.RowBlocks{Rows: rows}, p.Heads, rec.writer.Scratch[len(rec.writer.Scratch)-1]}
					last.check(t, d, p, queries, keys)
				}
				stages := program.(*pass.Backward).Passes(pass.Variant{}).Stages // two tables and the row term before them
				kv := kernel.RowBlocks{Keys: true, Rows: stages[3].Constants["BR"]}
				q := kernel.RowBlocks{Rows: stages[len(stages)-1].Constants["BR"]}
				for i, c := range []countedTable{{kv, p.KeyHeads, rec.writer.Scratch[1]}, {q, p.Heads, rec.writer.Scratch[2]}} {
					require.Positive(t, c.blocks.Rows, "table %d", i)
					c.check(t, d, p, queries, keys)
				}
				require.GreaterOrEqual(t, rec.rec.Indirect(), 2+2*len(outputs[3:]), "those by captured tensors twice each")
			}
			for i := range outputs {
				require.Equal(t, got[0][i], got[1][i], "output %d", i)
			}
		})
	}
}

// TestPackedDirect: nothing is counted by default, whatever is packed, and what the caller insists on is counted, with one sequence too.
func TestPackedDirect(t *testing.T) {
	d := testDevice(t)
	m := newPackedTensors(t, d)
	one := Problem{Batch: 1, Heads: 2, QueryLen: 100, KeyLen: 50, HeadDim: 8, DType: F32, Packed: Packed{100, 50}}
	alone := Problem{Batch: 3, Heads: 2, QueryLen: 40, KeyLen: 50, HeadDim: 8, DType: F32, Packed: Packed{100, 0}}
	many := Problem{Batch: 3, Heads: 2, QueryLen: 40, KeyLen: 50, HeadDim: 8, DType: F32, Packed: Packed{100, 150}}
	for _, x := range []struct {
		name string
		p    Problem
		opts []PlanOption
		want [2]int // indirect dispatches of the passes
	}{
		{"one sequence", one, nil, [2]int{0, 0}},
		{"one sequence, as asked", one, []PlanOption{WithTuning(map[string]int{"indirect": 1}),
			WithBackwardTuning(map[string]int{"kv_indirect": 1})}, [2]int{1, 1}},
		{"keys are a batch", alone, nil, [2]int{0, 0}},
		{"sequences", many, nil, [2]int{0, 0}},
		{"sequences, as asked", many, []PlanOption{WithTuning(map[string]int{"indirect": 1}),
			WithBackwardTuning(map[string]int{"kv_indirect": 1, "q_indirect": 1})}, [2]int{1, 2}},
		{"queries, as asked", many, []PlanOption{WithTuning(map[string]int{"indirect": 0}),
			WithBackwardTuning(map[string]int{"q_indirect": 1})}, [2]int{0, 1}},
	} {
		t.Run(x.name, func(t *testing.T) {
			plan := mustPlan(t, d, x.p, append(x.opts, WithTier(TierScalar))...)
			defer plan.Close()
			f := m.forward(x.p)
			starts := make([]int, x.p.Batch+1)
			f.QueryStarts = m.ints(starts...)
			if x.p.Packed.Keys > 0 {
				f.KeyStarts = m.ints(starts...)
			}
			forward, err := plan.NewRecording()
			require.NoError(t, err)
			defer forward.Close()
			backward, err := plan.NewRecording(ForBackward())
			require.NoError(t, err)
			defer backward.Close()
			require.NoError(t, forward.Forward(f))
			require.NoError(t, backward.Backward(m.backward(x.p, f)))
			require.Equal(t, x.want, [2]int{forward.rec.Indirect(), backward.rec.Indirect()})
		})
	}
	_, err := d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 8, DType: F32}, WithTuning(map[string]int{"indirect": 2}))
	require.ErrorContains(t, err, "WithTuning[indirect] is 2: must be 0 or 1")
	dense := Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 8, DType: F32}
	for _, few := range []int{0, 1} {
		_, err = d.Plan(dense, WithTuning(map[string]int{"decode": few, "indirect": 1}))
		require.ErrorContains(t, err, "WithTuning[indirect] is 1: counts the workgroups of packed sequences: it must be 0 where "+
			"Problem.Packed is zero")
	}
	for _, name := range []string{"kv_indirect", "q_indirect"} {
		plan := mustPlan(t, d, dense, WithTier(TierScalar), WithBackwardTuning(map[string]int{name: 1}))
		_, err = plan.BackwardInfo()
		require.ErrorContains(t, err, "WithBackwardTuning["+name+"] is 1: counts the workgroups")
		require.NoError(t, plan.Close())
	}
}
