package lists

import (
	"encoding/binary"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

func stored(shape []int, numbers ...int32) ref.Stored {
	var data []byte
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint32(data, uint32(n))
	}
	return ref.Stored{DType: "I32", Shape: shape, Data: data}
}

func TestParse(t *testing.T) {
	// Two key heads, three queries, lists of two of forty keys.
	of := stored([]int{2, 3, 2}, 0, -1, 39, 7, -1, -1, 32, 31, 5, 4, 8, 9)
	l, err := Parse("lists", of, 2, 3, 40)
	require.NoError(t, err)
	require.Equal(t, []float32{39, 7}, l.Of(1, 4, 1), "query head 1 of 4 reads key head 0")
	require.Equal(t, []float32{5, 4}, l.Of(2, 4, 1))
	require.Equal(t, 2, l.Pitch())
	words := l.Bits(4)
	require.Len(t, words, 4*3*8)
	for h := range 4 {
		for q := range 3 {
			for k := range 64 {
				want := false
				for _, n := range l.Of(h, 4, q) {
					want = want || int(n) == k
				}
				require.Equal(t, want, words[(h*3+q)*8+k/8]>>(k%8)&1 == 1, "head %d, query %d, key %d", h, q, k)
			}
		}
	}
	shared, err := Parse("lists", stored([]int{3, 1}, 1, 2, 3), 2, 3, 4)
	require.NoError(t, err)
	require.Len(t, shared.Bits(4), 3*4)
	require.Equal(t, []float32{2}, shared.Of(3, 4, 1))
}

// What lists cannot be is told by what they must be.
func TestRefusals(t *testing.T) {
	for want, of := range map[string]ref.Stored{
		`tensor "l" is F32 [3 2]: lists of keys must be I32`:      {DType: "F32", Shape: []int{3, 2}, Data: make([]byte, 24)},
		"the last two or three":                                   stored([]int{6}, 0, 0, 0, 0, 0, 0),
		"must be [1, 1 or 2 key heads, 3 queries, 1 or more keys": stored([]int{4, 3, 1}, make([]int32, 12)...),
		"is [2 2]":          stored([]int{2, 2}, 0, 1, 2, 3),
		"is [2 1 3 1]":      stored([]int{2, 1, 3, 1}, make([]int32, 6)...),
		"is [3 0]":          stored([]int{3, 0}),
		"elements of shape": stored([]int{3, 2}, 0, 1, 2, 3),
		"query 1 of head 0 lists key 5: keys are 0": stored([]int{3, 1}, 0, 5, 0),
		"query 2 of head 0 lists key -2":            stored([]int{3, 1}, 0, 4, -2),
		"query 0 of head 1 lists key 3 twice":       stored([]int{2, 3, 2}, 0, 1, 0, 1, 0, 1, 3, 3, 0, 1, 0, 1),
	} {
		_, err := Parse("l", of, 2, 3, 5)
		require.ErrorContains(t, err, want)
	}
	_, err := Parse("l", stored([]int{1, 1}, 0), 1, 1, mostTokens+1)
	require.ErrorContains(t, err, "pictures have at most 131072")
}

// FuzzParse: whatever a file holds, lists that are taken name keys that there are, and have a bit for each.
func FuzzParse(f *testing.F) {
	f.Add("I32", 0, 2, 3, 1, []byte{5, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0})
	f.Add("I32", 1, 1, 3, 2, make([]byte, 24))
	f.Add("F32", 0, 1, 3, 1, make([]byte, 12))
	f.Add("I32", -1, 1<<40, 3, 1<<40, []byte{0, 0, 0, 128})
	f.Fuzz(func(t *testing.T, dtype string, batch, heads, queries, longest int, data []byte) {
		of := ref.Stored{DType: dtype, Shape: []int{batch, heads, queries, longest}, Data: data}
		if batch == 0 {
			of.Shape = of.Shape[1:]
		}
		l, err := Parse("lists", of, 2, 3, 40)
		if err != nil {
			require.ErrorContains(t, err, `tensor "lists"`)
			return
		}
		set, listed := 0, 0
		for _, b := range l.Bits(4) {
			set += bits.OnesCount8(b)
		}
		for h := range l.Shown(4) {
			for q := range 3 {
				for _, key := range l.Of(h, l.Shown(4), q) {
					require.Less(t, key, float32(40))
					if key >= 0 {
						listed++
					}
				}
			}
		}
		require.Equal(t, listed, set)
	})
}
