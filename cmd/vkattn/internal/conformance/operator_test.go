package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/onnx"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// drawOperator makes a case of the operator Attention with past keys and every output; what is right is package ref's.
func drawOperator(t *testing.T, dtype ref.DType, attrs map[string]any, spoil string) *onnx.Case {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	stored := map[string]ref.Stored{}
	name := map[ref.DType]string{ref.F32: "F32", ref.F16: "F16"}[dtype]
	put := func(tensor string, values []float32, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		if values == nil {
			values = make([]float32, n)
			for i := range values {
				values[i] = float32(random.NormFloat64())
			}
		}
		stored[tensor] = ref.Stored{DType: name, Shape: shape, Data: dtype.Encode(values)}
	}
	const batch, heads, keyHeads, queries, past, keys, dim, valueDim = 2, 4, 2, 5, 3, 5, 8, 4
	put("in.Q", nil, batch, queries, heads*dim)
	put("in.K", nil, batch, keys, keyHeads*dim)
	put("in.V", nil, batch, keys, keyHeads*valueDim)
	put("in.past_key", nil, batch, keyHeads, past, dim)
	put("in.past_value", nil, batch, keyHeads, past, valueDim)
	shapes := map[string][]int{"Y": {batch, queries, heads * valueDim}, "present_key": {batch, keyHeads, past + keys, dim},
		"present_value": {batch, keyHeads, past + keys, valueDim}, "qk_matmul_output": {batch, heads, queries, past + keys}}
	for output, shape := range shapes {
		put("out."+output, nil, shape...)
	}
	attrs["q_num_heads"], attrs["kv_num_heads"] = heads, keyHeads
	text, err := json.Marshal(map[string]any{"op": "Attention", "attrs": attrs, "inputs": []string{"Q", "K", "V", "", "past_key",
		"past_value"},
		"outputs": []string{"Y", "present_key", "present_value", "qk_matmul_output"}, "rtol": 1e-3, "atol": 1e-3})
	require.NoError(t, err)
	metadata := map[string]string{"case": string(text)}
	c, err := onnx.New(stored, metadata)
	require.NoError(t, err)
	right, err := c.Compute()
	require.NoError(t, err)
	for output, values := range right {
		narrow := make([]float32, len(values))
		for i, x := range values {
			narrow[i] = float32(x)
		}
		if output == spoil {
			narrow[len(narrow)-1] += 0.5
		}
		put("out."+output, narrow, shapes[output]...)
	}
	c, err = onnx.New(stored, metadata)
	require.NoError(t, err)
	return c
}

// TestOperators: standard attention gives the scores at every stage, and a wrong output of any name is found.
func TestOperators(t *testing.T) {
	dev := device(t)
	for _, dtype := range []ref.DType{ref.F32, ref.F16} {
		if dtype != ref.F32 && !sixteenBits(dev) {
			continue
		}
		for mode := range 4 {
			for i, spoil := range []string{"", "Y", "present_key", "present_value", "qk_matmul_output"} {
				if i > 0 && mode+i != 4 {
					continue
				}
				of := drawOperator(t, dtype, map[string]any{"is_causal": 1, "qk_matmul_output_mode": mode, "scale": 0.4}, spoil)
				c, err := operatorCase(fmt.Sprintf("mode %d, %v", mode, dtype), of)
				require.NoError(t, err)
				require.Empty(t, c.lacks)
				require.Equal(t, Layouts{BNHD, Dense, Dense, BNHD}, c.Layouts)
				for _, target := range Targets(dev, Options{Tiers: []flash.Tier{flash.TierScalar}}) {
					r := c.Run(context.Background(), dev, target)
					switch {
					case target.Implementation != flash.Standard:
						require.NotEmpty(t, r.Skipped)
					case spoil == "":
						require.True(t, r.Pass, "%s: %s", c.Name, r.Failure)
					default:
						require.Contains(t, r.Failure, spoil+": error 0.5", c.Name)
					}
				}
			}
		}
	}
	require.Empty(t, takeMessages())
}
