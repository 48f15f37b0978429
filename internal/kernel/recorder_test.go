package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/pipeline"
)

// TestUnknownBuffers: a name that a module has no buffer of is an error that gives both.
func TestUnknownBuffers(t *testing.T) {
	var r Recorder
	b := r.bind(nil, pipeline.Binding{})
	_, err := b.done("merge")
	require.NoError(t, err)
	b.to("Sums1", pipeline.Binding{}, pipeline.Read)
	_, err = b.done("merge")
	require.EqualError(t, err, "flash: merge has no buffer Sums1")
}
