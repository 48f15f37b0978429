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
	"path/filepath"

	"github.com/vkattn/vkattn/internal/diskfile"
)

// What a driver made of a kernel is kept in a file of its own, so that a process reads those of the kernels that it asks for. The file is a header,
// little-endian, followed by what vkGetPipelineCacheData gave of a cache in which nothing but the kernel was made:
//
//	 0  magic            8 bytes
//	 8  vendor, device, driver version   3 × uint32
//	20  pipelineCacheUUID               16 bytes
//	36  length of the data              uint64
//	44  SHA-256 of the data             32 bytes
//
// A driver trusts cache data that bears its own header, and some crash on damaged data; so nothing reaches the driver whose
// length and checksum do not agree. Other processes may load, store and remove files at any time: a store replaces a file whole,
// and two processes that store one kernel store the same.
const (
	cacheHeaderSize = 76
	maxCacheSize    = 1 << 30 // of a file
	cacheSuffix     = ".bin"
)

var cacheMagic = [8]byte{'V', 'K', 'A', 'T', 'P', 'C', '0', '1'}

// cacheID is what cache data must have been made by to be of use.
type cacheID struct {
	Vendor, Device, Driver uint32
	UUID                   [16]byte
}

// folder is different for devices and drivers whose data differ.
func (id cacheID) folder() string {
	return fmt.Sprintf("%04x-%04x-%08x-%x", id.Vendor, id.Device, id.Driver, id.UUID)
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
	touchFile(f, path)
	return data, nil
}

// storeCache replaces a cache file, or makes it and its folder.
func storeCache(path string, id cacheID, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return diskfile.Replace(path, encodeCache(id, data))
}
