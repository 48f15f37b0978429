package figure

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// ringFigures are those of rows.
func ringFigures(t *testing.T, rows ...result.RingRow) []*Figure {
	t.Helper()
	figures := BuildRings([]Source{{Label: "GPU", Rings: rows}})
	require.Len(t, figures, len(RingIDs))
	for i, f := range figures {
		require.Equal(t, RingIDs[i], f.ID)
		require.Equal(t, len(f.Series) == 0, f.Empty != "", f.ID)
		if len(f.Series) > 0 {
			for _, draw := range []func() ([]byte, error){f.SVG, f.PNG} {
				data, err := draw()
				require.NoError(t, err)
				require.NotEmpty(t, data)
			}
		}
	}
	return figures
}

// TestRingFigures: every number is one of the file's rows.
func TestRingFigures(t *testing.T) {
	rows := read(t, "rings.jsonl")[0].Rings
	require.Len(t, rows, 4)
	figures := ringFigures(t, rows...)
	find := func(ranks, tokens float64) *result.RingRow {
		i := slices.IndexFunc(rows, func(r result.RingRow) bool { return float64(r.Ranks) == ranks && float64(r.Tokens) == tokens })
		require.GreaterOrEqual(t, i, 0)
		return &rows[i]
	}
	speed := func(r *result.RingRow, name string) float64 {
		if strings.HasSuffix(name, "forward and backward") {
			return r.Both
		}
		return r.Fwd.Speed
	}
	for _, s := range Get(figures, "rings-seq").Series {
		var ranks float64
		_, err := fmt.Sscanf(s.Name, "%g ranks", &ranks)
		require.NoError(t, err)
		require.Len(t, s.Points, 2)
		for _, p := range s.Points {
			require.Equal(t, speed(find(ranks, p.X), s.Name), p.Y)
		}
	}
	require.Equal(t, []Guide{{Name: "ideal, 2 ranks", Y: 2}, {Name: "ideal, 3 ranks", Y: 3}}, Get(figures, "rings-seq").Guides)
	against := Get(figures, "rings-ranks")
	require.Len(t, against.Series, 4)
	require.True(t, against.Guides[0].Diagonal)
	for _, s := range against.Series {
		tokens := 1024.0
		if strings.HasPrefix(s.Name, "512 ") {
			tokens = 512
		}
		for _, p := range s.Points {
			require.Equal(t, speed(find(p.X, tokens), s.Name), p.Y)
		}
	}
	split := Get(figures, "rings-split")
	require.Len(t, split.Series, 8)
	for _, s := range split.Series {
		require.Len(t, s.Points, len(split.Parts))
		sum := 0.0
		for _, p := range s.Points {
			sum += p.Y
		}
		require.InEpsilon(t, s.Whole, sum, 1e-3, s.Name)
	}
	// The easiest to read: two ranks, of most tokens.
	for id, trace := range map[string]*result.RingTrace{"rings-forward": find(2, 1024).Fwd.Traced,
		"rings-backward": find(2, 1024).Bwd.Traced} {
		f := Get(figures, id)
		require.Contains(t, f.Fixed, "2 ranks, 1k tokens")
		require.Equal(t, "B1 H4 D64 float16 causal bottom-right; 2 ranks, 1k tokens", f.Fixed)
		require.Contains(t, f.X, plain(100*trace.Hidden)+" % of the time of copies")
		require.Len(t, f.Series, len(trace.Lanes))
		for i, l := range trace.Lanes {
			require.Equal(t, l.Lane, f.Series[i].Name)
			require.Equal(t, l.Rank, f.Series[i].Rank)
			for k, x := range l.Spans {
				p := f.Series[i].Points[k]
				require.Equal(t, [3]float64{x.Begin, x.End, float64(x.Step)}, [3]float64{p.Lo, p.Hi, p.X2})
			}
		}
	}
}

// TestRingFiguresOfFewRows: what cannot be drawn says what is missing, and what is left out is told.
func TestRingFiguresOfFewRows(t *testing.T) {
	require.Nil(t, BuildRings([]Source{{Label: "GPU"}}))
	row := read(t, "rings.jsonl")[0].Rings[0]
	figures := ringFigures(t, row)
	require.Contains(t, Get(figures, "rings-ranks").Empty, "--ranks N")
	require.Len(t, Get(figures, "rings-seq").Series, 2)

	failed, other, host, heads, both, again := row, row, row, row, row, row
	failed.Tokens, failed.Error, failed.Problem = 4096, "no memory", "B1 H4 Nq4096 Nk4096 D64"
	other.Problem = "B1 H2 Nq512 Nk512 D64"
	host.Over, host.Ranks = result.OverHost, 1
	heads.Over = result.OverHeads
	both.Over, both.PerHost, both.Ranks = result.OverBoth, 2, 4
	again.Fwd.Speed = 1.75
	figures = ringFigures(t, row, host, failed, other, heads, both, again)
	f := Get(figures, "rings-seq")
	require.Len(t, f.Missing, 2)
	require.Contains(t, f.Missing[0], "other shapes")
	require.Contains(t, f.Missing[1], "no memory")
	names := map[string]float64{}
	for _, s := range f.Series {
		names[s.Name] = s.Points[0].Y
	}
	require.Equal(t, 1.75, names["2 ranks, forward"], "measured again: the later row")
	require.Contains(t, names, "2 ranks, heads, forward")
	require.Contains(t, names, "4 ranks, heads within hosts of 2, forward")
	require.Contains(t, names, "keys from the host, forward")

	bare := row
	bare.Fwd.Traced, bare.Bwd.Traced = nil, nil
	figures = ringFigures(t, bare)
	for _, id := range []string{"rings-split", "rings-forward", "rings-backward"} {
		require.Contains(t, Get(figures, id).Empty, "traced")
	}
}

// TestRingFiguresOfMany: of many rows and ranks those that can be read are drawn, and the rest is named.
func TestRingFiguresOfMany(t *testing.T) {
	row := read(t, "rings.jsonl")[0].Rings[0]
	var rows []result.RingRow
	for i := range 12 {
		r := row
		r.Tokens, r.Ranks = 1024<<i, 64
		r.Problem = fmt.Sprintf("B1 Nq%d Nk%d D64", r.Tokens, r.Tokens)
		forward, backward := *row.Fwd.Traced, *row.Bwd.Traced
		for _, tr := range []*result.RingTrace{&forward, &backward} {
			tr.Ms *= float64(i + 1)
			tr.Lanes = slices.Clone(tr.Lanes)
			for rank := 2; rank < 64; rank++ {
				l := tr.Lanes[0]
				l.Rank = rank
				tr.Lanes = append(tr.Lanes, l)
			}
		}
		r.Fwd.Traced, r.Bwd.Traced = &forward, &backward
		rows = append(rows, r)
	}
	figures := ringFigures(t, rows...)
	split := Get(figures, "rings-split")
	require.Len(t, split.Series, mostSplit)
	require.Contains(t, split.Missing, "8 shorter passes")
	f := Get(figures, "rings-forward")
	require.Contains(t, f.Missing, "ranks 8 to 63")
	for _, s := range f.Series {
		require.Less(t, s.Rank, mostTimelineRanks)
	}
}
