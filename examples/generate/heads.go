package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
)

// writeHeads writes queries and keys of all heads over a text to a file for `vkattn view`, which shows what each character attends to:
// tensors layer0.q, layer0.k and so on, [heads, length, dimension] of fp32, rotated as attention takes them, with the text and the layers'
// windows in the metadata.
func writeHeads(ctx context.Context, out io.Writer, dev *flash.Device, m *model, text, file string) (err error) {
	tokens, err := m.encode(text)
	if err != nil {
		return err
	}
	a, err := newWholeAttention(dev, m.config, 1, len(tokens), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	if _, err := m.forward(ctx, a, tokens); err != nil {
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
	}
	bytes, err := safetensors(header, body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d layers over %d characters; vkattn view shows them\n", file, len(a.layers), len(tokens))
	return os.WriteFile(file, bytes, 0o644)
}

// firstSonnet is the text to look at where none is given.
func firstSonnet() string {
	lines := strings.SplitAfterN(sonnets.Text, "\n", 15)
	return strings.Join(lines[:14], "")
}
