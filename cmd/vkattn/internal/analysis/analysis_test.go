package analysis

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/traffic"
)

const synthetic = "../report/testdata/synthetic.jsonl" // nobody measured it

var machine = Machine{Device: "GPU", Peaks: result.Peaks{MatrixTFLOPS: 100, FP32TFLOPS: 10, CopyGBps: 1000}}

func row(impl string) result.Row {
	c := result.Case{Impl: impl, DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 1024, N: 1024, D: 64, Dv: 64}
	return result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Tier: "matrix", Kernel: "k 128x64",
		Fwd: result.Pass{Ms: 0.01, TFLOPS: c.ForwardFLOPs() / 0.01 / 1e9}}
}

// with is a row with a model of its forward pass.
func with(t *testing.T, r result.Row, m traffic.Model) result.Row {
	t.Helper()
	var err error
	r.Fwd.Model, err = modelOf(m)
	require.NoError(t, err)
	return r
}

// FlashAttention on one head of 1024 × 64 in fp16: 4·1024²·64 operations; q, k, v, o of 128 KiB each and lse of 4 KiB at least.
func TestForward(t *testing.T) {
	model := traffic.QueriesOutside{Label: "k", Rows: 128, Keys: 64}
	e, err := Forward(machine, with(t, row("flash2"), model))
	require.NoError(t, err)
	flops, least, moved := 4.0*1024*1024*64, 4.0*131072+4096, 2*131072.0+8*2*131072+4096
	require.Equal(t, flops, e.FLOPs)
	require.Equal(t, least, e.Least)
	require.Equal(t, moved, e.Bytes, "Q and O once, K and V for each of 8 blocks of queries")
	require.InDelta(t, flops/moved, e.Intensity, 1e-9)
	require.InDelta(t, 100, e.Ridge, 1e-9)
	require.Equal(t, "arithmetic", e.Bound)
	require.InDelta(t, 1e3*flops/100e12, e.LeastMs, 1e-12)
	require.InDelta(t, 1e3*flops/100e12, e.NoCacheMs, 1e-12)
	require.InDelta(t, 0.01/e.LeastMs, e.Over, 1e-9)

	// The same on the scalar tier has a tenth of the peak; one query is bound by memory.
	scalar := row("flash2")
	scalar.Tier = "scalar"
	e, err = Forward(machine, with(t, scalar, model))
	require.NoError(t, err)
	require.InDelta(t, 10, e.Ridge, 1e-9)
	decode := row("flash2")
	decode.Nq = 1
	e, err = Forward(machine, decode)
	require.NoError(t, err)
	require.Equal(t, "memory", e.Bound)
	require.InDelta(t, 1e3*(2*131072+256+4)/1e12, e.LeastMs, 1e-9)
	require.Zero(t, e.Bytes)

	// Without a model there are the bytes that were recorded, if any, and operations step by step.
	recorded := row("flash2")
	recorded.Fwd.Bytes = 5e6
	e, err = Forward(machine, recorded)
	require.NoError(t, err)
	require.Equal(t, 5e6, e.Bytes)
	require.Equal(t, flops+5*1024*1024, tune.Total(e.Steps).FLOPs)
	require.Zero(t, tune.Total(e.Steps).Bytes())

	// A quarter of the blocks: what the row's own mask has.
	sparse := with(t, row(result.BlockSparse), model)
	sparse.Density = 0.25
	e, err = Forward(machine, sparse)
	require.NoError(t, err)
	require.Equal(t, flops/4, e.FLOPs)
	require.Equal(t, 2*131072.0+16*2*128*64*2+4096, e.Bytes, "16 of 64 blocks of K and V")
	require.Equal(t, "25 % of blocks", e.Note)

	_, err = Forward(machine, row("other"))
	require.ErrorContains(t, err, `no model of "other"`)
}

func TestBackward(t *testing.T) {
	r := row("flash2")
	r.Bwd = result.Pass{Ms: 0.03, TFLOPS: 1}
	e, err := Backward(machine, r)
	require.NoError(t, err)
	require.Zero(t, e.Bytes)
	require.Equal(t, 2.5*r.ForwardFLOPs(), e.FLOPs)
	require.Equal(t, 8*131072.0+4096, e.Least)
	require.InDelta(t, 0.03/e.LeastMs, e.Over, 1e-9)
}

// TestRowsOfTheirOwnLengths: operations and bytes are those of what batch entries have, not of the longest of them, and of the keys that a
// list names; what a model counts of the longest is not told.
func TestRowsOfTheirOwnLengths(t *testing.T) {
	for _, test := range []struct {
		name    string
		of      func(c *result.Case)
		counted bool
	}{
		{"packed", func(c *result.Case) { c.B, c.Packed = 8, "mixed" }, false},
		{"causal and packed", func(c *result.Case) { c.B, c.Packed, c.Causal = 8, "mixed", true }, false},
		{"used", func(c *result.Case) { c.B, c.Used, c.Nq = 8, "mixed", 4 }, false},
		{"latent", func(c *result.Case) { c.Latent = true }, true},
		{"lists", func(c *result.Case) { c.Listed = 100 }, true},
		{"causal lists", func(c *result.Case) { c.Listed, c.Causal = 600, true }, true},
		{"equal", func(c *result.Case) { c.B, c.Packed = 8, "equal" }, true},
		{"bias", func(c *result.Case) { c.Bias = "full" }, false},
	} {
		r := row("flash2")
		test.of(&r.Case)
		require.NoError(t, r.Validate(), test.name)
		r.Fwd = result.Pass{Ms: 2, TFLOPS: r.ForwardFLOPs() / 2 / 1e9}
		if !test.counted { // an older file has them
			r.Fwd.Bytes, r.Bwd.Bytes = 1e9, 1e9
		}
		r = with(t, r, traffic.QueriesOutside{Rows: 128, Keys: 64})
		e, err := Forward(machine, r)
		require.NoError(t, err)
		require.InEpsilon(t, e.Ms*e.TFLOPS*1e9, e.FLOPs, 1e-9, test.name)
		least, err := r.Least(tune.LeastForwardBytes)
		require.NoError(t, err)
		require.Equal(t, least, e.Least, test.name)
		require.Equal(t, test.counted, e.Bytes > 0 && len(e.Steps) > 0, test.name)
		e, err = Backward(machine, r)
		require.NoError(t, err)
		least, err = r.Least(tune.LeastBackwardBytes)
		require.NoError(t, err)
		require.Equal(t, least, e.Least, test.name)
		require.Zero(t, e.Bytes, test.name)
	}
}

// TestPackedFile: the recorded rows of sequences of several lengths have their own counts, a note, and no steps.
func TestPackedFile(t *testing.T) {
	f, err := result.ReadFile(filepath.Join("..", "..", "..", "..", "testdata", "results", "h200-packed.jsonl"))
	require.NoError(t, err)
	r, err := FromFile(f, 1, func(c result.Case) bool { return c.Packed == "mixed" })
	require.NoError(t, err)
	for _, e := range r.Entries {
		require.InEpsilon(t, e.Ms*e.TFLOPS*1e9, e.FLOPs, 1e-3, e.Name)
		require.Zero(t, e.Bytes, e.Name)
	}
	require.Equal(t, []string{uncounted}, r.Notes)
	require.NotContains(t, r.text(), "\nSteps, ")
}

// TestPassesOfOneCase: passes of a case that were measured one after the other are both analysed, of each pass the later row.
func TestPassesOfOneCase(t *testing.T) {
	first, again, back := row("flash2"), row("flash2"), row("flash2")
	again.Fwd.Ms = 0.02
	back.Fwd, back.Bwd = result.Pass{}, result.Pass{Ms: 0.05, TFLOPS: 1}
	failed := result.Row{Origin: back.Origin, Case: back.Case, Failure: result.Failure{Error: "device lost"}}
	f := &result.File{Path: "x", Headers: []result.Header{{VKAttn: "1"}}, Rows: []result.Row{first, again, back, failed}}
	r, err := FromFile(f, 1, nil)
	require.NoError(t, err)
	require.Len(t, r.Entries, 2)
	require.Equal(t, []string{"forward", "backward"}, []string{r.Entries[0].Pass, r.Entries[1].Pass})
	require.Equal(t, []float64{0.02, 0.05}, []float64{r.Entries[0].Ms, r.Entries[1].Ms})
}

func TestLectureTables(t *testing.T) {
	of := func(m traffic.Model) tune.Model {
		out, err := modelOf(m)
		require.NoError(t, err)
		return out
	}
	tile := traffic.BackwardTile{Rows: 64, Columns: 64}
	models := []Model{forwardModel("flash2", of(traffic.QueriesOutside{Rows: 64, Keys: 64}), flash.Blocks{}, 0),
		forwardModel("standard", of(traffic.Standard{Scores: traffic.Product{Rows: 64, Columns: 64},
			Product: traffic.Product{Rows: 64, Columns: 32}}), flash.Blocks{}, 0),
		backwardModel("flash2", of(traffic.BackwardFused{Keys: tile, Queries: tile}))}
	rows, err := IntensityTable(flash.Problem{Batch: 9, Heads: 9, QueryLen: 1, HeadDim: 64, DType: flash.F16}, models,
		[]int{256, 4096, 16384})
	require.NoError(t, err)
	// K and V are loaded for every 64 queries: 4·64·64 operations on a pair of rows of 2·64·2 bytes, 64 in the limit.
	require.InDelta(t, 64, rows[2].Intensity["flash2"], 1)
	require.Less(t, rows[0].Intensity["flash2"], rows[1].Intensity["flash2"])
	require.Less(t, rows[2].Intensity["standard"], rows[2].Intensity["flash2"])
	// Backward: rows of four tensors, 128 bytes each, for each of two kernels, and lse and δ for one: 10·64 operations on 2·2·128 + 8 bytes
	// a pair of blocks.
	require.InDelta(t, 10*64*64/(4*128.0+8), rows[2].Intensity["flash2 backward"], 1)

	// GPT-3's block: embedding 12,288, 2048 tokens. 24·N·e² + 4·N²·e operations.
	block := BlockTable(12288, false, []int{2048})[0]
	require.Equal(t, 24.0*2048*12288*12288+4.0*2048*2048*12288, block.Forward)
	require.Equal(t, 2*block.Forward, block.Backward)
	require.InDelta(t, 2048.0/(2048+6*12288), block.Share, 1e-12)
	require.Equal(t, block.Attention/2, BlockTable(12288, true, []int{2048})[0].Attention)
}

func TestFromFile(t *testing.T) {
	f, err := result.ReadFile(synthetic)
	require.NoError(t, err)
	r, err := FromFile(f, 0.25, func(c result.Case) bool { return c.N == 2048 && c.B == 16 && c.H == 32 && c.Causal })
	require.NoError(t, err)
	require.Len(t, r.Entries, 10, "five rows, forward and backward")
	measured := map[string]result.Row{}
	for _, row := range f.Rows {
		measured[row.Library+row.Case.String()] = row
	}
	for _, e := range r.Entries {
		want := measured[e.Library+e.Case.String()]
		ms := want.Fwd.Ms
		if e.Pass == "backward" {
			ms = want.Bwd.Ms
		}
		require.Equal(t, ms, e.Ms, "%s %s", e.Name, e.Pass)
		require.InDelta(t, ms/e.LeastMs, e.Over, 1e-9)
		require.Greater(t, e.Over, 1.0)
		require.Equal(t, Ours(e) && e.Pass == "forward", e.Bytes > 0, "only our own forward kernels have models there")
	}
	require.Equal(t, []string{"standard", "flash2", "flash1", "blocksparse"}, r.Models)

	var out bytes.Buffer
	require.NoError(t, r.Write(&out, "table"))
	require.Contains(t, out.String(), "ridge: 150.0 operations a byte")
	require.Contains(t, out.String(), "attention's share")
	out.Reset()
	require.NoError(t, r.Write(&out, "json"))
	var back Result
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Len(t, back.Entries, len(r.Entries))
	require.Equal(t, r.Entries[0].Bytes, back.Entries[0].Bytes)
	require.Error(t, r.Write(&out, "xml"))

	dir := filepath.Join(t.TempDir(), "new")
	require.NoError(t, r.WriteRoofline(dir))
	svg, err := os.ReadFile(filepath.Join(dir, "roofline.svg"))
	require.NoError(t, err)
	for _, text := range []string{"flash2, backward", "copy 4,000 GB/s", "matrix 600 TFLOP/s", "Roofline of Synthetic GPU A"} {
		require.Contains(t, string(svg), text)
	}
	points := r.Roofline().Points
	require.Equal(t, r.Entries[0].TFLOPS, points[0].Y)
	require.Equal(t, r.Entries[0].Ideal, points[0].X)
	require.Equal(t, r.Entries[0].Intensity, points[0].Asked)

	// Rows of an older version: what was recorded, and a note.
	old := *f
	old.Rows = slices.Clone(f.Rows)
	for i := range old.Rows {
		old.Rows[i].Fwd.Model, old.Rows[i].Bwd.Model = tune.Model{}, tune.Model{}
	}
	r, err = FromFile(&old, 0.25, func(c result.Case) bool {
		return c.B == 64 && c.H == 16 && c.N == 1024 && c.D == 64 && !c.Causal && c.Tuning != ""
	})
	require.NoError(t, err)
	for _, e := range r.Entries {
		require.Positive(t, e.Bytes, e.Name)
		require.Zero(t, tune.Total(e.Steps).Bytes(), e.Name)
	}
	require.Empty(t, r.Intensity)
	require.NotEmpty(t, r.Block)
	require.Equal(t,
		[]string{"rows of an older vkattn lack the models of their kernels: bytes by step, and of other lengths, are not known"}, r.Notes)

	_, err = FromFile(f, 0.25, func(result.Case) bool { return false })
	require.ErrorContains(t, err, "no measured row")
	_, err = FromFile(&result.File{Path: "x", Rows: f.Rows}, 0.25, nil)
	require.ErrorContains(t, err, "x: it has no header")
}

func TestRooflineNeedsPeaks(t *testing.T) {
	e, err := Forward(Machine{}, row("flash2"))
	require.NoError(t, err)
	require.Zero(t, e.Ridge)
	r := Result{Entries: []Entry{e}}
	require.ErrorContains(t, r.WriteRoofline(t.TempDir()), "measured peaks")
	require.ErrorContains(t, (&Result{}).WriteRoofline(t.TempDir()), "measured rows")
}

// Of two rounds that disagree the one that was measured undisturbed is analysed, not their mean.
func TestRoundsThatDisagree(t *testing.T) {
	f, err := result.ReadFile(filepath.Join("..", "..", "..", "..", "testdata", "results", "h200-reports.jsonl"))
	require.NoError(t, err)
	r, err := FromFile(f, 1, func(c result.Case) bool {
		return c.Impl == "flash2" && c.B == 16 && c.H == 32 && c.N == 512 && c.D == 64 && c.Causal
	})
	require.NoError(t, err)
	for _, e := range r.Entries {
		if e.Pass == "backward" && Ours(e) {
			require.Equal(t, 0.307392, e.Ms)
			return
		}
	}
	t.Fatal("no backward row")
}
