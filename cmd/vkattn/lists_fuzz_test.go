package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLists: what is given to the flags that take lists is a sweep of sound problems, or an error that names the flag.
func FuzzLists(f *testing.F) {
	f.Add("64,4k", "32", "1m", "", "fp16", "both", "0.1", "5%", "br=64,bc=32")
	f.Add("0", "-1", "99999999999999999999m", "1k,", "int8", "maybe", "NaN", "-0%", "x")
	f.Add("1073741823", "1", "1073741823", "7", "float32", "", "0.998", "1e-300", "w=9223372036854775807")
	f.Add("٣", "1_0", "0x10", "1e3", "bf16 ", "TRUE", "+0.5", "100%", "a=1,a=1")
	f.Fuzz(func(t *testing.T, heads, dim, seq, emb, dtype, causal, dropout, density, tuning string) {
		list := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		var flags axisFlags
		for name, values := range map[string][]string{"heads": list(heads), "head-dim": list(dim), "seq": list(seq), "emb-dim": list(emb),
			"dtype":  list(dtype),
			"causal": {causal}, "dropout": list(dropout), "density": list(density), "impl": {"flash2"}} {
			flags.set(name, values...)
		}
		if tuning != "" {
			flags.set("tuning", tuning)
		}
		total := 0
		for _, values := range flags {
			total += len(*values)
		}
		if total > 40 {
			return // some millions of rows
		}
		g, err := flags.grid()
		if err != nil {
			require.Regexp(t, `^--[a-z]`, err.Error())
			return
		}
		cases, err := g.Expand()
		if err != nil {
			return
		}
		for _, c := range cases {
			p, err := c.Problem()
			if err != nil {
				continue // too large, and says so where it is measured
			}
			_, err = p.Normalize()
			require.NoError(t, err, "%v", c)
		}
	})
}
