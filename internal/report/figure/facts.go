package figure

import (
	"encoding/json"

	"github.com/vkattn/vkattn/internal/bench"
)

const (
	onT4    = "On their Tesla T4: "
	onOther = "On another GPU, FlashAttention-2, 32 heads, embedding 2048: "
	onA100  = "On an A100, GPT-2 medium, forward and backward: "
)

// facts are the figures that the course reports give. They are theirs, of their GPUs and their PyTorch: they show the shape
// that a curve had, not what a GPU of today must reach.
var facts = map[string][]string{
	"time-seq": {
		onT4 + "PyTorch's standard attention took 90 ms causal at batch 16, sequence length 2048.",
		onOther + "3.05, 8.46 and 26.2 ms at sequence length 512, 1024 and 2048.",
	},
	"tflops-seq": {
		onT4 + "FlashAttention-1 reached about 9 TFLOP/s causal at batch 16, sequence length 2048, where PyTorch stayed under 3.",
		onOther + "27.1, 34.6 and 39.3 TFLOP/s at sequence length 512, 1024 and 2048.",
	},
	"memory-seq": {
		onT4 + "about 500 MB for FlashAttention-1 against over 4.5 GB for standard attention at sequence length 2048 (of the whole process).",
		onOther + "644, 1288 and 2576 MB at sequence length 512, 1024 and 2048.",
		"The FlashAttention paper: up to 20 times less memory.",
	},
	"speedup-seq": {
		onT4 + "FlashAttention-1 was over 3 times as fast as standard attention from sequence length 1024 on, and 0.777 times as fast at 512.",
		"The FlashAttention paper: up to 7.6 times as fast on GPT-2's attention.",
	},
	"batch":     {onOther + "29.8, 36.6 and 36.8 TFLOP/s at batch 16, 32 and 64."},
	"causal":    {onT4 + "9 ms causal against 14 ms at sequence length 1024, 8 heads.", "On another GPU, FlashAttention-2: 4.3 ms causal against 9.4 ms."},
	"heads":     {onT4 + "5.2 TFLOP/s with 24 heads, 2.8 with 64.", "On another GPU, FlashAttention-2: 31.9, 34.3 and 36.1 TFLOP/s with 8, 16 and 32 heads."},
	"embedding": {"On another GPU, FlashAttention-2, 16 heads: 36.1, 36.8 and 32.3 TFLOP/s at embedding 1024, 2048 and 4096."},
	"head-dim":  {onT4 + "4.2 TFLOP/s at head dimension 64, 2.4 at 16."},
	"forward-backward": {
		onT4 + "backward took 2 to 3 times as long as forward.",
		onA100 + "41.7 ms for standard attention, 7.3 ms for FlashAttention.",
	},
	"map":     {onT4 + "about 9 TFLOP/s at batch 16, sequence length 2048, the upper right corner of this map."},
	"summary": {onA100 + "66.6 GFLOP, 40.3 GB moved and 41.7 ms for standard attention; 75.2 GFLOP, 4.4 GB and 7.3 ms for FlashAttention."},
}

// deviceOf is the device of a file: of its last header, or what a peer says of its GPU.
func deviceOf(f *bench.File) string {
	if n := len(f.Headers); n > 0 {
		return f.Headers[n-1].Device
	}
	for _, text := range f.Other {
		var h struct {
			GPU  string
			Peer struct{ GPU string }
		}
		if json.Unmarshal(text, &h) == nil {
			if h.GPU != "" {
				return h.GPU
			}
			if h.Peer.GPU != "" {
				return h.Peer.GPU
			}
		}
	}
	for _, r := range f.Rows {
		if r.Device != "" {
			return r.Device
		}
	}
	return fileLabel(f.Path)
}
