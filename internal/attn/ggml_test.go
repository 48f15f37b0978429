package attn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// TestGGML: blocks are those that ggml's own library makes, byte for byte.
func TestGGML(t *testing.T) {
	golden, _, err := ref.ReadSafetensors("../../testdata/ggml/blocks.safetensors")
	require.NoError(t, err)
	x, err := golden["x"].Floats()
	require.NoError(t, err)
	for _, dtype := range attn.QuantisedTypes() {
		if dtype.Float8() {
			continue
		}
		want := golden[dtype.String()].Data
		require.Len(t, want, dtype.Bytes(len(x)))
		got := make([]byte, len(want))
		attn.Encode(dtype, got, x)
		size := dtype.Bytes(attn.Q8_0.Block())
		for i := 0; i < len(want); i += size {
			require.Equal(t, want[i:i+size], got[i:i+size], "%v block %d", dtype, i/size)
		}
	}
}
