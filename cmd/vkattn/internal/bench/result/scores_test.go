package result

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseScores(t *testing.T) {
	for _, x := range []struct {
		parse func(string) (string, error)
		good  map[string]string
		bad   []string
	}{
		{ParseScore, map[string]string{"": "", "none": "", "ALiBi": "alibi", " t5": "t5", "softcap=30": "softcap=30",
			"softcap=2.50": "softcap=2.5"},
			[]string{"softcap", "softcap=0", "softcap=-1", "softcap=nan", "softcap=inf", "softcap=1e-60", "alibi=2", "none=1", "rope"}},
		{ParseBias, map[string]string{"": "", "none": "", "Full": "full", "heads": "heads", "batch": "batch", "pairs": "pairs",
			"keys": "keys"}, []string{"rows", "full=1"}},
		{ParseMask, map[string]string{"": "", "none": "", "documents=08": "documents=8", "prefix=1k": "prefix=1024"},
			[]string{"documents", "documents=0", "documents=-1", "prefix=x", "causal=1", "=3"}},
	} {
		for text, want := range x.good {
			got, err := x.parse(text)
			require.NoError(t, err, text)
			require.Equal(t, want, got)
		}
		for _, text := range x.bad {
			_, err := x.parse(text)
			require.ErrorContains(t, err, "must be", text)
		}
	}
	_, err := parseBools("sinks")("maybe")
	require.ErrorContains(t, err, `sinks "maybe": it must be true, false or both`)

	c := Case{Impl: "flash2", DType: "float16", B: 1, H: 2, Hkv: 2, Nq: 8, N: 8, D: 8, Dv: 8, Mask: "documents=9"}
	require.ErrorContains(t, c.Validate(), "there are 8 keys")
	c.Mask, c.Causal = "prefix=4", true
	require.ErrorContains(t, c.Validate(), "causal must be false")
	c.Causal = false
	require.NoError(t, c.Validate())
}

// TestScoresOfACase: what a case says of its scores is in its name, its path and its JSON, and comes back from there; a case that uses
// nothing of it looks as it did before there was any.
func TestScoresOfACase(t *testing.T) {
	c := Case{Impl: "flash2", DType: "float16", B: 2, H: 4, Hkv: 4, Nq: 64, N: 64, D: 16, Dv: 16}
	plain, err := json.Marshal(Job{Case: c})
	require.NoError(t, err)
	for _, key := range []string{"score", "bias", "mask", "sinks", "window"} {
		require.NotContains(t, string(plain), key)
	}
	require.Equal(t, "flash2 float16 B2 H4 N64 D16", c.String())
	_, costs := c.Plain()
	require.False(t, costs)

	used := c
	used.Score, used.Bias, used.Mask, used.Sinks = "softcap=30", "heads", "documents=4", true
	require.Equal(t, "flash2 float16 B2 H4 N64 D16 softcap=30 bias heads documents=4 sinks", used.String())
	text, err := json.Marshal(Job{Case: used})
	require.NoError(t, err)
	require.Contains(t, string(text), `"score":"softcap=30","bias":"heads","mask":"documents=4","sinks":true`)
	require.Equal(t, used, jobOf(t, text).Case)
	back, costs := used.Plain()
	require.True(t, costs)
	require.Equal(t, c, back)
	var row Row
	require.Error(t,
		json.Unmarshal([]byte(`{"impl":"flash2","dtype":"float16","B":1,"H":1,"Hkv":1,"Nq":8,"N":8,"D":8,"score":"rope","causal":false}`),
			&row), "what is not known is no row")
}

// TestALiBiSlopes are those of the paper's section 3, and of its authors' program for numbers that are no powers of two.
func TestALiBiSlopes(t *testing.T) {
	require.Equal(t, []float32{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}, alibiSlopes(8))
	require.Equal(t, []float32{1.0 / 16, 1.0 / 256, 1.0 / 4}, alibiSlopes(3))
	require.Equal(t, []float32{1.0 / 256}, alibiSlopes(1))
}
