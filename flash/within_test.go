package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithinBadInput: parts that lie outside the whole, or whose entries have positions of their own, are errors that say so.
func TestWithinBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Problem)
		bad    string
	}{
		"part":              {func(p *Problem) { p.Within = Within{Queries: 30, Keys: 40, Query: 10, Key: 20} }, ""},
		"queries outside":   {func(p *Problem) { p.Within = Within{Queries: 30, Keys: 40, Query: 11} }, "Problem.Within.Query"},
		"keys outside":      {func(p *Problem) { p.Within = Within{Queries: 30, Keys: 40, Key: 21} }, "Problem.Within.Key"},
		"entries and heads": {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Head: 2, Heads: 4, Batch: 7} }, ""},
		"heads outside": {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Head: 3, Heads: 4} },
			"Problem.Within.Head"},
		"entries before the first": {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Batch: -1} }, "Problem.Within.Batch"},
		"entries beyond counting":  {func(p *Problem) { p.Within = Within{Queries: 20, Keys: 20, Batch: 1 << 30} }, "Problem.Within.Batch"},
		"draws between": {func(p *Problem) { p.Dropout, p.Within = 0.5, Within{Queries: 30, Keys: 400, Key: 63} },
			"Problem.Within.Key"},
		"packed, of some heads": {func(p *Problem) {
			p.Packed, p.Within = Packed{Queries: 50, Keys: 50}, Within{Queries: 20, Keys: 20, Head: 2, Heads: 4}
		}, ""},
		"packed, of some queries": {func(p *Problem) {
			p.Packed, p.Within = Packed{Queries: 50, Keys: 50}, Within{Queries: 30, Keys: 20, Query: 1}
		}, "Problem.Within"},
		"lengths, of some keys": {func(p *Problem) { p.KeyLengths, p.Within = true, Within{Queries: 20, Keys: 30} }, "Problem.Within"},
	} {
		p := Problem{Batch: 2, Heads: 2, QueryLen: 20, HeadDim: 8}
		c.change(&p)
		_, err := p.Normalize()
		if c.bad == "" {
			require.NoError(t, err, name)
			continue
		}
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, c.bad, bad.Argument, name)
	}
}
