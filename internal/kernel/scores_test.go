package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/shaders"
)

// TestScoreBuffers: a module that can be told of a tensor that goes with scores has a buffer of the name by which it is bound, each at a
// binding of its own. A name that GLSL changed alone would leave the buffer to whatever stands in for it.
func TestScoreBuffers(t *testing.T) {
	found := map[string]int{}
	for _, module := range shaders.Names() {
		info, err := shaders.Describe(module)
		require.NoError(t, err)
		bound := map[uint32]string{}
		for _, b := range scoreBuffers {
			if _, told := info.Interface.Constants[b.constant]; !told {
				continue
			}
			at, has := info.Interface.Bindings[b.name]
			require.True(t, has, "%s has %s and no %s", module, b.constant, b.name)
			require.Empty(t, bound[at], "%s: %s at %d", module, b.name, at)
			bound[at] = b.name
			found[b.name]++
		}
	}
	require.Len(t, found, len(scoreBuffers))
}
