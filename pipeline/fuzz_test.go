package pipeline

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzCacheFile: what is read of a cache file is what was stored for the device, or nothing.
func FuzzCacheFile(f *testing.F) {
	id := cacheID{Vendor: 1, Device: 2, Driver: 3, UUID: [16]byte{4}}
	data := make([]byte, 40) // as a driver begins it
	data[0], data[4], data[8], data[12], data[16] = 32, 1, 1, 2, 4
	good := encodeCache(id, keptData(data))
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), 0))
	f.Add(good[:cacheHeaderSize])
	f.Add([]byte(cacheMagic[:]))
	got, err := decodeCache(id, good)
	require.NoError(f, err)
	require.Equal(f, keptData(data), got)
	f.Fuzz(func(t *testing.T, file []byte) {
		k, err := decodeCache(id, file)
		if err == nil && !bytes.Equal(encodeCache(id, k), file) {
			t.Fatalf("%d bytes accepted that nobody stored", len(file))
		}
	})
}
