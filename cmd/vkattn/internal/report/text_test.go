package report

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"
)

// TestTextFits: a table leaves out the least important columns until it fits, says which, and folds a last column of words.
func TestTextFits(t *testing.T) {
	make := func() *Text {
		table := NewText([]string{"seq", "kernel", "ms", "±", "reason"}, "rlrrl")
		table.Row("512", text.FgRed.Sprint("scalar_forward 64x64"), "1.234", "3%", "a reason of some words that goes on")
		table.Rule()
		table.Row("4096", "scalar_forward 64x64", "10.34", "13%", "")
		return table
	}
	longest := func(s string) (most int) {
		for line := range strings.Lines(s) {
			most = max(most, text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")))
		}
		return most
	}
	whole := make()
	require.Equal(t, 4+2+20+2+5+2+3+2+35, longest(whole.String()))
	require.Empty(t, whole.Dropped())
	require.Equal(t, whole.String(), make().Fit(75, "±", "kernel").String(), "it fits")

	narrow := make().Fit(60, "±", "kernel")
	require.Equal(t, []string{"kernel"}, narrow.Dropped(), "then there is room for ± again")
	require.Equal(t, []string{"kernel", "±"}, make().Fit(50, "±", "kernel").Dropped())
	require.LessOrEqual(t, longest(narrow.String()), 60)
	require.Equal(t, []string{"±"}, make().Fit(71, "±", "kernel").Dropped())

	folded := make().Fit(40, "±", "kernel").String()
	require.LessOrEqual(t, longest(folded), 40)
	require.Contains(t, folded, "a reason of some words")
	require.Contains(t, strings.Join(strings.Fields(folded), " "), "words that goes on")
}

func TestFold(t *testing.T) {
	require.Equal(t, "one two three", Fold("one two three", 0, "  "))
	require.Equal(t, "one two\n  three", Fold("one two three", 8, "  "))
	require.Equal(t, "one ·\n  two ·\n  three", Fold("one · two · three", 7, "  "))
	require.Equal(t, "unbreakable\n  word", Fold("unbreakable word", 5, "  "))
}
