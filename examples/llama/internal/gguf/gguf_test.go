package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

func read(file []byte) (*File, error) { return Read(bytes.NewReader(file), int64(len(file))) }

// sample is a file with an entry of each type that Write knows, and a tensor of each type that is read.
func sample(t testing.TB) ([]byte, map[string][]float32) {
	var tensors []Values
	want := map[string][]float32{}
	add := func(of Type, dims []int, data []byte, x []float32) {
		tensors = append(tensors, Values{of.String(), of, dims, data})
		want[of.String()] = x
	}
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*i+1))) * 3
	}
	known := map[Type]attn.DType{F32: attn.F32, F16: attn.F16, BF16: attn.BF16, Q8_0: attn.Q8_0, Q5_1: attn.Q5_1,
		Q5_0: attn.Q5_0, Q4_1: attn.Q4_1, Q4_0: attn.Q4_0}
	for _, of := range Types() {
		stored, narrow := known[of]
		if !narrow {
			continue // K types: TestKTypes
		}
		data, back := make([]byte, stored.Bytes(len(x))), make([]float32, len(x))
		attn.Encode(stored, data, x)
		attn.Decode(stored, back, data)
		add(of, []int{32, 2}, data, back)
	}
	var out bytes.Buffer
	require.NoError(t, Write(&out, []Entry{{"u", uint32(7)}, {"i", int32(-7)}, {"f", float32(0.5)}, {"yes", true}, {"s", "text"},
		{"ss", []string{"a", "", "ccc"}}, {"ff", []float32{1, 2}}, {"ii", []int32{-1, 1}}}, tensors))
	return out.Bytes(), want
}

// TestRead: what is written is read again, and elements are those that the library's own oracle decodes.
func TestRead(t *testing.T) {
	file, want := sample(t)
	f, err := read(file)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"u": uint32(7), "i": int32(-7), "f": float32(0.5), "yes": true, "s": "text",
		"ss": []string{"a", "", "ccc"}, "ff": []float32{1, 2}, "ii": []int32{-1, 1}}, f.Metadata)
	require.Len(t, f.Tensors, len(want))
	for _, of := range Types() {
		if want[of.String()] == nil {
			continue
		}
		tensor, err := f.Tensor(of.String())
		require.NoError(t, err)
		require.True(t, tensor.Is(32, 2))
		data, err := tensor.Data()
		require.NoError(t, err)
		got := make([]float32, 64)
		of.Floats(got, data)
		require.Equal(t, want[of.String()], got, of)
	}
	n, err := f.Int("i")
	require.NoError(t, err)
	require.Equal(t, -7, n)
	x, err := f.Float("u")
	require.NoError(t, err)
	require.Equal(t, 7.0, x)
	_, err = f.Int("s")
	require.ErrorIs(t, err, ErrMalformed)
	_, err = Get[string](f, "u")
	require.ErrorIs(t, err, ErrMalformed)
	_, err = f.Tensor("none")
	require.ErrorIs(t, err, ErrMissing)
	n, err = Or(f.Int("none"))(3)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	_, err = Or(f.Int("s"))(3)
	require.ErrorIs(t, err, ErrMalformed)
}

// TestKTypes: numbers are those that ggml's own library makes, to the bit.
func TestKTypes(t *testing.T) {
	golden, _, err := ref.ReadSafetensors("testdata/blocks.safetensors")
	require.NoError(t, err)
	for _, of := range []Type{Q4_K, Q5_K, Q6_K} {
		want, err := golden[of.String()+".x"].Floats()
		require.NoError(t, err)
		got := make([]float32, len(want))
		of.Floats(got, golden[of.String()].Data)
		require.Equal(t, want, got, of)
	}
}

// TestHalves: all numbers of fp16 are those of the library's oracle.
func TestHalves(t *testing.T) {
	for i := range 1 << 16 {
		var want, got [1]float32
		raw := binary.LittleEndian.AppendUint16(nil, uint16(i))
		attn.Decode(attn.F16, want[:], raw)
		F16.Floats(got[:], raw)
		if math.IsNaN(float64(want[0])) {
			require.True(t, math.IsNaN(float64(got[0])), i)
		} else {
			require.Equal(t, math.Float32bits(want[0]), math.Float32bits(got[0]), i)
		}
	}
}

// TestTruncated: a file that ends anywhere too soon is an error, which says so.
func TestTruncated(t *testing.T) {
	file, _ := sample(t)
	f, err := read(file)
	require.NoError(t, err)
	last := f.Tensors[len(f.Tensors)-1]
	for n := range int(last.Offset + last.Bytes) { // what follows is padding
		_, err := read(file[:n])
		if n < 4 {
			require.ErrorIs(t, err, ErrNotGGUF, n)
		} else {
			require.ErrorIs(t, err, ErrTruncated, n)
		}
	}
}

// header is the beginning of a file of one tensor or none, and of one entry or none.
func header(tensors, entries uint64, rest ...any) []byte {
	var b bytes.Buffer
	b.WriteString("GGUF")
	for _, v := range append([]any{uint32(3), tensors, entries}, rest...) {
		if s, ok := v.(string); ok {
			v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
		}
		binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

// hostile are files that lie, by the error that they are.
func hostile() map[error][][]byte {
	tensor := func(dims []uint64, of uint32, offset uint64) []byte {
		rest := []any{"t", uint32(len(dims))}
		for _, n := range dims {
			rest = append(rest, n)
		}
		return append(header(1, 0, append(rest, of, offset)...), make([]byte, 256)...)
	}
	entry := func(kind uint32, rest ...any) []byte { return header(0, 1, append([]any{"k", kind}, rest...)...) }
	const huge = uint64(1) << 62
	version := header(0, 0)
	version[4] = 1
	return map[error][][]byte{
		ErrNotGGUF: {[]byte("GGML\x03\x00\x00\x00"), nil},
		ErrVersion: {version},
		ErrTruncated: {
			entry(kindArray, uint32(kindUint64), huge), entry(kindArray, uint32(kindString), huge), entry(kindString, uint64(1000)),
			entry(kindArray, uint32(kindUint8), uint64(1)<<63),
			tensor([]uint64{1 << 20}, 0, 0), tensor([]uint64{32}, 0, 1<<40), tensor([]uint64{32}, 0, 1<<63), tensor([]uint64{32}, 0, huge),
		},
		ErrMalformed: {
			header(huge, 0), header(0, huge), entry(kindString, huge), entry(kindBool, uint8(2)),
			header(0, 2, "k", uint32(kindUint8), uint8(0), "k", uint32(kindUint8), uint8(0)),
			tensor([]uint64{0}, 0, 0), tensor([]uint64{1 << 31, 1 << 31, 1 << 31, 1 << 31}, 0, 0), tensor(nil, 0, 0),
			tensor([]uint64{1 << 30, 1 << 30, 1 << 30, 1 << 30}, 0, 0),
			tensor([]uint64{1, 1, 1, 1, 1}, 0, 0), tensor([]uint64{33}, 8, 0), tensor([]uint64{32}, 0, 7),
			header(0, 1, "general.alignment", uint32(kindUint32), uint32(3)),
			header(0, 1, "general.alignment", uint32(kindUint32), uint32(0)),
			header(0, 1, "general.alignment", uint32(kindString), "32"),
			header(2, 0, "t", uint32(1), uint64(1), uint32(0), uint64(0), "t", uint32(1), uint64(1), uint32(0), uint64(0)),
		},
		ErrType: {entry(99, uint64(0)), entry(kindArray, uint32(kindArray), uint64(1), make([]byte, 64)),
			entry(kindArray, uint32(99), uint64(1)),
			tensor([]uint64{256}, 10, 0), tensor([]uint64{32}, 1000, 0)},
	}
}

// TestHostile: files that lie about sizes are named errors, and take no memory for what is not there.
func TestHostile(t *testing.T) {
	for want, files := range hostile() {
		for i, file := range files {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := read(file)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, want, "%v, number %d", want, i)
			var named *Error
			require.ErrorAs(t, err, &named)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), err)
		}
	}
	_, err := read(hostile()[ErrType][3])
	require.ErrorContains(t, err, "tensor t: a type that is not read: Q2_K; read are [F32 F16 BF16 Q8_0 Q6_K ")
}

// FuzzRead: whatever a file holds, reading it gives a named error, or tensors whose data lies in the file.
func FuzzRead(f *testing.F) {
	file, _ := sample(f)
	f.Add(file)
	f.Add(file[:len(file)/2])
	for _, files := range hostile() {
		for _, file := range files {
			f.Add(file)
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		g, err := read(file)
		if err != nil {
			var named *Error
			require.ErrorAs(t, err, &named)
			return
		}
		for _, tensor := range g.Tensors {
			data, err := tensor.Data()
			require.NoError(t, err)
			elements := 1
			for _, n := range tensor.Dims {
				elements *= n
			}
			if elements < 1<<20 {
				tensor.Type.Floats(make([]float32, elements), data)
			}
		}
	})
}
