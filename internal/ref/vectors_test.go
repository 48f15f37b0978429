package ref

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const vectorFolder = "../../testdata/vectors"

// TestGoldenVectors compares the oracle with every golden file: all outputs, of both passes and of forward mode.
// The files were computed in float64 and stored in fp32, so half an ulp of fp32 is most of what may
// differ.
func TestGoldenVectors(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectorFolder, "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 31)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			v, err := ReadVector(file)
			require.NoError(t, err)
			outputs := oracleOutputs(t, v)
			plain := plainOutputs(t, v)
			for name, want := range v.Answers {
				require.Contains(t, outputs, name)
				got := outputs[name]
				require.Len(t, got, len(want), name)
				for i, w := range want {
					w := float64(w)
					if math.IsInf(w, -1) {
						require.Equal(t, w, got[i], "%s[%d]", name, i)
						continue
					}
					require.InDelta(t, w, got[i], 1e-7+1.2e-7*math.Abs(w), "%s[%d]", name, i)
				}
			}
			for name := range outputs {
				require.Contains(t, v.Answers, name)
			}
			// Our plain is as wrong as the other program's plain: the same roundings to the dtype; at fp32
			// there are none, and only the order of sums makes the error.
			low, high := 0.99, 1.01
			if v.DType == F32 {
				low, high = 1.0/3, 2
			}
			for name, theirs := range v.PlainError {
				ours := MaxDistance(plain[name], outputs[name])
				t.Logf("plain %s: ours %.3g, theirs %.3g (%.2f)", name, ours, theirs, ours/theirs)
				require.LessOrEqual(t, ours, high*theirs, name)
				require.GreaterOrEqual(t, ours, low*theirs, name)
			}
		})
	}
}

func oracleOutputs(t *testing.T, v *Vector) map[string][]float64 {
	o, lse, err := Forward(v.Problem)
	require.NoError(t, err)
	g, err := Backward(v.Problem, v.DO, nil)
	require.NoError(t, err)
	out := byName(v, o, lse, g)
	if v.Tangents != (Tangents{}) {
		o, lse, err := JVP(v.Problem, v.Tangents)
		require.NoError(t, err)
		out["o_tangent"], out["lse_tangent"] = o.Data, lse.Data
	}
	if v.Answers["max_logit"] != nil {
		out["max_logit"], err = MaxLogits(v.Problem)
		require.NoError(t, err)
	}
	return out
}

func plainOutputs(t *testing.T, v *Vector) map[string][]float64 {
	o, lse, err := PlainForward(v.Problem, v.DType)
	require.NoError(t, err)
	g, err := PlainBackward(v.Problem, v.DType, v.DO, nil)
	require.NoError(t, err)
	return byName(v, o, lse, g)
}

func byName(v *Vector, o, lse Array, g *Gradients) map[string][]float64 {
	out := map[string][]float64{"o": o.Data, "lse": lse.Data, "dq": g.DQ.Data, "dk": g.DK.Data, "dv": g.DV.Data}
	if v.Problem.Bias != nil {
		out["dbias"] = g.DBias.Data
	}
	if v.Problem.Sinks != nil {
		out["dsinks"] = g.DSinks
	}
	return out
}
