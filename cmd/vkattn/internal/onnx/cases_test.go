package onnx

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const folder = "../../../../testdata/vectors/onnx"

// TestCases: the float64 reference, rounded to the type of the output, gives every output of every case within the case's own tolerances:
// present keys and values and the matrix of scores among them. In bfloat16 those are finer than the type's numbers, and one ulp more is
// right.
func TestCases(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 59)
	seen := map[string]int{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".safetensors"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			c, err := Parse(data)
			require.NoError(t, err)
			got, err := c.Compute()
			require.NoError(t, err)
			seen[c.Op]++
			require.Len(t, got, len(c.Outputs()))
			for _, output := range c.Outputs() {
				require.Contains(t, got, output)
				dtype, ok := c.out[output].dtype()
				require.True(t, ok)
				for i, x := range got[output] {
					got[output][i] = float64(dtype.Round(float32(x)))
				}
				v := c.Compare(output, got[output])
				require.True(t, v.OK, "%s: %v", output, v)
				for i, want := range c.out[output].Floats {
					if want := float64(want); c.out[output].Type != "BF16" && got[output][i] != want {
						require.LessOrEqual(t, math.Abs(got[output][i]-want), c.ATol+c.RTol*math.Abs(want), "%s[%d]", output, i)
					}
				}
			}
		})
	}
	require.Equal(t, map[string]int{"Attention": 54, "RotaryEmbedding": 3, "TensorScatter": 2}, seen)
}
