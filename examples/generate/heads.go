package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
)

// writeHeads writes queries and keys of all heads over a text to a file for `vkattn view`, which shows what each character attends to:
// tensors layer0.q, layer0.k and so on, [heads, length, dimension] of fp32, rotated as attention takes them, with the text and the layers'
// windows in the metadata. With keep, layers that see all have lists of keys besides, layer1.lists, [key heads, length, keep] of int32:
// those that each character would attend to, were it a new one.
func writeHeads(ctx context.Context, out io.Writer, dev *flash.Device, m *model, text, file string, keep int) (err error) {
	tokens, err := m.encode(text)
	if err != nil {
		return err
	}
	a, err := newWholeAttention(dev, m.config, 1, len(tokens), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	p, err := m.forward(ctx, a, tokens)
	if err != nil {
		return err
	}
	about := map[string]string{"text": text, "causal": "bottom-right"}
	header := map[string]any{metadataKey: about}
	var body []byte
	for i, l := range a.layers {
		name := fmt.Sprintf("layer%d.", i)
		if seen := m.seen(i); seen > 0 {
			about[name+"window"] = fmt.Sprintf("%d,0", seen-1) // keys before a token's own, and after it
		}
		for _, t := range []struct {
			name string
			of   *flash.Tensor
		}{{"q", l.q}, {"k", l.k}} {
			values := make([]float32, t.of.Elements())
			if err := t.of.Download(ctx, values); err != nil {
				return err
			}
			from := len(body)
			for _, x := range values {
				body = binary.LittleEndian.AppendUint32(body, math.Float32bits(x))
			}
			shape := t.of.Shape()
			header[name+t.name] = stored{"F32", shape[1:], [2]int{from, len(body)}}
		}
		if keep > 0 && m.seen(i) == 0 {
			from := len(body)
			for _, key := range wholeLists(m.config, p.layers[i].qkv, keep) {
				body = binary.LittleEndian.AppendUint32(body, uint32(int32(key)))
			}
			header[name+"lists"] = stored{"I32", []int{m.keyHeads, len(tokens), keep}, [2]int{from, len(body)}}
		}
	}
	bytes, err := safetensors(header, body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d layers over %d characters; vkattn view shows them\n", file, len(a.layers), len(tokens))
	return os.WriteFile(file, bytes, 0o644)
}

// wholeLists are the lists of each character of a layer, [key heads, characters, keep].
func wholeLists(c config, qkv []float32, keep int) []float32 {
	var s kvcache.Sequence // of an index that has no other
	x := &index{config: c, keep: keep, keys: map[kvcache.Sequence][][]float32{}}
	x.fork(sequence{s}, nil)
	of := make([][]float32, c.keyHeads)
	for at := range len(qkv) / c.columns() {
		row := qkv[at*c.columns():][:c.columns()]
		x.add(s, 0, at+1, row)
		lists := x.choose(nil, s, 0, row)
		for h := range of {
			of[h] = append(of[h], lists[h*keep:][:keep]...)
		}
	}
	return slices.Concat(of...)
}

// firstSonnet is the text to look at where none is given.
func firstSonnet() string {
	lines := strings.SplitAfterN(sonnets.Text, "\n", 15)
	return strings.Join(lines[:14], "")
}
