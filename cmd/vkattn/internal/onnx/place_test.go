package onnx

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// TestPlace: a query sees the keys that the operator says.
func TestPlace(t *testing.T) {
	for nq := 1; nq <= 4; nq++ {
		for nk := 1; nk <= 5; nk++ {
			for offset := -4; offset <= 5; offset++ {
				for choice := range 2 * 4 * 4 * 3 {
					causal, window := choice%2 == 1, ref.Window{Left: choice/2%4 - 1, Right: choice/8%4 - 1}
					p := ref.Problem{Q: ref.NewTensor(1, 1, nq, 1), K: ref.NewTensor(1, 1, nk, 1), V: ref.NewTensor(1, 1, nk, 1)}
					own, keys := false, nk
					switch choice / 32 {
					case 1: // padding behind a past
						keys = max(nk-1, 0)
						p.KeyLens = []int{keys}
					case 2: // a cache: the offset is that of its last key
						keys = min(offset+nq, nk)
						if keys < 0 {
							continue
						}
						p.KeyLens, own = []int{keys}, true
						if offset+nq != keys {
							continue
						}
					}
					place(&p, causal, window, offset, own)
					require.NoError(t, p.Check())
					for i := range nq {
						for j := range nk {
							at := offset + i
							want := j < keys && (!causal || j <= at) && (window.Left < 0 || j >= at-window.Left) &&
								(window.Right < 0 || causal || j <= at+window.Right)
							require.Equal(t, want, p.Allows(0, 0, i, j),
								"%d queries, %d keys, offset %d, causal %v, window %+v: query %d, key %d; %+v", nq, nk, offset, causal,
								window, i, j, p.Options)
						}
					}
				}
			}
		}
	}
}
