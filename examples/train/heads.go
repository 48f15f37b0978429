package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
)

// writeHeads writes queries and keys of the trained heads, over the beginning of the text, as safetensors: what `vkattn map FILE` draws.
func writeHeads(ctx context.Context, path string, m *model, a *attention, ids []int, alphabet []rune) error {
	a.offset = 0
	if err := m.forward(ctx, a, ids[:m.tokens()]); err != nil {
		return err
	}
	type stored struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{"__metadata__": map[string]string{"title": "heads trained on sonnets", "causal": "bottom-right",
		"text": decode(ids[:m.length], alphabet)}}
	var body []byte
	for name, x := range map[string][]float64{"q": m.q, "k": m.k} {
		from := len(body)
		for h := range m.heads { // of the first sequence: [tokens, heads, dim] becomes [heads, tokens, dim]
			for i := range m.length {
				for _, v := range x[i*m.width()+h*m.dim:][:m.dim] {
					body = binary.LittleEndian.AppendUint32(body, math.Float32bits(float32(v)))
				}
			}
		}
		header[name] = stored{"F32", []int{m.heads, m.length, m.dim}, [2]int{from, len(body)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	return os.WriteFile(path, append(file, body...), 0o644)
}
