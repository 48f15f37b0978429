package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/vkattn/vkattn/internal/diskfile"
)

// The file of a pipeline cache is a header, little-endian, followed by what vkGetPipelineCacheData gave:
//
//	 0  magic            8 bytes
//	 8  vendor, device, driver version   3 × uint32
//	20  pipelineCacheUUID               16 bytes
//	36  length of the data              uint64
//	44  SHA-256 of the data             32 bytes
//
// A driver trusts cache data that bears its own header, and some crash on damaged data; so nothing reaches the driver whose
// length and checksum do not agree. Other processes may load and store at any time: a store replaces the file whole, and holds
// a lock from reading to replacing so that two stores merge instead of losing one another's pipelines.
const (
	cacheHeaderSize = 76
	maxCacheSize    = 1 << 30
)

var cacheMagic = [8]byte{'V', 'K', 'A', 'T', 'P', 'C', '0', '1'}

// cacheID is what cache data must have been made by to be of use.
type cacheID struct {
	Vendor, Device, Driver uint32
	UUID                   [16]byte
}

// fileName is different for devices and drivers whose data differ, so that they do not overwrite one another.
func (id cacheID) fileName() string {
	return fmt.Sprintf("%04x-%04x-%08x-%x.bin", id.Vendor, id.Device, id.Driver, id.UUID)
}

func encodeCache(id cacheID, data []byte) []byte {
	b := make([]byte, 0, cacheHeaderSize+len(data))
	b = append(b, cacheMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, id.Vendor)
	b = binary.LittleEndian.AppendUint32(b, id.Device)
	b = binary.LittleEndian.AppendUint32(b, id.Driver)
	b = append(b, id.UUID[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	sum := sha256.Sum256(data)
	b = append(b, sum[:]...)
	return append(b, data...)
}

// decodeCache returns the cache data in a file, or why it cannot be used on this device.
func decodeCache(id cacheID, file []byte) ([]byte, error) {
	if len(file) < cacheHeaderSize || !bytes.Equal(file[:8], cacheMagic[:]) {
		return nil, errors.New("not a pipeline cache file")
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(file[at:]) }
	got := cacheID{Vendor: u32(8), Device: u32(12), Driver: u32(16), UUID: [16]byte(file[20:36])}
	if got != id {
		return nil, errors.New("made by another device or driver")
	}
	data := file[cacheHeaderSize:]
	if n := binary.LittleEndian.Uint64(file[36:]); n != uint64(len(data)) {
		return nil, fmt.Errorf("holds %d bytes of data, its header says %d", len(data), n)
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], file[44:cacheHeaderSize]) {
		return nil, errors.New("checksum does not match")
	}
	return data, checkDriverHeader(id, data)
}

// checkDriverHeader checks the header that the specification gives the data itself (VkPipelineCacheHeaderVersionOne).
func checkDriverHeader(id cacheID, data []byte) error {
	if len(data) < 32 {
		return fmt.Errorf("driver data of %d bytes is too short", len(data))
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
	if u32(0) < 32 || u32(4) != 1 {
		return errors.New("driver data has an unknown header")
	}
	if u32(8) != id.Vendor || u32(12) != id.Device || [16]byte(data[16:32]) != id.UUID {
		return errors.New("driver data was made by another device or driver")
	}
	return nil
}

// readCache reads and checks a cache file. A file that is not there is no error and gives no data.
func readCache(path string, id cacheID) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, maxCacheSize+cacheHeaderSize))
	if err != nil {
		return nil, err
	}
	data, err := decodeCache(id, file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// storeCache replaces a cache file by merge(what valid data it holds now, nil if none). Concurrent stores, from this process
// or others, take turns. It gives what was wrong with a file that was there, too.
func storeCache(path string, id cacheID, merge func(onDisk []byte) ([]byte, error)) (damage, err error) {
	err = diskfile.Update(path, func() ([]byte, error) {
		var onDisk []byte
		onDisk, damage = readCache(path, id)
		data, err := merge(onDisk)
		if err != nil {
			return nil, err
		}
		if len(data) > maxCacheSize {
			return nil, fmt.Errorf("the cache has grown to %s; delete %s", humanBytes(uint64(len(data))), path)
		}
		return encodeCache(id, data), nil
	})
	return damage, err
}
