package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
)

// A model's file is safetensors: the length of a header as a little-endian uint64, the header in JSON, which says each tensor's type, shape
// and range of bytes, and the bytes. Weights are bfloat16, the upper halves of fp32. Sizes and alphabet stand in the header's metadata, as
// texts.

// stored is the header's entry of a tensor.
type stored struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// settings are a model's sizes and characters.
type settings struct {
	Width, Layers, Heads, KeyHeads, Dim, Hidden, Window int
	Alphabet                                            string
}

const metadataKey = "__metadata__"

// marshal is the file of a model.
func (m *model) marshal() ([]byte, error) {
	c := m.config
	about, err := json.Marshal(settings{c.width, c.layers, c.heads, c.keyHeads, c.dim, c.hidden, c.window, string(m.alphabet)})
	if err != nil {
		return nil, err
	}
	header := map[string]any{metadataKey: map[string]string{"model": string(about)}}
	var body []byte
	for _, p := range m.params() {
		from := len(body)
		for _, x := range p.x {
			bits := math.Float32bits(x)
			bits += 0x7fff + bits>>16&1 // to the nearest, ties to even
			body = binary.LittleEndian.AppendUint16(body, uint16(bits>>16))
		}
		header[p.name] = stored{"BF16", []int{p.rows, p.cols}, [2]int{from, len(body)}}
	}
	return safetensors(header, body)
}

// safetensors is a file of a header and the bytes it tells of.
func safetensors(header map[string]any, body []byte) ([]byte, error) {
	text, err := json.Marshal(header) // in the order of names: the same model gives the same bytes
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), body...), nil
}

// unmarshal reads the file of a model.
func unmarshal(file []byte) (*model, error) {
	if len(file) < 8 || binary.LittleEndian.Uint64(file) > uint64(len(file)-8) {
		return nil, fmt.Errorf("weights: %d bytes are too few for safetensors", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("weights: header: %w", err)
	}
	var metadata map[string]string
	var s settings
	if err := json.Unmarshal(header[metadataKey], &metadata); err != nil {
		return nil, fmt.Errorf("weights: metadata: %w", err)
	}
	if err := json.Unmarshal([]byte(metadata["model"]), &s); err != nil {
		return nil, fmt.Errorf("weights: metadata: %w", err)
	}
	for _, n := range []int{s.Width, s.Layers, s.Heads, s.KeyHeads, s.Dim, s.Hidden, s.Window} {
		if n < 1 || n > 1<<12 {
			return nil, fmt.Errorf("weights: sizes %+v: each must be from 1 to 4096", s)
		}
	}
	c := config{width: s.Width, layers: s.Layers, heads: s.Heads, keyHeads: s.KeyHeads, dim: s.Dim, hidden: s.Hidden, window: s.Window}
	m := newModel(c, []rune(s.Alphabet), rand.New(rand.NewPCG(0, 0)))
	body, end := file[8+n:], 0
	for _, p := range m.params() { // one behind the other, and no byte of two
		var t stored
		if err := json.Unmarshal(header[p.name], &t); err != nil {
			return nil, fmt.Errorf("weights: tensor %s: %w", p.name, err)
		}
		from, to := t.Offsets[0], t.Offsets[1]
		if t.DType != "BF16" || len(t.Shape) != 2 || t.Shape[0] != p.rows || t.Shape[1] != p.cols {
			return nil, fmt.Errorf("weights: tensor %s: %s %v, must be BF16 [%d %d]", p.name, t.DType, t.Shape, p.rows, p.cols)
		}
		if from != end || to > len(body) || to-from != 2*len(p.x) {
			return nil, fmt.Errorf("weights: tensor %s: bytes %d to %d of %d for %d numbers", p.name, from, to, len(body), len(p.x))
		}
		end = to
		for i := range p.x {
			p.x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(body[from+2*i:])) << 16)
		}
	}
	return m, nil
}
