package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
)

// watcher keeps the queries and keys that attention is given, of each layer.
type watcher struct {
	attention
	q, k [][]float32
}

func (w *watcher) attend(ctx context.Context, layer int, q, k, v []float32) ([]float32, error) {
	w.q[layer], w.k[layer] = append(w.q[layer], q...), append(w.k[layer], k...)
	return w.attention.attend(ctx, layer, q, k, v)
}

// writeHeads takes a prompt in and writes queries and keys of all heads to a safetensors file for `vkattn view`: tensors layer0.q, layer0.k
// and so on, [heads, tokens, dimension] of fp32, turned as attention takes them. Metadata has a character for each token, and windows.
func (s *session) writeHeads(ctx context.Context, dev *flash.Device, tokens []int, file string) error {
	w := &watcher{s.cache, make([][]float32, s.layers), make([][]float32, s.layers)}
	if _, err := s.takeIn(ctx, w, tokens, false); err != nil {
		return err
	}
	about := map[string]string{"text": s.characters(tokens), "causal": "bottom-right", "scale": strconv.FormatFloat(s.scale, 'g', -1, 64)}
	header, body := map[string]any{"__metadata__": about}, []byte(nil)
	for _, part := range []struct {
		name  string
		heads int
		of    [][]float32
	}{{"q", s.heads, w.q}, {"k", s.keyHeads, w.k}} {
		turned, err := turn(ctx, dev, s.rotary, part.of, len(tokens), part.heads, s.dim)
		if err != nil {
			return err
		}
		for layer, values := range turned {
			name, from := fmt.Sprintf("layer%d.", layer), len(body)
			for _, x := range values {
				body = binary.LittleEndian.AppendUint32(body, math.Float32bits(x))
			}
			header[name+part.name] = map[string]any{"dtype": "F32", "shape": []int{part.heads, len(tokens), s.dim},
				"data_offsets": []int{from, len(body)}}
			if seen := s.seen(layer); seen > 0 {
				about[name+"window"] = fmt.Sprintf("%d,0", seen-1)
			}
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	text = append(text, strings.Repeat(" ", (8-len(text)%8)%8)...)
	all := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	return os.WriteFile(file, append(all, body...), 0o644)
}

// turn gives rows [tokens, heads, dim] of each layer as [heads, tokens, dim], turned by their positions.
func turn(ctx context.Context, dev *flash.Device, r rows.Rotary, of [][]float32, tokens, heads, dim int) (all [][]float32, err error) {
	var o owned
	defer func() { err = errors.Join(err, o.close()) }()
	plan, err := rows.PlanRotate(dev, rows.RotateProblem{Batch: 1, Heads: heads, Rows: tokens, HeadDim: dim, DType: flash.F32, Rotary: r})
	if err != nil {
		return nil, err
	}
	o = append(o, plan)
	x, err := o.packed(dev, flash.F32, tokens, heads, dim)
	if err != nil {
		return nil, err
	}
	for _, values := range of {
		turned := make([]float32, len(values))
		err := errors.Join(x.rows.Upload(ctx, values), plan.Rotate(ctx, rows.Rotation{X: x.heads}), x.heads.Download(ctx, turned))
		if err != nil {
			return nil, err
		}
		all = append(all, turned)
	}
	return all, nil
}

// characters has a character for each token: its first that can be seen.
func (s *session) characters(tokens []int) string {
	all := make([]rune, len(tokens))
	for i, id := range tokens {
		all[i] = '·'
		for _, r := range s.vocabulary.decode(id) {
			if unicode.IsGraphic(r) && r != unicode.ReplacementChar {
				all[i] = r
				if !unicode.IsSpace(r) {
					break
				}
			}
		}
	}
	return string(all)
}
