package figure

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// by gives a row to another program.
func by(library string, r result.Row) result.Row {
	r.Library = library
	return r
}

// Two programs' standard attention: each figure divides all series by one of them, and says by which.
func TestOneBaselineAFigure(t *testing.T) {
	var rows []result.Row
	for _, n := range []int{128, 256} {
		rows = append(rows, small("standard", n, 8), small("flash2", n, 2), by("torch 2", small("standard", n, 40)),
			by("torch 2", small("fa2", n, 4)))
	}
	figures := Build([]Source{{Label: "x", Device: "GPU", Rows: rows}})
	for _, id := range []string{"speedup-seq", "summary"} {
		ours := Get(figures, id)
		peers := ours.Peer
		require.NotNil(t, peers, id)
		require.Equal(t, id+"-peer", peers.ID)
		require.Contains(t, Files(), peers.ID)
		for _, f := range []struct {
			*Figure
			baseline, named string
			want            map[string]float64
		}{
			{ours, "standard (vkattn)", "× the speed of standard (vkattn)", map[string]float64{"flash2": 4, "standard (torch 2)": 0.2,
				"fa2 (torch 2)": 2}},
			{peers, "standard (torch 2)", "× the speed of standard (torch 2)", map[string]float64{"flash2": 20, "standard": 5,
				"fa2 (torch 2)": 10}},
		} {
			require.Equal(t, f.baseline, f.Baseline)
			require.Contains(t, []string{f.X, f.Y}, f.named, f.ID)
			got := map[string]float64{}
			for _, s := range f.Series {
				got[s.Name] = s.Points[0].Y
			}
			require.Len(t, got, len(f.want), f.ID)
			for name, v := range f.want {
				require.InEpsilon(t, v, got[name], 1e-9, "%s: %s", f.ID, name)
			}
		}
	}

	// One baseline alone makes one view, whoever measured it.
	only := Get(Build([]Source{{Label: "x", Device: "GPU", Rows: []result.Row{small("flash2", 128, 2), small("flash2", 256, 2),
		by("torch 2", small("standard", 128, 40)), by("torch 2", small("standard", 256, 40))}}}), "speedup-seq")
	require.Nil(t, only.Peer)
	require.Equal(t, "speedup-seq", only.ID)
	require.Equal(t, "× the speed of standard (torch 2)", only.Y)
	require.Equal(t, 20.0, only.Series[0].Points[0].Y)
}

// A GPU's file and a CPU driver's have no setting in common: the figure takes that of the file named first, and says who is not in it.
func TestAFileThatIsNotDrawnIsNamed(t *testing.T) {
	gpu := Source{Label: "GPU", Device: "GPU", Rows: []result.Row{}}
	for n := 512; n <= 4096; n *= 2 { // the papers' way, which other figures try last
		r := small("flash2", n, 1)
		r.B = 16384 / n
		gpu.Rows = append(gpu.Rows, r)
	}
	cpu := Source{Label: "CPU", Device: "CPU", Rows: []result.Row{small("flash2", 64, 20), small("flash2", 128, 20),
		small("flash2", 256, 80), small("flash2", 512, 320), small("flash2", 1024, 1300)}}
	for _, order := range [][]Source{{gpu, cpu}, {cpu, gpu}} {
		f := Get(Build(order), "time-seq")
		require.Len(t, f.Series, 1)
		require.Equal(t, "flash2 · "+order[0].Label, f.Series[0].Name)
		require.Equal(t, []string{order[1].Label}, f.Absent)
	}

	// A file without the baseline is named, too, and so is the baseline where its name is long.
	long := Source{Label: "llvmpipe (LLVM 19.1.7, 256 bits)", Device: "llvmpipe",
		Rows: append([]result.Row{small("standard", 128, 9), small("standard", 256, 9)}, cpu.Rows...)}
	for _, id := range []string{"speedup-seq", "summary"} {
		f := Get(Build([]Source{gpu, long}), id)
		require.Equal(t, []string{"GPU"}, f.Absent)
		svg, err := f.SVG()
		require.NoError(t, err)
		require.Contains(t, string(svg), "; baseline: standard (vkattn) · "+long.Label)
	}

	// What all files have goes before what one has more of.
	both := Source{Label: "both", Device: "B", Rows: append([]result.Row{small("flash2", 128, 9), small("flash2", 256, 9)}, gpu.Rows...)}
	f := Get(Build([]Source{both, cpu}), "time-seq")
	require.Len(t, f.Series, 2)
	require.Empty(t, f.Absent)
}

func TestLabelsOfMergedFiles(t *testing.T) {
	require.Equal(t, "a", fileLabel("/x/a.jsonl"))
	require.Equal(t, "a and 2 more", fileLabel("/x/a.jsonl, /x/b.jsonl, /y/c.jsonl"))
}

// Of an even number of rounds the lower one of the middle counts, which was measured; rates go with times.
func TestSettle(t *testing.T) {
	r := small("flash2", 128, 3)
	r.Fwd = result.Pass{Ms: 3, TFLOPS: 10, Rounds: []float64{5, 1}, P20: 0.9, P80: 1.1}
	r.Bwd = result.Pass{Ms: 4, TFLOPS: 7, Rounds: []float64{3, 4, 9}}
	f := &result.File{Rows: []result.Row{r, small("flash2", 256, 2)}}
	got := Settle(f).Rows
	require.Equal(t, 3.0, f.Rows[0].Fwd.Ms, "the file stays as it was read")
	require.Equal(t, 1.0, got[0].Fwd.Ms)
	require.Equal(t, 30.0, got[0].Fwd.TFLOPS)
	require.Equal(t, 4.0, got[0].Bwd.Ms, "the middle one of three")
	require.Equal(t, f.Rows[1].Fwd, got[1].Fwd)
	lo, hi := Span(got[0].Fwd)
	require.Equal(t, []float64{0.9, 5}, []float64{lo, hi})
	share, ok := Disagreement(got[0].Fwd)
	require.True(t, ok)
	require.Equal(t, 4.0, share)
	_, ok = Disagreement(got[1].Fwd)
	require.False(t, ok, "one round")
}
