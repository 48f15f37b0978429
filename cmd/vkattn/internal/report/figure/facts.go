package figure

import (
	"encoding/json"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Citation is a source of Figure.Others: [N] there.
type Citation struct{ Text, URL string }

// Citations are numbered from 1. The two course reports are where the sweeps of this benchmark come from.
var Citations = []Citation{
	{"T. Dao, D. Y. Fu, S. Ermon, A. Rudra, C. Ré: FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness. NeurIPS " +
		"2022, arXiv:2205.14135", "https://arxiv.org/abs/2205.14135"},
	{"A course report on FlashAttention-1, measured on one NVIDIA Tesla T4 with driver 550.54.15. It is not published, as far as is " +
		"known here.", ""},
	{"A course report on FlashAttention-2. It is not published, as far as is known here, and its GPU is not on record: its figures show " +
		"the shape of a curve, not what a GPU must reach.", ""},
}

const (
	onT4      = "FlashAttention-1 course report [2], Tesla T4: "
	onOther   = "FlashAttention-2 course report [3], GPU not on record: "
	onOther32 = onOther + "32 heads, embedding 2048, "
	// OnA100 begins what the FlashAttention paper says of GPT-2 medium, in its figure 2.
	OnA100 = "FlashAttention paper [1], figure 2, A100, GPT-2 medium (sequence length 1024, 16 heads of 64, batch 64), forward and " +
		"backward: "
)

// facts are what others measured, on their GPUs and with their PyTorch: they show the shape that a curve had, not what a GPU of today
// must reach.
var facts = map[string][]string{
	"time-seq": {
		onT4 + "PyTorch's standard attention took 90 ms causal at batch 16, sequence length 2048.",
		onOther32 + "3.05, 8.46 and 26.2 ms at sequence length 512, 1024 and 2048.",
	},
	"tflops-seq": {
		onT4 + "about 9 TFLOP/s causal at batch 16, sequence length 2048, where PyTorch stayed under 3.",
		onOther32 + "27.1, 34.6 and 39.3 TFLOP/s at sequence length 512, 1024 and 2048.",
	},
	"memory-seq": {
		onT4 + "about 500 MB against over 4.5 GB for standard attention at sequence length 2048 (of the whole process).",
		onOther32 + "644, 1288 and 2576 MB at sequence length 512, 1024 and 2048.",
		"FlashAttention paper [1], section 4.3: up to 20 times less memory than exact attention without it.",
	},
	"speedup-seq": {
		onT4 + "over 3 times as fast as PyTorch's standard attention from sequence length 1024 on, and 0.777 times as fast at 512.",
		"FlashAttention paper [1], figure 1: up to 7.6 times as fast as PyTorch on GPT-2's attention.",
	},
	"batch":     {onOther32 + "29.8, 36.6 and 36.8 TFLOP/s at batch 16, 32 and 64."},
	"causal":    {onT4 + "9 ms causal against 14 ms at sequence length 1024, 8 heads.", onOther + "4.3 ms causal against 9.4 ms."},
	"heads":     {onT4 + "5.2 TFLOP/s with 24 heads, 2.8 with 64.", onOther + "31.9, 34.3 and 36.1 TFLOP/s with 8, 16 and 32 heads."},
	"embedding": {onOther + "16 heads: 36.1, 36.8 and 32.3 TFLOP/s at embedding 1024, 2048 and 4096."},
	"head-dim":  {onT4 + "4.2 TFLOP/s at head dimension 64, 2.4 at 16."},
	"forward-backward": {
		onT4 + "backward took 2 to 3 times as long as forward.",
		OnA100 + "41.7 ms for standard attention, 7.3 ms for FlashAttention.",
	},
	"map":     {onT4 + "about 9 TFLOP/s at batch 16, sequence length 2048."},
	"summary": {OnA100 + "66.6 GFLOP, 40.3 GB moved and 41.7 ms for standard attention; 75.2 GFLOP, 4.4 GB and 7.3 ms for FlashAttention."},
}

// onCPU says that the device of a file is a CPU.
func onCPU(f *result.File) bool {
	n := len(f.Headers)
	return n > 0 && f.Headers[n-1].CPU
}

// deviceOf is the device of a file: of its last header, or what a peer says of its GPU.
func deviceOf(f *result.File) string {
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
