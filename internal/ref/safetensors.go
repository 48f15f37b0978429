package ref

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/plainjson"
)

// Stored is one tensor of a safetensors file.
type Stored struct {
	DType string // F32, F16, BF16, U8, …
	Shape []int
	Data  []byte
}

// ReadSafetensors reads a file of tensors by name and its metadata. The format (the safetensors
// README): an 8-byte little-endian length, that many bytes of JSON with each tensor's dtype, shape and
// byte range in what follows.
func ReadSafetensors(path string) (map[string]Stored, map[string]string, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	tensors, metadata, err := ParseSafetensors(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return tensors, metadata, nil
}

// ParseSafetensors is ReadSafetensors of a file's bytes; the tensors share them.
func ParseSafetensors(file []byte) (map[string]Stored, map[string]string, error) {
	if len(file) < 8 {
		return nil, nil, fmt.Errorf("safetensors: %d bytes, too short for a header", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	if n > uint64(len(file)-8) {
		return nil, nil, fmt.Errorf("safetensors: header of %d bytes in a file of %d", n, len(file))
	}
	var header map[string]json.RawMessage
	if err := plainjson.Unmarshal(file[8:8+n], &header); err != nil {
		return nil, nil, fmt.Errorf("safetensors: header: %w", err)
	}
	if name := plainjson.Twice(file[8 : 8+n]); name != "" {
		return nil, nil, fmt.Errorf("safetensors: header: %q stands in it twice", name)
	}
	metadata := map[string]string{}
	tensors := map[string]Stored{}
	body := file[8+n:]
	var ranges []byteRange
	for name, raw := range header {
		if name == "__metadata__" {
			if err := plainjson.Unmarshal(raw, &metadata); err != nil {
				return nil, nil, fmt.Errorf("safetensors: metadata: %w", err)
			}
			continue
		}
		var entry struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		if err := plainjson.Unmarshal(raw, &entry); err != nil {
			return nil, nil, fmt.Errorf("safetensors: tensor %s: %w", name, err)
		}
		from, to := entry.Offsets[0], entry.Offsets[1]
		if from < 0 || to < from || to > len(body) {
			return nil, nil, fmt.Errorf("safetensors: tensor %s: bytes %d to %d of %d", name, from, to, len(body))
		}
		tensors[name] = Stored{entry.DType, entry.Shape, body[from:to]}
		ranges = append(ranges, byteRange{from, to, name})
	}
	if err := apart(ranges); err != nil {
		return nil, nil, err
	}
	return tensors, metadata, nil
}

// byteRange is where a tensor lies.
type byteRange struct {
	from, to int
	name     string
}

// apart says which two tensors have bytes in common.
func apart(all []byteRange) error {
	slices.SortFunc(all, func(a, b byteRange) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), strings.Compare(a.name, b.name))
	})
	var last byteRange
	for _, r := range all {
		if r.from < last.to && r.from < r.to {
			return fmt.Errorf("safetensors: tensor %s: its bytes %d to %d overlap those of %s, %d to %d", r.name, r.from, r.to, last.name,
				last.from, last.to)
		}
		if r.to > last.to {
			last = r
		}
	}
	return nil
}

// Floats decodes an F32, F16, BF16, U8 or I32 tensor, the last of numbers that fp32 has.
func (s Stored) Floats() ([]float32, error) {
	var out []float32
	switch s.DType {
	case "F32":
		out = F32.Decode(s.Data)
	case "F16":
		out = F16.Decode(s.Data)
	case "BF16":
		out = BF16.Decode(s.Data)
	case "U8", "BOOL":
		for _, b := range s.Data {
			out = append(out, float32(b))
		}
	case "I32":
		for at := 0; at+4 <= len(s.Data); at += 4 {
			n := int32(binary.LittleEndian.Uint32(s.Data[at:]))
			if n < -1<<24 || n > 1<<24 {
				return nil, fmt.Errorf("safetensors: %d: want integers from -2²⁴ to 2²⁴", n)
			}
			out = append(out, float32(n))
		}
	default:
		return nil, fmt.Errorf("safetensors: dtype %s: want F32, F16, BF16, U8 or I32", s.DType)
	}
	if !s.holds(len(out)) {
		return nil, fmt.Errorf("safetensors: %d elements of shape %v", len(out), s.Shape)
	}
	return out, nil
}

// Fits says what is wrong with the shape, if anything, where an element takes so many bytes.
func (s Stored) Fits(size int) error {
	if len(s.Data)%size != 0 || !s.holds(len(s.Data)/size) {
		return fmt.Errorf("safetensors: %d bytes of %s of shape %v", len(s.Data), s.DType, s.Shape)
	}
	return nil
}

// holds says whether the shape has n elements.
func (s Stored) holds(n int) bool {
	want, empty := 1, false
	for _, d := range s.Shape {
		switch {
		case d < 0:
			return false
		case d == 0:
			empty = true
		case want > n/d:
			want = n + 1 // too many, unless another length is 0
		default:
			want *= d
		}
	}
	return empty && n == 0 || !empty && want == n
}
