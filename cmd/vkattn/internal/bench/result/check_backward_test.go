package result

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePasses(t *testing.T) {
	for _, c := range []struct {
		list []string
		want Passes
	}{{nil, Passes{}}, {[]string{"fwd"}, Passes{Fwd: true}}, {[]string{"bwd"}, Passes{Bwd: true}},
		{[]string{"both"}, Passes{Fwd: true, Bwd: true}}, {[]string{"fwd", " BWD"}, Passes{Fwd: true, Bwd: true}},
		{[]string{"jvp"}, Passes{Fwd: true, JVP: true}}} {
		got, err := ParsePasses(c.list)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := ParsePasses([]string{"sideways"})
	require.ErrorContains(t, err, "sideways")
}
