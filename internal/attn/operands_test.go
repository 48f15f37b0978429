package attn

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOperands: names are unique, a backward pass has what its forward pass has, and a gradient is of the shape and kind of what it is the
// gradient by.
func TestOperands(t *testing.T) {
	p := Problem{Batch: 2, Heads: 6, KeyHeads: 3, QueryLen: 5, KeyLen: 7, HeadDim: 11, ValueDim: 13, DType: BF16,
		ByScore: ByScore{Bias: PerScore{In: true, DType: BF16, Own: [4]bool{false, true, true, true}},
			BoolMask: PerScore{In: true, DType: Bool}, Sinks: true}, KeyLengths: true, QueryLengths: true}
	find := func(table []Operand, name string) *Operand {
		i := slices.IndexFunc(table, func(o Operand) bool { return o.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return &table[i]
	}
	forward, backward := ForwardOperands[:], BackwardOperands[:]
	for _, table := range [][]Operand{forward, backward} {
		seen := map[string]bool{}
		for i := range table {
			o := &table[i]
			require.False(t, seen[o.Name], o.Name)
			seen[o.Name] = true
			if o.PerScore == nil { // whose problem says the type
				require.Equal(t, o.Statistics, o.DType(&p) == F32 || o.DType(&p) == Int32, o.Name)
			}
			require.False(t, o.Cache && &table[0] == &backward[0], "%s: caches have no gradients", o.Name)
			if o.Of == "" {
				continue
			}
			of := find(backward, o.Of)
			require.Equal(t, "D"+o.Of, o.Name)
			require.Equal(t, of.Shape(&p), o.Shape(&p), o.Name)
			require.Equal(t, of.Statistics, o.Statistics, o.Name)
			require.Equal(t, find(forward, o.Of).Output, !o.Output, "%s: the gradient by an input is written, that by an output is read",
				o.Name)
		}
	}
	for i := range forward {
		if forward[i].Cache || forward[i].Name == "MaxLogit" { // of which there is no gradient
			continue
		}
		again := find(backward, forward[i].Name)
		require.Equal(t, forward[i].Shape(&p), again.Shape(&p))
		require.False(t, again.Output, again.Name)
	}
	require.Equal(t, float64(2*6*5*4), find(forward, "LSE").Bytes(&p))
	require.Equal(t, float64(2*3*7*13*2), find(forward, "V").Bytes(&p))
}

// TestScoreOperands: passes of every direction have all of them, the gradients and tangents that there are come last, and kernels read of
// each where it lies, at words of its own.
func TestScoreOperands(t *testing.T) {
	for _, table := range [][]Operand{ForwardOperands[:], BackwardOperands[:], JVPOperands[:]} {
		first := slices.IndexFunc(table, func(o Operand) bool { return o.Name == ScoreOperands[0].Name })
		for i, o := range ScoreOperands {
			require.Equal(t, o.Name, table[first+i].Name)
		}
	}
	require.Equal(t, "ValueScales", ForwardOperands[len(ForwardOperands)-1].Name)
	require.Equal(t, "SinksTangent", JVPOperands[len(JVPOperands)-1].Name)
	for i, at := range WithGradient {
		require.Equal(t, ScoreOperands[at].Name, BackwardOperands[len(BackwardOperands)-len(WithGradient)+i].Of)
	}
	words := map[int]string{}
	for _, o := range ScoreOperands {
		n := 1
		if o.PerScore != nil { // whose strides follow
			n = 5
		}
		for i := range n {
			require.Empty(t, words[o.More+i], o.Name)
			words[o.More+i] = o.Name
		}
	}
}

// TestPlaces: what is picked for a pass stands in the order of its table, whichever list it is from.
func TestPlaces(t *testing.T) {
	names := func(table []Operand) (all []string) {
		for _, o := range table {
			all = append(all, o.Name)
		}
		return all
	}
	forward := names(ForwardOperands[:])
	for _, pass := range []struct {
		table  []Operand
		places []int
		own    []string
	}{
		{BackwardOperands[:], BackwardPlaces, []string{"DO", "DLSE", "DQ", "DK", "DV", "DBias", "DSinks"}},
		{JVPOperands[:], JVPPlaces, []string{"QTangent", "KTangent", "VTangent", "OTangent", "LSETangent", "BiasTangent",
			"SinksTangent"}},
	} {
		got := make([]string, len(pass.table))
		Pick(got, pass.places, forward, pass.own)
		require.Equal(t, names(pass.table), got)
	}
}
