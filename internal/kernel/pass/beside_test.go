package pass

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

func hopper() *kernel.Env { return &kernel.Env{Caps: *kerneltest.Hopper()} }

// bound are the buffers of a stage with what is bound to them.
func bound(s *Stage) (out []string) {
	modes := map[pipeline.Mode]string{pipeline.Unused: " - ", pipeline.Read: " < ", pipeline.Write: " > ", pipeline.ReadWrite: " = "}
	for _, b := range s.Bind {
		out = append(out, strings.ReplaceAll(b.Name+modes[b.Mode]+b.To, " of part ", ""))
	}
	return out
}

// TestMergeStages: nine parts are a chain of three stages, the first two of one pipeline, which take pairs in turn and hand sums on in
// memory; stacked parts are one stage.
func TestMergeStages(t *testing.T) {
	m := kernel.Merge{Parts: 9, Batch: 2, Heads: 3, QueryLen: 5, ValueDim: 16, DType: attn.F16}
	k, err := fitMerge(hopper(), &m)
	require.NoError(t, err)
	p := k.Pass(Variant{})
	require.NoError(t, p.Check())
	require.Equal(t, []Scratch{{sums, 4 * 30 * 16}, {statistics, 16 * 30}}, p.Scratch)
	require.Equal(t, 3, p.Dispatches())
	var again []int
	var all [][]string
	for i := range p.Stages {
		again, all = append(again, p.Stages[i].Again), append(all, bound(&p.Stages[i]))
	}
	require.Equal(t, []int{0, 1, 0}, again)
	require.Equal(t, [][]string{
		{"o0_View1 < o0", "Lse0 < lse0", "o1_View1 < o1", "Lse1 < lse1", "o2_View1 < o2", "Lse2 < lse2", "o3_View1 < o3", "Lse3 < lse3",
			"Sums1 > sums", "Statistics > statistics"},
		{"o0_View1 < o4", "Lse0 < lse4", "o1_View1 < o5", "Lse1 < lse5", "o2_View1 < o6", "Lse2 < lse6", "o3_View1 < o7", "Lse3 < lse7",
			"Sums1 = sums", "Statistics = statistics"},
		{"o0_View1 < o8", "Lse0 < lse8", "oView1 > O", "Lse > LSE", "Sums1 < sums", "Statistics < statistics"}}, all)
	require.Equal(t, uint32(30*16), p.Stages[0].Total)
	require.Equal(t, uint32(30*2), k.Pass(Variant{Aligned: true}).Stages[0].Total, "16 bytes at a time")

	// Tensors where names say: o and lse, then the pairs.
	ready, err := p.resolve()
	require.NoError(t, err)
	operands := make([]*kernel.Operand, 2+2*9)
	for i := range operands {
		operands[i] = &kernel.Operand{Offset: uint32(i), Binding: pipeline.Binding{Buffer: &vk.Buffer{}}}
	}
	at := func(name string) int { return 4 * slices.Index(kernel.PassArgs().Merge.Names, name) }
	var chain []uint32
	for i := range ready.stages {
		s := &ready.stages[i]
		for j, b := range s.binds {
			if to := s.Bind[j].To; strings.Contains(to, "part") {
				require.Equal(t, 2+8*i+j, b.from.at, to)
			}
		}
		var pushes kernel.Pushes
		s.push(&pushes, &tensors{operands: operands})
		word := func(name string) uint32 { return binary.NativeEndian.Uint32(pushes.Bytes()[at(name):]) }
		require.Equal(t, uint32(8*i+2), word("offsets")&0xff)
		chain = append(chain, word("chain")>>16)
		require.Equal(t, uint32(1<<8), word("chain")&0xffff, "offsets of o and lse")
	}
	require.Equal(t, []uint32{0b0010, 0b0111, 0b1001}, chain, "continues, is continued, is odd, writes lse")

	m.Stacked = true
	k, err = fitMerge(hopper(), &m)
	require.NoError(t, err)
	p = k.Pass(Variant{})
	require.NoError(t, p.Check())
	require.Len(t, p.Stages, 1)
	require.Empty(t, p.Scratch)
	_, err = fitMerge(hopper(), &kernel.Merge{Parts: 1, Batch: 1 << 20, Heads: 1 << 12, QueryLen: 1, ValueDim: 1})
	require.ErrorContains(t, err, "elements in the result")
}

// TestAccumulateStage: a copy only writes, sums read what they are added to, and statistics are there where parts are joined.
func TestAccumulateStage(t *testing.T) {
	for rule, want := range map[int][]string{
		kernel.AccumulateCopy: {"xView1 < X", "yView1 > Y"},
		kernel.AccumulateAdd:  {"xView1 < X", "yView1 = Y"},
		kernel.AccumulateJoin: {"xView1 < X", "yView1 = Y", "LseX < XLSE", "LseY < YLSE", "LseOut > LSE"},
	} {
		k, err := fitAccumulate(hopper(), &kernel.Accumulate{Rule: rule, Shape: [4]int{2, 3, 5, 16}, DType: attn.BF16})
		require.NoError(t, err)
		for _, v := range []Variant{{}, {Aligned: true}} {
			p := k.Pass(v)
			require.NoError(t, p.Check())
			require.Equal(t, want, bound(&p.Stages[0]))
			require.Equal(t, kernel.BoolInt(v.Aligned), p.Stages[0].Constants["ALIGNED"])
		}
	}
}

// TestRowStages: what rows on their way are bound with, of each kind, has a name in the module, and nothing else has.
func TestRowStages(t *testing.T) {
	fill := kernel.Rows{Batch: 2, Heads: 2, Rows: 3, Dim: 64, ValueDim: 64, DType: attn.F16, Scattered: true, CacheRows: 9}
	for _, x := range []struct {
		name    string
		change  func(*kernel.Rows)
		inPlace bool
		want    string
	}{
		{"append", func(*kernel.Rows) {}, false, "K_ < K, V_ < V, X_ = X, Y_ = Y, At_ < At"},
		{"rotation", func(r *kernel.Rows) { r.Scattered, r.ValueDim, r.Turn, r.Columns = false, 0, kernel.ByFrequencies, 64 }, false,
			"K_ < K, X_ > X, Frequencies_ < Frequencies"},
		{"rotation in place", func(r *kernel.Rows) { r.Scattered, r.ValueDim, r.Turn, r.Columns = false, 0, kernel.ByTable, 64 }, true,
			"X_ = X, Cos_ < Cos, Sin_ < Sin"},
		{"queries in place", func(r *kernel.Rows) { r.QueryHeads, r.Turn, r.Columns, r.Positions = 4, kernel.ByToken, 64, true }, true,
			"K_ < K, V_ < V, X_ = X, Y_ = Y, At_ < At, Positions_ < Positions, Cos_ < Cos, Sin_ < Sin, Q_ - Q, Z_ = Z"},
		{"quantised pages", func(r *kernel.Rows) {
			r.KeyType, r.ValueType, r.Counts = attn.F8E4M3, attn.Q8_0, true
			r.Pages = attn.Pages{Size: 16, Count: 8, Indices: 5}
		}, false, "K_ < K, V_ < V, X_ = X, Y_ = Y, At_ < At, PageTable_ < Table, PageStarts_ < Starts, Counts_ < Counts, " +
			"KeyScales_ < KeyScales"},
	} {
		r := fill
		x.change(&r)
		k, err := fitRows(hopper(), &r)
		require.NoError(t, err, x.name)
		p := k.Pass(Variant{Accumulate: x.inPlace})
		require.NoError(t, p.Check(), x.name)
		require.Equal(t, x.want, strings.Join(bound(&p.Stages[0]), ", "), x.name)
	}
	var o kernel.RowOperands
	seen := map[*kernel.Operand]bool{}
	for _, x := range o.List() {
		seen[x] = true
	}
	require.Len(t, seen, len(kernel.RowTensors))
}

// TestCacheStepStages: edits, then copies in each buffer of pools.
func TestCacheStepStages(t *testing.T) {
	k := fitCacheStep(hopper(), kernel.CacheStep{Copies: 3, Edits: 200},
		[]kernel.CachePools{{Pools: 2, PageBytes: 32, PoolBytes: 256}, {Pools: 4, PageBytes: 1 << 16, PoolBytes: 1 << 20}})
	p := k.Pass(Variant{})
	require.NoError(t, p.Check())
	require.Equal(t, 3, p.Dispatches())
	require.Equal(t, [][3]uint32{{2, 1, 1}, {1, 2, 3}, {16, 4, 3}}, [][3]uint32{p.Stages[0].Groups, p.Stages[1].Groups, p.Stages[2].Groups})
	require.Equal(t, []string{"Step_ < Step", "Words_ > Words"}, bound(&p.Stages[0]))
	require.Equal(t, []string{"Step_ < Step", "Pools_ = Pools 1"}, bound(&p.Stages[2]))
}

// someMaps is a kernel of maps as the scalar one is, for problems without tables.
func someMaps(t *testing.T, of attn.Problem) *MapProgram {
	of.DType = attn.F16
	p := kernel.MapProblem(kerneltest.Problem(of))
	info, err := shaders.Describe("scalar_map.f16")
	require.NoError(t, err)
	m, err := (&Maps{Label: "scalar_map", Module: "scalar_map.f16", Rows: 64, Groups: 1, Keys: 32, Pace: kernel.ScalarPace, Trusted: true,
		Buffers: Views, Constants: func(p *attn.Problem, v kernel.MapVariant) kernel.Constants {
			c := kernel.MapConstants(p, v)
			for name := range info.Interface.Constants { // those of a tile, which nothing here depends on
				if _, set := c[name]; !set {
					c[name] = 8
				}
			}
			return c
		}}).fit(hopper(), &p)
	require.NoError(t, err)
	return m
}

// TestMapStages: a picture reads q, k and lse and adds to its cells; statistics have distances too, if they are asked for; pieces of cells
// are put together by another kernel.
func TestMapStages(t *testing.T) {
	m := someMaps(t, attn.Problem{QueryLen: 100, KeyLengths: true})
	picture := m.weights(kernel.MapVariant{Largest: true})
	require.NoError(t, picture.Check())
	want := []string{"qView1 < Q", "kView1 < K", "Lse < LSE", "Cells = Cells"}
	require.Equal(t, append(want, "KeyLengths_ < KeyLengths", "More - More"), bound(&picture.Stages[0]))
	require.Equal(t, 1, picture.Stages[0].Constants["LARGEST"])
	statistics := m.weights(kernel.MapVariant{Statistics: true})
	require.NoError(t, statistics.Check())
	require.Equal(t, append(want, "Distances > Distance", "KeyLengths_ < KeyLengths", "More - More"), bound(&statistics.Stages[0]))
	for _, b := range statistics.Stages[0].Bind[3:5] {
		require.True(t, b.Given, "%s: a recording may want the other alone", b.Name)
	}
	ends := m.together(false)
	require.NoError(t, ends.Check())
	require.Equal(t, []string{"Pieces < Pieces", "Cells > Cells"}, bound(&ends.Stages[0]))
	require.False(t, m.proves())

	// One cell for all pairs is cut into pieces until the device is full; a picture of as many cells as queries is not.
	whole := kernel.Map{Batches: 1, Heads: 1, Queries: 4096, Keys: 4096, Rows: 1, Columns: 1}
	c, err := m.cut(&whole)
	require.NoError(t, err)
	require.Greater(t, c.Down*c.Across, 1)
	size, err := m.Pieces(&whole)
	require.NoError(t, err)
	require.Equal(t, uint64(4*c.Down*c.Across), size)
	whole.Rows, whole.Columns, whole.Heads = 4096, 4096, 32
	size, err = m.Pieces(&whole)
	require.NoError(t, err)
	require.Zero(t, size)
}
