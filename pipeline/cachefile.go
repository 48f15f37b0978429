package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/vkattn/vkattn/internal/diskfile"
)

// What is kept of a kernel lies in a file of its own, so that a process reads those of the kernels that it asks for: the words that the
// driver got, which are not made again then, and what the driver made of them. The file is a header, little-endian, followed by the words
// (packWords) and by what vkGetPipelineCacheData gave of a cache in which nothing but the kernel was made:
//
//	 0  magic            8 bytes
//	 8  vendor, device, driver version   3 × uint32
//	20  pipelineCacheUUID               16 bytes
//	36  length of the words, packed      uint64
//	44  length of the driver's data      uint64
//	52  SHA-256 of the module as it was before specialization   32 bytes
//	84  SHA-256 of all the rest         32 bytes
//
// A driver trusts cache data that bears its own header, and some crash on damaged data; so nothing reaches the driver whose
// length and checksum do not agree. Other processes may load, store and remove files at any time: a store replaces a file whole,
// and two processes that store one kernel store the same.
const (
	cacheSumAt      = 84
	cacheHeaderSize = cacheSumAt + sha256.Size
	maxCacheSize    = 1 << 30 // of a file
	cacheSuffix     = ".bin"
)

// cacheMagic counts the forms that files had. Names of files have it in them, so that nobody looks into a file of another form.
var cacheMagic = [8]byte{'V', 'K', 'A', 'T', 'P', 'C', '0', '2'}

// kept is what a file holds of a kernel.
type kept struct {
	prepared
	data []byte // the driver's
}

// cacheID is what cache data must have been made by to be of use.
type cacheID struct {
	Vendor, Device, Driver uint32
	UUID                   [16]byte
}

// folder is different for devices and drivers whose data differ.
func (id cacheID) folder() string {
	return fmt.Sprintf("%04x-%04x-%08x-%x", id.Vendor, id.Device, id.Driver, id.UUID)
}

func encodeCache(id cacheID, k *kept) []byte {
	b := make([]byte, 0, cacheHeaderSize+3*len(k.words)+len(k.data))
	b = append(b, cacheMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, id.Vendor)
	b = binary.LittleEndian.AppendUint32(b, id.Device)
	b = binary.LittleEndian.AppendUint32(b, id.Driver)
	b = append(b, id.UUID[:]...)
	b = append(b, make([]byte, 16)...)
	b = append(b, k.code[:]...)
	b = packWords(append(b, make([]byte, sha256.Size)...), k.words)
	binary.LittleEndian.PutUint64(b[36:], uint64(len(b)-cacheHeaderSize))
	binary.LittleEndian.PutUint64(b[44:], uint64(len(k.data)))
	b = append(b, k.data...)
	sum := cacheSum(b)
	copy(b[cacheSumAt:], sum[:])
	return b
}

// cacheSum is the checksum of a file.
func cacheSum(file []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(file[:cacheSumAt])
	h.Write(file[cacheHeaderSize:])
	return [sha256.Size]byte(h.Sum(sum[:0]))
}

// decodeCache returns what a file holds, or why it cannot be used on this device.
func decodeCache(id cacheID, file []byte) (*kept, error) {
	if len(file) < cacheHeaderSize || !bytes.Equal(file[:8], cacheMagic[:]) {
		return nil, errors.New("not a pipeline cache file")
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(file[at:]) }
	got := cacheID{Vendor: u32(8), Device: u32(12), Driver: u32(16), UUID: [16]byte(file[20:36])}
	if got != id {
		return nil, errors.New("made by another device or driver")
	}
	rest := file[cacheHeaderSize:]
	packed, data := binary.LittleEndian.Uint64(file[36:]), binary.LittleEndian.Uint64(file[44:])
	if n := uint64(len(rest)); packed > n || data != n-packed {
		return nil, fmt.Errorf("holds %d bytes, its header says %d of words and %d of data", n, packed, data)
	}
	if sum := cacheSum(file); !bytes.Equal(sum[:], file[cacheSumAt:cacheHeaderSize]) {
		return nil, errors.New("checksum does not match")
	}
	k := &kept{data: rest[packed:]}
	copy(k.code[:], file[52:])
	var err error
	if k.words, err = unpackWords(rest[:packed]); err != nil {
		return nil, err
	}
	return k, checkDriverHeader(id, k.data)
}

// packWords appends the words of a module, seven bits a byte (encoding/binary's varint), of which most need two: so they take half their
// size, for less time than the checksum does.
func packWords(to []byte, words []uint32) []byte {
	for _, w := range words {
		to = binary.AppendUvarint(to, uint64(w))
	}
	return to
}

// unpackWords is its inverse, and takes nothing that packWords does not write.
func unpackWords(packed []byte) ([]uint32, error) {
	words := make([]uint32, 0, len(packed))
	for at := 0; at < len(packed); {
		w, n := binary.Uvarint(packed[at:])
		if n <= 0 || w > math.MaxUint32 || n > 1 && packed[at+n-1] == 0 {
			return nil, errors.New("holds no words of a module")
		}
		words, at = append(words, uint32(w)), at+n
	}
	return words, nil
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

// readCache reads and checks a cache file. A file that is not there is no error and gives nil.
func readCache(path string, id cacheID) (*kept, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, maxCacheSize))
	if err != nil {
		return nil, err
	}
	k, err := decodeCache(id, file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	touchFile(f, path)
	return k, nil
}

// storeCache replaces a cache file, or makes it and its folder.
func storeCache(path string, file []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return diskfile.Replace(path, file)
}
