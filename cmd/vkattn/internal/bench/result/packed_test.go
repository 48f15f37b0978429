package result

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// TestPackedLengths: 32 sequences of 1403 tokens at most are the list itself; others are in proportion, from its beginning, over and over.
func TestPackedLengths(t *testing.T) {
	c := Case{Packed: "mixed", B: 32, N: 1403, Nq: 1403}
	require.Equal(t, mixedLengths, c.Lengths())
	require.Equal(t, flash.Packed{Queries: 16384, Keys: 16384}, c.packed())
	c.B, c.N = 4, 1698 // of 849, 140, 260 and 800
	require.Equal(t, []int{1698, 280, 520, 1600}, c.Lengths())
	require.Equal(t, []int32{0, 1698, 1978, 2498, 4098}, c.Starts())
	require.Equal(t, 520, c.Entry(2).N)
	b, i := c.Place(2, 7)
	require.Equal(t, [2]int{0, 1985}, [2]int{b, i})
	c.B, c.N = 40, 16
	got := c.Lengths()
	require.Len(t, got, 40)
	require.Equal(t, got[:8], got[32:])
	require.Equal(t, 1, got[4], "none is empty")
	c.Packed, c.B, c.N = "equal", 3, 5
	require.Equal(t, []int32{0, 5, 10, 15}, c.Starts())
	c.Packed = ""
	require.Nil(t, c.Starts())
	b, i = c.Place(2, 7)
	require.Equal(t, [2]int{2, 7}, [2]int{b, i})
}

func TestPackedCases(t *testing.T) {
	one := Grid{Impls: []string{"flash2"}, Batch: []int{32}, Seq: []int{1403}, Causal: no, Packed: []string{"mixed"}}
	cases, err := one.Expand()
	require.NoError(t, err)
	require.Equal(t, "flash2 float16 B32 H32 N1403 D64 packed mixed", cases[0].String())
	pairs, half := 0.0, 0.0
	for _, n := range mixedLengths {
		pairs += float64(n * n)
	}
	require.Equal(t, 4*32*64*pairs, cases[0].ForwardFLOPs(), "each sequence sees itself")
	c := cases[0]
	c.Causal = true
	require.Equal(t, cases[0].ForwardFLOPs()/2, c.ForwardFLOPs(), "as the papers count")
	c.Window = 9
	for _, n := range mixedLengths {
		own := Case{B: 1, H: 1, Hkv: 1, Nq: n, N: n, D: 1, Dv: 1, DType: "float16", Causal: true, Window: 9}
		half += own.ForwardFLOPs()
	}
	require.Equal(t, 32*64*half, c.ForwardFLOPs())
	p, err := c.Problem()
	require.NoError(t, err)
	require.Equal(t, [4]int{1, 32, 16384, 64}, p.QShape())
	plain, costs := c.Plain()
	require.True(t, costs)
	require.Empty(t, plain.Packed)

	for _, bad := range []struct {
		with Grid
		why  string
	}{
		{Grid{QueryLen: []int{1}}, "q-len is 1: packed sequences have as many queries as keys"},
		{Grid{Masks: []string{"documents=4"}}, "mask is documents=4: it is of a batch"},
		{Grid{Biases: []string{"keys"}}, "bias is keys: it is of a batch"},
		{Grid{Packed: []string{"sorted"}}, `packed "sorted": it must be one of none, equal, mixed`},
	} {
		_, err := one.Override(bad.with).Expand()
		require.ErrorContains(t, err, bad.why)
	}
	c = cases[0]
	c.Page = 16
	_, err = c.Problem()
	require.ErrorIs(t, err, flash.ErrArgument, "which the library says itself")
}

// TestUsedKeys: batch entries use as many keys as packed sequences of that length have; what is counted is counted of these.
func TestUsedKeys(t *testing.T) {
	c := Case{Impl: "flash2", DType: "float16", B: 4, H: 4, Hkv: 2, Nq: 1, N: 1698, D: 64, Dv: 64, Used: "mixed"}
	require.NoError(t, c.Validate())
	require.Equal(t, "flash2 float16 B4 H4/2 Nq1 N1698 D64 used mixed", c.String())
	require.Equal(t, []int32{1698, 280, 520, 1600}, c.UsedKeys())
	require.Equal(t, [2]int{1, 520}, [2]int{c.Entry(2).Nq, c.Entry(2).N})
	require.Equal(t, 4.0*4*64*(1698+280+520+1600), c.ForwardFLOPs())
	p, err := c.Problem()
	require.NoError(t, err)
	require.True(t, p.KeyLengths)
	require.Equal(t, 1698, p.KeyLen)
	bytes, err := c.Least(tune.LeastForwardBytes)
	require.NoError(t, err)
	all := c
	all.Used = ""
	most, err := all.Least(tune.LeastForwardBytes)
	require.NoError(t, err)
	require.Equal(t, 2.0*2*2*64*float64(4*1698-1698-280-520-1600), most-bytes, "keys and values that nobody uses")
	plain, costs := c.Plain()
	require.True(t, costs)
	require.Equal(t, all, plain)

	tokens := Columns[slices.IndexFunc(Columns, func(c Column) bool { return c.Name == "tokens/s" })]
	row := Row{Origin: Origin{Library: "vkattn test"}, Case: c, Fwd: Pass{Ms: 0.5}}
	require.Equal(t, "8000", tokens.Show(&Cell{View: &View{}, Row: &row}))
	row.Nq = row.N
	require.Empty(t, tokens.Show(&Cell{View: &View{}, Row: &row}), "of what is no decoding")

	for _, bad := range []struct {
		set func(*Case)
		why string
	}{
		{func(c *Case) { c.Nq, c.Packed = c.N, "mixed" }, "used is mixed: it is of a batch"},
		{func(c *Case) { c.Mask = "documents=4" }, "mask is documents=4: it is of a batch"},
		{func(c *Case) { c.Bias = "keys" }, "bias is keys: it is of a batch"},
	} {
		wrong := c
		bad.set(&wrong)
		require.ErrorContains(t, wrong.Validate(), bad.why)
	}
	_, err = ParseUsed("half")
	require.EqualError(t, err, `used "half": it must be all or mixed`)
}
