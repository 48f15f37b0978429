package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/spirv"
)

var testID = cacheID{Vendor: 0x10de, Device: 0x2335, Driver: 0x90210000, UUID: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
	14, 15, 16}}

// driverData makes data with the header that a driver gives it.
func driverData(id cacheID, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 32)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, id.Vendor)
	b = binary.LittleEndian.AppendUint32(b, id.Device)
	b = append(b, id.UUID[:]...)
	return append(b, body...)
}

// keptData is what is kept of a kernel of which a driver made that data.
func keptData(data []byte) *kept {
	return &kept{prepared{sha256.Sum256(data), []uint32{spirv.Magic, 0, 127, 128, 0x10000, math.MaxUint32, uint32(len(data))}}, data}
}

// keptBy is what is kept of a kernel of which a driver made data with that body.
func keptBy(id cacheID, body string) *kept { return keptData(driverData(id, body)) }

func TestCacheFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", testID.folder(), "x.bin")
	got, err := readCache(path, testID)
	require.NoError(t, err, "a missing file is no error")
	require.Nil(t, got)

	for _, body := range []string{"a pipeline", "another"} {
		want := keptBy(testID, body)
		require.NoError(t, storeCache(path, encodeCache(testID, want)))
		got, err = readCache(path, testID)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "no temporary files stay, and no locks")
}

// TestCacheFileDamage flips every byte in turn, cuts the file at every length and checks that nothing of it gets through.
func TestCacheFileDamage(t *testing.T) {
	file := encodeCache(testID, keptBy(testID, "some pipelines"))
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
		_, err := decodeCache(testID, encodeCache(other, keptBy(other, "x")))
		assert.Error(t, err)
		assert.NotEqual(t, testID.folder(), other.folder())
	}
	// A sound file around data that its driver made on another device.
	other := testID
	other.Device++
	_, err := decodeCache(testID, encodeCache(testID, keptBy(other, "x")))
	assert.Error(t, err)
	_, err = decodeCache(testID, encodeCache(testID, keptData([]byte("short"))))
	assert.Error(t, err)
}

// TestPackWords: all words come back, in the one form that they have, and nothing else is taken for words.
func TestPackWords(t *testing.T) {
	words := []uint32{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1 << 28, math.MaxUint32}
	packed := packWords(nil, words)
	require.Len(t, packed, 1+1+1+2+2+3+5+5)
	got, err := unpackWords(packed)
	require.NoError(t, err)
	require.Equal(t, words, got)
	for name, bad := range map[string][]byte{
		"ends within a word": {1, 0x80}, "longer than it must be": {0x81, 0}, "33 bits": {0xff, 0xff, 0xff, 0xff, 0x1f},
		"more than 64 bits": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		_, err := unpackWords(bad)
		require.Error(t, err, name)
	}
}

// BenchmarkCacheFile reads a file of a large kernel, without the disk.
func BenchmarkCacheFile(b *testing.B) {
	words := make([]uint32, 50_000) // as of a kernel on matrices, specialized: identifiers above all
	for i := range words {
		words[i] = uint32(i*7919) % 12_000
	}
	k := keptBy(testID, string(make([]byte, 200<<10)))
	k.words = words
	file := encodeCache(testID, k)
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := decodeCache(testID, file); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCacheFileUnwritablePlace(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	assert.Error(t, storeCache(filepath.Join(blocked, "cache.bin"), encodeCache(testID, keptBy(testID, ""))))
}

func TestHumanBytes(t *testing.T) {
	assert.Equal(t, "0 B", humanBytes(0))
	assert.Equal(t, "1023 B", humanBytes(1023))
	assert.Equal(t, "1.5 KiB", humanBytes(1536))
	assert.Equal(t, "4 GiB", humanBytes(4<<30))
	assert.Equal(t, "16 EiB", humanBytes(^uint64(0)))
}
