package result

import "github.com/vkattn/vkattn/flash/tune"

// Pass holds the figures of one pass, forward or backward, or of what rows are moved by. Ms = 0 means not measured. Rows of attention name
// these in columns.go; others have the keys below.
type Pass struct {
	Ms       float64   `json:"ms,omitempty"`     // median of the device time of one run; of several rounds the Middle one of theirs
	P20      float64   `json:"p20_ms,omitempty"` // percentiles of the same, over all rounds; of a peer the Middle ones of its rounds'
	P80      float64   `json:"p80_ms,omitempty"`
	WallMs   float64   `json:"wall_ms,omitempty"`   // host time of one run from submission to fence, median
	TFLOPS   float64   `json:"tflops,omitempty"`    // 10¹² operations a second at the median
	PeakMiB  *float64  `json:"peak_MiB,omitempty"`  // device memory beyond inputs and outputs, as asked for
	BlockMiB float64   `json:"block_MiB,omitempty"` // the same as the allocator took it: blocks, alignment included
	TotalMiB float64   `json:"total_MiB,omitempty"` // inputs, outputs and PeakMiB
	N        int       `json:"n,omitempty"`         // runs
	Rounds   []float64 `json:"rounds_ms,omitempty"` // median of each round in ms, when there were several
	// LeastBytes is what a fused pass moves at least: inputs, in the types they are stored in, and outputs, each once. 0: not known.
	LeastBytes float64 `json:"least_bytes,omitempty"`
	// Bytes is what workgroups load from and store to device memory, as Model counts it; 0: not known. Caches may serve part of it.
	Bytes float64    `json:"bytes,omitempty"`
	Model tune.Model `json:"-"` // what the kernel says of its work; none: rows of peers, and of older versions

	runs []float64 // ms of each; files have none of them
}

// Timed fills in what follows from the times of runs on the device, in ms.
func (p *Pass) Timed(runs []float64) {
	p.Ms, p.P20, p.P80, p.N, p.runs = Median(runs), Quantile(runs, 0.2), Quantile(runs, 0.8), len(runs), runs
}

// Runs are the times that Timed was given.
func (p *Pass) Runs() []float64 { return p.runs }
