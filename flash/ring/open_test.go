package ring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestOpenRank: a rank by itself opens the device that it has among all; ranks that there are not, and more than there are devices, are
// named.
func TestOpenRank(t *testing.T) {
	sharedDevices(t, 1) // or there is none
	all, err := Open(2, true, flash.WithoutDiskCache())
	require.NoError(t, err)
	for rank, d := range all {
		one, err := OpenRank(rank, 2, true, flash.WithoutDiskCache())
		require.NoError(t, err)
		require.Equal(t, d.Info().Index, one.Info().Index)
		require.NoError(t, one.Close())
		require.NoError(t, d.Close())
	}
	for name, open := range map[string]func() (*flash.Device, error){
		"rank":  func() (*flash.Device, error) { return OpenRank(2, 2, true) },
		"ranks": func() (*flash.Device, error) { return OpenRank(1, 1000, false) },
	} {
		_, err := open()
		var bad *flash.ArgumentError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Argument)
	}
}
