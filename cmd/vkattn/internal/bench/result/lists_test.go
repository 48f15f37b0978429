package result

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLists: a list has as many different keys as it may, all of which the query sees, and then none; other queries have other lists.
func TestLists(t *testing.T) {
	for _, c := range []Case{{Listed: 7}, {Listed: 7, Causal: true}, {Listed: 40, Causal: true}, {Listed: 100}, {Listed: 1},
		{Listed: 5, Window: 4, Nq: 40}} {
		c.B, c.H, c.Hkv, c.N, c.D, c.Dv, c.DType, c.Impl = 2, 2, 2, 40, 8, 8, "float16", "flash2"
		c.Nq = max(c.Nq, 30)
		require.NoError(t, c.Validate())
		all := c.Lists()
		require.Len(t, all, c.B*c.Nq*c.Listed)
		different := map[string]bool{}
		pairs := 0
		for b := range c.B {
			for i := range c.Nq {
				list := c.List(b, i)
				require.Equal(t, list, all[(b*c.Nq+i)*c.Listed:][:c.Listed])
				first, end := c.Seen(i)
				n := min(end-first, c.Listed)
				pairs += n
				seen := map[int32]bool{}
				for _, key := range list[:n] {
					require.True(t, int(key) >= first && int(key) < end && !seen[key], "%d of %v", key, list)
					seen[key] = true
				}
				require.False(t, slices.ContainsFunc(list[n:], func(key int32) bool { return key != -1 }))
				text, err := json.Marshal(list)
				require.NoError(t, err)
				different[string(text)] = true
			}
		}
		require.Equal(t, 4*float64(pairs)*2*8, c.ForwardFLOPs())
		if c.Listed < 20 && c.Listed > 1 && c.Window == 0 {
			require.Greater(t, len(different), c.Nq)
		}
	}
}

// TestPyTorchHasTheSameLists: both programs give a query the same list.
func TestPyTorchHasTheSameLists(t *testing.T) {
	c := Case{Impl: "standard", DType: "float16", B: 2, H: 2, Hkv: 2, Nq: 50, N: 60, D: 8, Dv: 8, Causal: true, Listed: 20}
	var line bytes.Buffer
	require.NoError(t, NewWriter(&line).Line(Job{Case: c}))
	var got [][]int32
	torchSays(t, `case = torch.Case.from_json(sys.stdin.readline())
print(json.dumps([case.list(b, i) for b in range(case.B) for i in range(case.Nq)]))`, line.Bytes(), &got)
	for n, list := range got {
		want := c.List(n/c.Nq, n%c.Nq)
		require.Equal(t, want[:len(list)], list)
		require.True(t, len(list) == c.Listed || want[len(list)] == -1)
	}
}
