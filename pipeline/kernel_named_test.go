package pipeline

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKernelByName: code that is named is loaded once, for the first kernel of that name and these constants, and one that cannot be loaded is asked
// for again.
func TestKernelByName(t *testing.T) {
	c := newContext(t, Options{})
	loads := 0
	info := mixInfo(t, 3)
	code := info.Code
	info.Code, info.Identity = nil, "mix of testdata"
	var broken error
	info.Load = func() ([]uint32, error) { loads++; return code, broken }

	broken = errors.New("unreadable")
	_, err := c.Kernel(info)
	require.ErrorIs(t, err, broken)
	broken = nil
	k, err := c.Kernel(info)
	require.NoError(t, err)
	require.Equal(t, 2, loads)
	again, err := c.Kernel(info)
	require.NoError(t, err)
	require.Same(t, k, again)
	require.Equal(t, 2, loads, "nothing is loaded for a kernel that exists")

	other := info
	other.Spec = mixInfo(t, 4).Spec
	differs, err := c.Kernel(other)
	require.NoError(t, err)
	require.NotSame(t, k, differs)
	other = info
	other.Identity = "another"
	differs, err = c.Kernel(other)
	require.NoError(t, err)
	require.NotSame(t, k, differs)
	require.Equal(t, 4, loads)

	for rule, change := range map[string]func(*KernelInfo){
		"must name the code":     func(i *KernelInfo) { i.Identity = "" },
		"must be nil beside":     func(i *KernelInfo) { i.Code = code },
		"must be a SPIR-V modul": func(i *KernelInfo) { i.Identity, i.Load = "bad", func() ([]uint32, error) { return code[:3], nil } },
	} {
		bad := info
		change(&bad)
		_, err := c.Kernel(bad)
		require.ErrorContains(t, err, rule)
	}
}
