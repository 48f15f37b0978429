package specialize

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/shaders"
)

// BenchmarkModule specializes a module with thousands of blocks, as a plan of kernels on matrices does.
func BenchmarkModule(b *testing.B) {
	code, err := shaders.Module("matrix_forward.f16")
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err = Module(code, nil)
		require.NoError(b, err)
	}
}
