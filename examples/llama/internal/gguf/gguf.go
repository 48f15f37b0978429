// Package gguf reads files of models as llama.cpp writes them: metadata, and tensors by name.
//
// A file is, little-endian and without gaps: the letters GGUF, a version (uint32), the numbers of tensors and of metadata entries (uint64),
// the entries (key, type, value), and for each tensor its name, dimensions, type and the offset of its data. Data begins at the next
// multiple of general.alignment, 32 where the file does not say, and offsets count from there. A text is its length (uint64) and its bytes.
//
// Nothing that a file says is believed before it is checked against the file's size: memory that is taken for something is at most a few
// times the bytes that the file has for it. Errors are of type *Error and name the place.
package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// What an *Error can be about; match them with errors.Is.
var (
	ErrNotGGUF   = errors.New("not a GGUF file")
	ErrVersion   = errors.New("a version that is not read: 2 and 3 are")
	ErrTruncated = errors.New("the file is shorter than it says")
	ErrMalformed = errors.New("malformed")
	ErrType      = errors.New("a type that is not read")
	ErrMissing   = errors.New("missing")
)

// Error is what is wrong with a file.
type Error struct {
	What string // the part of the file: an entry's key, a tensor's name
	Why  string // more, or ""
	Err  error  // one of the package's errors, or one of the reader's
}

func (e *Error) Error() string {
	s := fmt.Sprintf("gguf: %s: %v", e.What, e.Err)
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

func wrong(err error, what, why string, args ...any) error {
	return &Error{what, fmt.Sprintf(why, args...), err}
}

// File is a file whose header was read. Data of tensors stays in the file until Tensor.Data reads it.
type File struct {
	Version uint32
	// Metadata has values of Go's types of the same name: integers, floats, bool, string, and slices of these.
	Metadata map[string]any
	Tensors  []*Tensor // in the file's order

	byName map[string]*Tensor
}

// Tensor is an entry of a file's list of tensors.
type Tensor struct {
	Name string
	Type Type
	// Dims are the numbers of elements in each dimension. The first is the one whose elements are neighbours in memory: a matrix has
	// columns and rows.
	Dims   []int
	Offset int64 // of the data in the file
	Bytes  int64 // of the data
	From   io.ReaderAt
}

// New is a file of metadata and tensors from elsewhere, which other formats become. The error matches ErrMalformed where two have one name.
func New(metadata map[string]any, tensors []*Tensor) (*File, error) {
	f := &File{Metadata: metadata, Tensors: tensors, byName: map[string]*Tensor{}}
	for _, t := range tensors {
		if f.byName[t.Name] != nil {
			return nil, wrong(ErrMalformed, "tensor "+t.Name, "it is there twice")
		}
		f.byName[t.Name] = t
	}
	return f, nil
}

// What a header can have at most. Files of the largest models have some thousands of tensors, and hundreds of metadata entries.
const (
	mostTensors = 1 << 20
	mostEntries = 1 << 20
	mostDims    = 4
	mostText    = 1 << 24 // bytes: templates of chats are the longest
)

// Read reads the header of a file of size bytes.
func Read(from io.ReaderAt, size int64) (*File, error) {
	r := &reader{in: bufio.NewReaderSize(io.NewSectionReader(from, 0, size), 1<<16), left: size}
	f := &File{Metadata: map[string]any{}, byName: map[string]*Tensor{}}
	if magic := r.bytes("magic", 4); r.err != nil || string(magic) != "GGUF" {
		return nil, wrong(ErrNotGGUF, "magic", "it begins with %q", magic)
	}
	if f.Version = uint32(r.number("version", 4)); r.err == nil && f.Version != 2 && f.Version != 3 {
		return nil, wrong(ErrVersion, "version", "%d", f.Version)
	}
	tensors, entries := r.number("number of tensors", 8), r.number("number of metadata entries", 8)
	if tensors > mostTensors || entries > mostEntries {
		return nil, wrong(ErrMalformed, "header", "%d tensors and %d metadata entries", tensors, entries)
	}
	for i := uint64(0); i < entries && r.err == nil; i++ {
		r.entry(f)
	}
	for i := uint64(0); i < tensors && r.err == nil; i++ {
		r.tensor(f)
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, f.place(from, size-r.left, size)
}

// place finds where data lies. Headers end at the given byte.
func (f *File) place(from io.ReaderAt, end, size int64) error {
	const key = "general.alignment"
	alignment := int64(32)
	if _, there := f.Metadata[key]; there {
		n, err := f.Int(key)
		if err != nil {
			return err
		}
		if n < 1 || n > 1<<20 || n&(n-1) != 0 {
			return wrong(ErrMalformed, key, "%d is no power of two up to 2^20", n)
		}
		alignment = int64(n)
	}
	start := (end + alignment - 1) / alignment * alignment
	for _, t := range f.Tensors {
		if t.Offset%alignment != 0 {
			return wrong(ErrMalformed, "tensor "+t.Name, "offset %d is no multiple of the alignment, %d", t.Offset, alignment)
		}
		if t.Offset > size-start || t.Bytes > size-start-t.Offset {
			return wrong(ErrTruncated, "tensor "+t.Name, "%d bytes at %d of %d", t.Bytes, t.Offset, max(size-start, 0))
		}
		t.Offset += start
		t.From = from
	}
	return nil
}

// Data reads the bytes of a tensor.
func (t *Tensor) Data() ([]byte, error) {
	raw := make([]byte, t.Bytes)
	if _, err := t.From.ReadAt(raw, t.Offset); err != nil && !(errors.Is(err, io.EOF) && t.Bytes == 0) {
		return nil, wrong(err, "tensor "+t.Name, "")
	}
	return raw, nil
}

// Tensor is the tensor of a name. The error matches ErrMissing.
func (f *File) Tensor(name string) (*Tensor, error) {
	if t := f.byName[name]; t != nil {
		return t, nil
	}
	return nil, wrong(ErrMissing, "tensor "+name, "")
}

// Has says whether there is a tensor of a name.
func (f *File) Has(name string) bool { return f.byName[name] != nil }

// reader reads a header. After an error all it gives is zero.
type reader struct {
	in   *bufio.Reader
	left int64
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// take says whether n more bytes can be there.
func (r *reader) take(what string, n uint64) bool {
	if r.err == nil && n > uint64(r.left) {
		r.fail(wrong(ErrTruncated, what, "%d bytes, and %d are left", n, r.left))
	}
	if r.err != nil {
		return false
	}
	r.left -= int64(n)
	return true
}

func (r *reader) bytes(what string, n uint64) []byte {
	if !r.take(what, n) {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.in, b); err != nil {
		r.fail(wrong(err, what, ""))
		return nil
	}
	return b
}

// number reads an integer of up to 8 bytes.
func (r *reader) number(what string, bytes int) uint64 {
	if !r.take(what, uint64(bytes)) {
		return 0
	}
	var b [8]byte
	if _, err := io.ReadFull(r.in, b[:bytes]); err != nil {
		r.fail(wrong(err, what, ""))
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (r *reader) text(what string) string {
	n := r.number(what, 8)
	if n > mostText {
		r.fail(wrong(ErrMalformed, what, "a text of %d bytes", n))
		return ""
	}
	return string(r.bytes(what, n))
}

// Types of metadata values, in the file's numbers.
const (
	kindUint8 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// least is the fewest bytes that a value of each type takes.
var least = [...]uint64{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}

func (r *reader) entry(f *File) {
	key := r.text("a metadata key")
	kind := uint32(r.number(key, 4))
	if r.err != nil {
		return
	}
	if _, twice := f.Metadata[key]; twice {
		r.fail(wrong(ErrMalformed, key, "it is there twice"))
		return
	}
	f.Metadata[key] = r.value(key, kind)
}

func (r *reader) value(key string, kind uint32) any {
	switch kind {
	case kindUint8:
		return r.u8(key)
	case kindInt8:
		return int8(r.u8(key))
	case kindUint16:
		return r.u16(key)
	case kindInt16:
		return int16(r.u16(key))
	case kindUint32:
		return r.u32(key)
	case kindInt32:
		return int32(r.u32(key))
	case kindFloat32:
		return math.Float32frombits(r.u32(key))
	case kindBool:
		return r.boolean(key)
	case kindString:
		return r.text(key)
	case kindUint64:
		return r.u64(key)
	case kindInt64:
		return int64(r.u64(key))
	case kindFloat64:
		return math.Float64frombits(r.u64(key))
	case kindArray:
		return r.array(key)
	}
	r.fail(wrong(ErrType, key, "metadata of type %d", kind))
	return nil
}

func (r *reader) u8(key string) uint8   { return uint8(r.number(key, 1)) }
func (r *reader) u16(key string) uint16 { return uint16(r.number(key, 2)) }
func (r *reader) u32(key string) uint32 { return uint32(r.number(key, 4)) }
func (r *reader) u64(key string) uint64 { return r.number(key, 8) }

func (r *reader) boolean(key string) bool {
	b := r.u8(key)
	if b > 1 {
		r.fail(wrong(ErrMalformed, key, "a bool of %d", b))
	}
	return b == 1
}

func (r *reader) array(key string) any {
	kind, n := r.u32(key), r.u64(key)
	if r.err != nil {
		return nil
	}
	if kind >= uint32(len(least)) || kind == kindArray {
		r.fail(wrong(ErrType, key, "an array of type %d", kind))
		return nil
	}
	if n > uint64(r.left)/least[kind] {
		r.fail(wrong(ErrTruncated, key, "%d values, and %d bytes are left", n, r.left))
		return nil
	}
	switch kind {
	case kindUint8:
		return many(r, key, n, r.u8)
	case kindInt8:
		return many(r, key, n, func(key string) int8 { return int8(r.u8(key)) })
	case kindUint16:
		return many(r, key, n, r.u16)
	case kindInt16:
		return many(r, key, n, func(key string) int16 { return int16(r.u16(key)) })
	case kindUint32:
		return many(r, key, n, r.u32)
	case kindInt32:
		return many(r, key, n, func(key string) int32 { return int32(r.u32(key)) })
	case kindFloat32:
		return many(r, key, n, func(key string) float32 { return math.Float32frombits(r.u32(key)) })
	case kindBool:
		return many(r, key, n, r.boolean)
	case kindString:
		return many(r, key, n, r.text)
	case kindUint64:
		return many(r, key, n, r.u64)
	case kindInt64:
		return many(r, key, n, func(key string) int64 { return int64(r.u64(key)) })
	default:
		return many(r, key, n, func(key string) float64 { return math.Float64frombits(r.u64(key)) })
	}
}

// many reads n values, which the file has room for.
func many[T any](r *reader, key string, n uint64, one func(key string) T) []T {
	all := make([]T, 0, n)
	for range n {
		x := one(key)
		if r.err != nil {
			return nil
		}
		all = append(all, x)
	}
	return all
}

func (r *reader) tensor(f *File) {
	t := &Tensor{Name: r.text("a tensor's name")}
	what := "tensor " + t.Name
	dims := r.number(what, 4)
	if r.err == nil && (dims < 1 || dims > mostDims) {
		r.fail(wrong(ErrMalformed, what, "%d dimensions", dims))
	}
	elements := uint64(1)
	for d := uint64(0); d < dims && r.err == nil; d++ {
		n := r.number(what, 8)
		if r.err == nil && (n < 1 || n > math.MaxInt32 || elements > math.MaxInt64/8/n) {
			r.fail(wrong(ErrMalformed, what, "dimension %d is %d", d, n))
		}
		elements *= n
		t.Dims = append(t.Dims, int(n))
	}
	t.Type = Type(r.number(what, 4))
	offset := r.number(what, 8)
	if r.err != nil {
		return
	}
	if f.byName[t.Name] != nil {
		r.fail(wrong(ErrMalformed, what, "it is there twice"))
		return
	}
	if offset > math.MaxInt64 {
		r.fail(wrong(ErrTruncated, what, "offset %d", offset))
		return
	}
	t.Offset = int64(offset)
	block, bytes := t.Type.Block()
	if block == 0 {
		r.fail(wrong(ErrType, what, "%v; read are %v", t.Type, Types()))
		return
	}
	if t.Dims[0]%block != 0 {
		r.fail(wrong(ErrMalformed, what, "rows of %d elements, and %v has blocks of %d", t.Dims[0], t.Type, block))
		return
	}
	t.Bytes = int64(elements / uint64(block) * uint64(bytes))
	f.Tensors, f.byName[t.Name] = append(f.Tensors, t), t
}

// Int is a metadata entry of any type of integers. The error matches ErrMissing, or ErrMalformed where it is something else or too large.
func (f *File) Int(key string) (int, error) {
	switch x := f.Metadata[key].(type) {
	case nil:
		return 0, wrong(ErrMissing, key, "")
	case uint8:
		return int(x), nil
	case int8:
		return int(x), nil
	case uint16:
		return int(x), nil
	case int16:
		return int(x), nil
	case uint32:
		return int(x), nil
	case int32:
		return int(x), nil
	case uint64:
		if x <= math.MaxInt32 {
			return int(x), nil
		}
	case int64:
		if x >= math.MinInt32 && x <= math.MaxInt32 {
			return int(x), nil
		}
	}
	return 0, wrong(ErrMalformed, key, "%.40q must be an integer", fmt.Sprint(f.Metadata[key]))
}

// Float is a metadata entry that is a finite number. The error matches ErrMissing or ErrMalformed.
func (f *File) Float(key string) (float64, error) {
	var x float64
	switch v := f.Metadata[key].(type) {
	case float32:
		x = float64(v)
	case float64:
		x = v
	default:
		n, err := f.Int(key)
		return float64(n), err
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, wrong(ErrMalformed, key, "%v must be finite", x)
	}
	return x, nil
}

// Get is a metadata entry of exactly the type T: bool, string, a slice. The error matches ErrMissing or ErrMalformed.
func Get[T any](f *File, key string) (T, error) {
	v, there := f.Metadata[key]
	x, ok := v.(T)
	switch {
	case !there:
		return x, wrong(ErrMissing, key, "")
	case !ok:
		return x, wrong(ErrMalformed, key, "it is %T and must be %T", v, x)
	}
	return x, nil
}

// Or gives a default for what is missing.
func Or[T any](x T, err error) func(otherwise T) (T, error) {
	return func(otherwise T) (T, error) {
		if errors.Is(err, ErrMissing) {
			return otherwise, nil
		}
		return x, err
	}
}

// Is says whether a tensor has these dimensions.
func (t *Tensor) Is(dims ...int) bool { return slices.Equal(t.Dims, dims) }
