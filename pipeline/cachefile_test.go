package pipeline

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testID = cacheID{Vendor: 0x10de, Device: 0x2335, Driver: 0x90210000, UUID: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}

// driverData makes data with the header that a driver gives it.
func driverData(id cacheID, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 32)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, id.Vendor)
	b = binary.LittleEndian.AppendUint32(b, id.Device)
	b = append(b, id.UUID[:]...)
	return append(b, body...)
}

// store is storeCache of testID.
func store(path string, merge func(onDisk []byte) ([]byte, error)) error {
	_, err := storeCache(path, testID, merge)
	return err
}

func TestCacheFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", testID.fileName())
	got, err := readCache(path, testID)
	require.NoError(t, err, "a missing file is no error")
	require.Nil(t, got)

	want := driverData(testID, "pipelines")
	require.NoError(t, store(path, func(onDisk []byte) ([]byte, error) {
		assert.Nil(t, onDisk)
		return want, nil
	}))
	got, err = readCache(path, testID)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.tmp"))
	require.NoError(t, err)
	assert.Empty(t, left, "no temporary files stay")
}

// TestCacheFileDamage flips every byte in turn, cuts the file at every length and checks that nothing of it gets through.
func TestCacheFileDamage(t *testing.T) {
	file := encodeCache(testID, driverData(testID, "some pipelines"))
	_, err := decodeCache(testID, file)
	require.NoError(t, err)
	for i := range file {
		bad := append([]byte{}, file...)
		bad[i] ^= 0x40
		_, err := decodeCache(testID, bad)
		assert.Error(t, err, "byte %d flipped", i)
		_, err = decodeCache(testID, file[:i])
		assert.Error(t, err, "cut at %d", i)
	}
	_, err = decodeCache(testID, append(file, 0))
	assert.Error(t, err, "one byte too many")
}

func TestCacheFileOfAnotherDevice(t *testing.T) {
	for _, change := range []func(*cacheID){
		func(i *cacheID) { i.Vendor++ }, func(i *cacheID) { i.Device++ }, func(i *cacheID) { i.Driver++ }, func(i *cacheID) { i.UUID[7]++ },
	} {
		other := testID
		change(&other)
		_, err := decodeCache(testID, encodeCache(other, driverData(other, "x")))
		assert.Error(t, err)
		assert.NotEqual(t, testID.fileName(), other.fileName())
	}
	// A sound file around data that its driver made on another device.
	other := testID
	other.Device++
	_, err := decodeCache(testID, encodeCache(testID, driverData(other, "x")))
	assert.Error(t, err)
	_, err = decodeCache(testID, encodeCache(testID, []byte("short")))
	assert.Error(t, err)
}

// TestCacheFileConcurrentStores lets many writers each add a line to what they find. With the lock none is lost; readers in
// between see whole files only.
func TestCacheFileConcurrentStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), testID.fileName())
	const writers = 16
	var wg sync.WaitGroup
	for i := range writers {
		wg.Add(2)
		go func() {
			defer wg.Done()
			assert.NoError(t, store(path, func(onDisk []byte) ([]byte, error) {
				if onDisk == nil {
					onDisk = driverData(testID, "")
				}
				return append(onDisk, "writer "+string(rune('a'+i))+"\n"...), nil
			}))
		}()
		go func() {
			defer wg.Done()
			_, err := readCache(path, testID)
			assert.NoError(t, err)
		}()
	}
	wg.Wait()
	data, err := readCache(path, testID)
	require.NoError(t, err)
	assert.Equal(t, writers, strings.Count(string(data), "writer "))
}

func TestCacheFileUnwritablePlace(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	err := store(filepath.Join(blocked, "cache.bin"), func([]byte) ([]byte, error) { return driverData(testID, ""), nil })
	assert.Error(t, err)
}

func TestHumanBytes(t *testing.T) {
	assert.Equal(t, "0 B", humanBytes(0))
	assert.Equal(t, "1023 B", humanBytes(1023))
	assert.Equal(t, "1.5 KiB", humanBytes(1536))
	assert.Equal(t, "4 GiB", humanBytes(4<<30))
	assert.Equal(t, "16 EiB", humanBytes(^uint64(0)))
}
