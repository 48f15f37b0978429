package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// rawLines are the rows of a file as they stand in it, read without the code under test.
func rawLines(t *testing.T, name string) (out []map[string]any) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var r map[string]any
		require.NoError(t, json.Unmarshal(in.Bytes(), &r))
		if r["impl"] != nil {
			out = append(out, r)
		}
	}
	require.NoError(t, in.Err())
	return out
}

func sectionsOf(t *testing.T, f *result.File) map[string]Section {
	t.Helper()
	p, err := NewPage([]*result.File{f}, nil)
	require.NoError(t, err)
	out := map[string]Section{}
	for _, s := range p.Runs[0].sections() {
		out[s.ID] = s
	}
	return out
}

func parsed(t *testing.T, cell string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64)
	require.NoError(t, err)
	return v
}

// Every number of the table of tiles is one of the file, or the ratio of two.
func TestTilesAreThoseOfTheFile(t *testing.T) {
	s := sectionsOf(t, synthetic(t, "synthetic.jsonl")[0])["block-size"]
	tiles, own := map[string]map[string]any{}, map[string]any{}
	for _, r := range rawLines(t, "synthetic.jsonl") {
		switch {
		case r["tuning"] != nil:
			tiles[r["tuning"].(string)] = r
		case r["impl"] == "flash2" && r["B"] == 64.0 && r["N"] == 1024.0 && r["H"] == 16.0 && r["causal"] == false && r["dropout"] == nil:
			own = r
		}
	}
	require.Len(t, tiles, 12)
	require.Len(t, s.Table.Rows, 13)
	column := map[string]int{}
	for i, h := range s.Table.Header {
		column[h] = i
	}
	for i, row := range s.Table.Rows {
		require.Len(t, row, len(s.Table.Header))
		r := tiles[row[column["tuning"]]]
		if i == 0 {
			require.Equal(t, "the library's choice", row[column["tuning"]])
			r = own
		}
		require.NotNil(t, r, row)
		if r["error"] != nil {
			require.Equal(t, "unsupported", row[column["forward, ms"]])
			require.Empty(t, row[column["GB asked for"]])
			continue
		}
		require.Equal(t, r["kernel"], row[column["kernel"]])
		require.InEpsilon(t, r["fwd_ms"], parsed(t, row[column["forward, ms"]]), 5e-4)
		require.InEpsilon(t, r["fwd_tflops"], parsed(t, row[column["TFLOP/s"]]), 5e-4)
		require.InEpsilon(t, r["fwd_bytes"].(float64)/1e9, parsed(t, row[column["GB asked for"]]), 5e-4)
		require.InDelta(t, r["fwd_ms"].(float64)/own["fwd_ms"].(float64), parsed(t, row[column["time / the library's choice's"]]), 5e-4)
	}
}

// Every number of the table of dropout is one of the file, or the ratio of two.
func TestDropoutIsThatOfTheFile(t *testing.T) {
	s := sectionsOf(t, synthetic(t, "synthetic.jsonl")[0])["dropout"]
	rows := map[string]map[string]any{}
	key := func(impl, causal, dropout any) string { return fmt.Sprint(impl, causal, dropout) }
	for _, r := range rawLines(t, "synthetic.jsonl") {
		if r["B"] == 64.0 && r["H"] == 16.0 && r["tuning"] == nil {
			dropout := r["dropout"]
			if dropout == nil {
				dropout = 0.0
			}
			rows[key(r["impl"], r["causal"], dropout)] = r
		}
	}
	require.Len(t, rows, 2*2*2)
	require.Len(t, s.Table.Rows, 2*2*2, "implementations, masks, passes")
	for _, row := range s.Table.Rows {
		impl, _, _ := strings.Cut(row[0], " ")
		causal, pass := row[2] == "yes", map[string]string{"forward": "fwd_ms", "backward": "bwd_ms"}[row[4]]
		without, with := rows[key(impl, causal, 0.0)][pass], rows[key(impl, causal, parsed(t, row[3]))][pass]
		require.InEpsilon(t, without, parsed(t, row[5]), 5e-4, row)
		require.InEpsilon(t, with, parsed(t, row[6]), 5e-4, row)
		require.InDelta(t, with.(float64)/without.(float64), parsed(t, row[7]), 5e-4)
	}
}

func TestSectionsOnThePage(t *testing.T) {
	p, err := NewPage(synthetic(t, "synthetic.jsonl", "synthetic_other.jsonl"), nil)
	require.NoError(t, err)
	html, err := p.HTML()
	require.NoError(t, err)
	for _, text := range []string{string(html), string(p.Markdown())} {
		require.Equal(t, 1, strings.Count(text, "Tiles of flash: time and bytes: Synthetic GPU A"))
		require.Equal(t, 1, strings.Count(text, "Dropout and masking: what they cost: Synthetic GPU A"))
		require.Contains(t, text, "bc=32,br=128")
	}
	// The other file has no such rows, and no empty table.
	require.Empty(t, p.Runs[1].sections())

	// A pass that failed with dropout says so; a row without its twin is left out.
	c := result.Case{Impl: "flash2", DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 64, N: 64, D: 64, Dv: 64}
	plain := result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Fwd: result.Pass{Ms: 1}, Bwd: result.Pass{Ms: 2}}
	dropped := result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Fwd: result.Pass{Ms: 1.5},
		BwdFailure: result.Failure{Error: "no", Reason: result.ReasonUnsupported}}
	dropped.Dropout = 0.1
	lone := dropped
	lone.N = 128
	s := sectionsOf(t, &result.File{Rows: []result.Row{plain, dropped, lone}})["dropout"]
	require.Equal(t, [][]string{
		{"flash2", "float16 B1 H1 N64 D64", "no", "0.1", "forward", "1", "1.5", "1.500"},
		{"flash2", "float16 B1 H1 N64 D64", "no", "0.1", "backward", "2", "unsupported", ""},
	}, s.Table.Rows)
}

// A file that was added to: each case stands in the page once, with the passes of all its rows.
func TestRowsOfSeveralRunsCompleteOneAnother(t *testing.T) {
	c := result.Case{Impl: "flash2", DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 64, N: 64, D: 64, Dv: 64}
	row := func(fwd, bwd float64, err string) result.Row {
		return result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Fwd: result.Pass{Ms: fwd}, Bwd: result.Pass{Ms: bwd},
			Failure: result.Failure{Error: err}}
	}
	for _, test := range []struct {
		rows     []result.Row
		fwd, bwd float64
	}{
		{[]result.Row{row(1, 0, ""), row(0, 3, "")}, 1, 3},
		{[]result.Row{row(1, 2, ""), row(0, 3, "")}, 1, 3},
		{[]result.Row{row(1, 2, ""), row(4, 0, "")}, 4, 2},
		{[]result.Row{row(1, 2, ""), row(0, 0, "no memory")}, 1, 2},
		{[]result.Row{row(0, 0, "no memory"), row(1, 2, "")}, 1, 2},
	} {
		p, err := NewPage([]*result.File{{Rows: test.rows}}, nil)
		require.NoError(t, err)
		got := p.Runs[0].Results.Rows
		require.Len(t, got, 1)
		require.Equal(t, [2]float64{test.fwd, test.bwd}, [2]float64{got[0].Fwd.Ms, got[0].Bwd.Ms})
		require.Empty(t, got[0].Error)
	}
}

// TestSparsitySection: every number is one of the rows, or a ratio of two; a row without figures says why.
func TestSparsitySection(t *testing.T) {
	c := result.Case{Impl: "flash2", DType: "float16", B: 1, H: 16, Hkv: 16, Nq: 4096, N: 4096, D: 64, Dv: 64}
	rows := []result.Row{{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Fwd: result.Pass{Ms: 8, TFLOPS: 100}}}
	quarter := result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c, Kernel: "matrix_forward_blocks 128x64",
		Fwd: result.Pass{Ms: 2.5, P20: 2.4, P80: 2.6, TFLOPS: 80}}
	quarter.Impl, quarter.Density = "blocksparse", 0.25
	rows = append(rows, quarter)
	failed := result.Row{Origin: result.Origin{Library: "vkattn 1"}, Case: c,
		Failure: result.Failure{Error: "no", Reason: result.ReasonUnsupported}}
	failed.Impl, failed.Density = "blocksparse", 0.05
	s := sectionsOf(t, &result.File{Path: "a", Headers: []result.Header{{}}, Rows: append(rows, failed)})["block-sparsity"]
	shape := c.Shape().String()
	require.Equal(t, [][]string{
		{shape, "25 %", "matrix_forward_blocks 128x64", "2.5", "2.4 to 2.6", "80", "0.312", "1.250"},
		{shape, "5 %", "", result.ReasonUnsupported.Word(), "", "", "", ""},
	}, s.Table.Rows)
	require.Empty(t, sectionsOf(t, &result.File{Path: "a", Headers: []result.Header{{}}, Rows: rows[:1]}))
}

// TestScoresSection: each pass beside the same with plain scores of the same program; what has no twin is left out.
func TestScoresSection(t *testing.T) {
	plain, used := row("vkattn 1", "flash2", 512, false, 2), row("vkattn 1", "flash2", 512, false, 4)
	plain.Bwd = result.Pass{Ms: 5, TFLOPS: 50}
	used.Score, used.BwdFailure.Error, used.BwdFailure.Reason = "alibi", "no such kernel", result.ReasonUnsupported
	peer, peers := row("torch 2", "flex", 512, false, 3), row("torch 2", "flex", 512, false, 3)
	peers.Mask = "documents=4"
	peers.Fwd.TFLOPS = peer.Fwd.TFLOPS / 4
	lone := row("vkattn 1", "flash2", 1024, false, 4)
	lone.Sinks = true
	s := sectionsOf(t, &result.File{Rows: []result.Row{plain, used, lone, peer, peers}})["scores"]
	rate, quarter := figure.Shown(plain.Fwd.TFLOPS), figure.Shown(peer.Fwd.TFLOPS/4)
	require.Equal(t, [][]string{
		{"flash2", "float16 B2 H8 N512 D64 alibi", "forward", "2", "4", rate, figure.Shown(plain.Fwd.TFLOPS / 2), "0.500"},
		{"flash2", "float16 B2 H8 N512 D64 alibi", "backward", "5", "unsupported", "50", "", ""},
		{"flex (torch 2)", "float16 B2 H8 N512 D64 documents=4", "forward", "3", "3", figure.Shown(peer.Fwd.TFLOPS), quarter, "0.250"},
	}, s.Table.Rows)
}

// What all rows of a table have in common stands before it, on the page alone; the rest is as it was.
func TestSharedColumnsStandApart(t *testing.T) {
	table := FigureTable{Header: []string{"problem", "pass", "ms"}, Rows: [][]string{{"N512", "forward", "1"}, {"N512", "backward", "1"},
		{"N512", "forward", "2"}}}
	got := Section{Table: table}.apart()
	require.Equal(t, "problem N512", got.Shared)
	require.Equal(t, FigureTable{Header: []string{"pass", "ms"}, Rows: [][]string{{"forward", "1"}, {"backward", "1"}, {"forward", "2"}}},
		got.Table)
	table.Rows = table.Rows[:2]
	require.Equal(t, Section{Table: table}, Section{Table: table}.apart(), "two rows are no table")
}
