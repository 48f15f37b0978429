package ref

import (
	"encoding/binary"
	"math/big"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSafetensors: any bytes are tensors whose data fit their shapes, or an error.
func FuzzSafetensors(f *testing.F) {
	file := func(header string, body int) []byte {
		out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(out, header...), make([]byte, body)...)
	}
	f.Add(file(`{"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"__metadata__":{"a":"b"}}`, 8))
	f.Add(file(`{"x":{"dtype":"F16","shape":[-2,-1],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"x":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0))
	f.Add(file(`{"x":{"dtype":"BF16","shape":[0,9223372036854775807],"data_offsets":[3,3]}}`, 9))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, text []byte) {
		tensors, _, err := ParseSafetensors(text)
		if err != nil {
			return
		}
		for name, s := range tensors {
			values, err := s.Floats()
			if err != nil {
				continue
			}
			n := big.NewInt(1)
			for _, d := range s.Shape {
				if d < 0 {
					t.Fatalf("%s has shape %v", name, s.Shape)
				}
				n.Mul(n, big.NewInt(int64(d)))
			}
			if !n.IsInt64() || n.Int64() != int64(len(values)) {
				t.Fatalf("%s: %d elements of %v", name, len(values), s.Shape)
			}
		}
	})
}

// FuzzVector: a golden file that is damaged anywhere is an error, or a problem that can be computed.
func FuzzVector(f *testing.F) {
	names, err := filepath.Glob("../../cmd/vkattn/internal/conformance/vectors/*.safetensors")
	if err != nil || len(names) == 0 {
		f.Fatal("no vectors", err)
	}
	smallest, size := "", int64(1<<62)
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Size() < size {
			smallest, size = name, info.Size()
		}
	}
	good, err := os.ReadFile(smallest)
	if err != nil {
		f.Fatal(err)
	}
	header := int(binary.LittleEndian.Uint64(good))
	f.Add(uint32(0), []byte{})
	f.Add(uint32(9), []byte("x"))
	f.Add(uint32(header-20), []byte("-1"))
	f.Add(uint32(header), []byte("[0,0]"))
	f.Fuzz(func(t *testing.T, at uint32, bytes []byte) {
		damaged := append([]byte(nil), good...)
		copy(damaged[8+int(at)%(len(good)-8):], bytes)
		v, err := ParseVector(damaged)
		if err != nil {
			return
		}
		if q := v.Problem.Q; q.B*q.H*q.N*q.D < 1<<16 {
			if _, _, err := Forward(v.Problem); err != nil {
				t.Skip(err)
			}
			if _, _, err := JVP(v.Problem, v.Tangents); err != nil {
				t.Fatal("tangents of a problem that can be computed:", err)
			}
		}
	})
}
