package result

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Suite is a named sweep: one or several grids.
type Suite struct {
	Name  string
	About string
	Grids []Grid
	CPU   []Grid // instead of Grids on a device that is a CPU; nil: the same
	// Limit bounds the time of a row where the user gives no bound: long sweeps do not wait for one slow row. 0: the usual.
	Limit time.Duration
	// Rounds is how often rows of a result file are measured where the user says nothing. 0: the usual.
	Rounds int
}

var (
	yesNo = []bool{false, true}
	yes   = []bool{true}
	no    = []bool{false}
	both  = Passes{Fwd: true, Bwd: true}
)

// gpt2 is GPT-2 medium's attention at the batch of the FlashAttention paper, gpt2CPU what a CPU can do of it.
var (
	gpt2    = Grid{Batch: []int{64}, Heads: []int{16}, Seq: []int{1024}, HeadDim: []int{64}}
	gpt2CPU = Grid{Batch: []int{1}, Heads: []int{2}, Seq: []int{256}, HeadDim: []int{64}}
)

// tiles are the tunings of every combination, the library's choice before them.
func tiles(rows, keys []int) []Tuning {
	out := []Tuning{""}
	for _, br := range rows {
		for _, bc := range keys {
			out = append(out, tuningOf(map[string]int{"br": br, "bc": bc}))
		}
	}
	return out
}

var (
	blockSizes = Grid{Impls: []string{"flash2"}, Causal: no, Tunings: tiles([]int{32, 64, 128, 256}, []int{32, 64, 128})}
	blocksCPU  = Grid{Impls: []string{"flash2"}, Causal: no, Tunings: tiles([]int{16, 32, 64}, []int{16, 32, 64})}
	sparse     = Grid{Impls: []string{"flash2", "blocksparse"}, Batch: []int{1}, Causal: no,
		Density: []float64{1, 0.75, 0.5, 0.25, 0.1, 0.05}}
	dropouts = Grid{Dropout: []float64{0, 0.1}, Passes: both}
)

// ofScores are the sweeps of what can become of scores, each thing beside attention without it, at a shape of that size.
func ofScores(shape, ofBias Grid, softcap, window, documents string) []Grid {
	reach, err := ParseWindows([]string{"0", window})
	if err != nil {
		panic(err) // a literal of this file
	}
	shape = shape.Override(Grid{Impls: []string{"flash2"}, Passes: both})
	return []Grid{
		shape.Override(Grid{Causal: no, Scores: []string{"", "alibi", softcap}}),
		shape.Override(Grid{Causal: no, Sinks: yes}),
		shape.Override(Grid{Causal: yes, Window: reach}),
		shape.Override(Grid{Causal: yes, Masks: []string{documents}}),
		shape.Override(Grid{Causal: no, Biases: []string{"", "heads"}}).Override(ofBias),
	}
}

// latent is multi-head latent attention at its heads' width in DeepSeek-V2 and later, global the global layers of Gemma.
var (
	latent = Grid{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{16}, HeadDim: []int{576}, ValueDim: []int{512},
		Seq: []int{4096}, Passes: both}
	global               = latent.Override(Grid{HeadDim: []int{512}, ValueDim: []int{0}})
	latentCPU, globalCPU = latent.Override(Grid{Heads: []int{1}, Seq: []int{64}}), global.Override(Grid{Heads: []int{1}, Seq: []int{64}})
)

// documents are 16,384 tokens of width 2048 in 32 sequences, or a batch of 32; documentsCPU what a CPU can do of them.
var (
	documents    = Grid{Impls: []string{"flash2"}, Batch: []int{32}, EmbDim: []int{2048}, HeadDim: []int{64, 128}, Passes: both}
	documentsCPU = documents.Override(Grid{Batch: []int{8}, EmbDim: []int{64}, HeadDim: []int{32}})
)

// decoding is one query of 32 heads on 8 of 128 against a cache of 64k keys, decodingCPU what a CPU can do of it.
var (
	decoding = Grid{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{32}, KVHeads: []int{8}, HeadDim: []int{128},
		QueryLen: []int{1}, Seq: []int{65536}, Causal: no}
	decodingCPU = decoding.Override(Grid{Heads: []int{4}, KVHeads: []int{2}, HeadDim: []int{64}, Seq: []int{512}})
)

// caches32 are 32 sequences that decode together, whose caches have room for 4096 keys each.
var caches32 = decoding.Override(Grid{Batch: []int{32}, Seq: []int{4096}, Used: []string{"", "mixed"}})

// guarded are shapes of a few milliseconds, one or two of each family of kernels, large enough to fill a GPU; guardedCPU what a CPU can do
// of them. Both passes where there are two.
var (
	guarded = guard(Grid{Impls: []string{"flash2"}, Batch: []int{4}, EmbDim: []int{1024}, Seq: []int{2048}, Causal: yes}, decoding, 32,
		"512", 2048)
	guardedCPU = guard(Grid{Impls: []string{"flash2"}, Batch: []int{1}, EmbDim: []int{64}, Seq: []int{128}, Causal: yes,
		HeadDim: []int{32}}, decodingCPU, 4, "32", 256)
)

// guard makes the grids, with a batch of so many sequences, a window, and keys that few queries see.
func guard(shape, decode Grid, batch int, window string, keys int) []Grid {
	reach, err := ParseWindows([]string{window})
	if err != nil {
		panic(err) // a literal of this file
	}
	dims, wide := []int{64, 128}, []int{256}
	if len(shape.HeadDim) > 0 {
		dims, wide = shape.HeadDim, []int{64}
	}
	first := shape.Override(Grid{HeadDim: dims[:1], Passes: both})
	last := shape.Override(Grid{HeadDim: dims[len(dims)-1:], Passes: both})
	return []Grid{
		shape.Override(Grid{HeadDim: dims, Passes: both}),
		shape.Override(Grid{HeadDim: wide, Passes: both}),
		last.Override(Grid{Batch: []int{batch}, Seq: []int{shape.Seq[0] / 4}, Causal: no}),
		last.Override(Grid{DTypes: []string{"bfloat16"}}),
		first.Override(Grid{DTypes: []string{"float32"}, Seq: []int{shape.Seq[0] / 2}}),
		first.Override(Grid{Window: reach, Scores: []string{"alibi"}}),
		first.Override(Grid{Dropout: []float64{0.1}}),
		last.Override(Grid{Batch: []int{batch}, Seq: []int{shape.Seq[0] / 4}, Packed: []string{"mixed"}}),
		first.Override(Grid{Impls: []string{"blocksparse"}, Batch: []int{1}, Seq: []int{2 * shape.Seq[0]}, Causal: no,
			Density: []float64{0.25}}),
		first.Override(Grid{Impls: []string{"standard"}, Seq: []int{shape.Seq[0] / 2}}),
		decode.Override(Grid{QueryLen: []int{1}}),
		decode.Override(Grid{Batch: []int{batch}, Seq: []int{keys}, Pages: []int{16}, Caches: []string{"q8_0"}}),
		decode.Override(Grid{QueryLen: []int{64}, Seq: []int{2 * keys}}),
	}
}

// The sweeps of the course reports and of the FlashAttention papers. Axes that
// are not named take Defaults: batch 16, 32 heads of 64, fp16, both causal.
var suites = []Suite{
	{
		Name: "quick", About: "a first look: standard against flash, causal and not",
		Grids: []Grid{{Batch: []int{4}, Heads: []int{16}, Seq: []int{512, 1024, 2048, 4096}}},
		CPU:   []Grid{{Batch: []int{1}, Heads: []int{4}, Seq: []int{128, 256, 512, 1024}}},
	},
	{
		Name: "seq", About: "reports: time, TFLOP/s, memory and speed-up against the sequence length",
		Grids: []Grid{{Impls: []string{"standard", "flash1", "flash2"}, EmbDim: []int{2048},
			Seq: []int{512, 1024, 2048, 4096, 8192, 16384}, Causal: yes}},
	},
	{
		Name: "batch-seq", About: "reports: batch × sequence length",
		Grids: []Grid{{EmbDim: []int{2048}, Batch: []int{16, 32, 64}}},
	},
	{
		Name: "batch", About: "reports: time against the batch",
		Grids: []Grid{{Seq: []int{512}, Batch: []int{1, 2, 4, 8, 16, 32, 64}, Causal: yes}},
	},
	{
		Name: "heads", About: "reports: time against the number of heads",
		Grids: []Grid{{Seq: []int{512}, Heads: []int{8, 16, 24, 32, 64}, Causal: yes}},
	},
	{
		Name: "embedding", About: "reports: time against the embedding, 16 heads",
		Grids: []Grid{{Seq: []int{512}, Heads: []int{16}, EmbDim: []int{64, 128, 256, 512, 1024, 2048, 4096}, Causal: yes}},
	},
	{
		Name: "head-dim", About: "reports: time against the head dimension, embedding 2048",
		Grids: []Grid{{Seq: []int{512}, EmbDim: []int{2048}, HeadDim: []int{16, 32, 64, 128, 256}, Causal: yes}},
	},
	{
		Name: "causal", About: "reports: causal or not, 8 heads",
		Grids: []Grid{{Heads: []int{8}, Seq: []int{512, 1024, 2048}}},
	},
	{
		Name: "forward-backward", About: "reports: forward and backward, causal, batch × sequence length",
		Grids: []Grid{{EmbDim: []int{2048}, Batch: []int{16, 32, 64}, Causal: yes, Passes: both}},
		CPU:   []Grid{{Batch: []int{1, 2}, Heads: []int{2}, Seq: []int{128, 256}, Causal: yes, Passes: both}},
	},
	{
		Name: "map", About: "reports: the throughput map, batch × sequence length",
		Grids: []Grid{{Batch: []int{1, 2, 4, 8, 16}, Seq: []int{512, 1024, 2048}, Causal: yes}},
	},
	{
		Name: "block-size", About: "reports: GPT-2 medium, time and bytes against the tile of flash",
		Grids: []Grid{gpt2.Override(blockSizes)}, CPU: []Grid{gpt2CPU.Override(blocksCPU)},
	},
	{
		Name: "dropout", About: "reports: GPT-2 medium, dropout 0 and 0.1, causal or not, forward and backward",
		Grids: []Grid{gpt2.Override(dropouts)}, CPU: []Grid{gpt2CPU.Override(dropouts)},
	},
	{
		Name: "block-sparsity", About: "reports: time against the share of nonzero blocks of 128 × 128, beside flash without a mask",
		Grids: []Grid{sparse.Override(Grid{Heads: []int{16}, Seq: []int{4096, 8192, 16384, 32768, 65536}})},
		CPU:   []Grid{sparse.Override(Grid{Heads: []int{2}, Seq: []int{512, 1024}, Density: []float64{1, 0.5, 0.25}})},
	},
	{
		Name: "scores", About: "what functions, windows, masks, sinks and a bias of scores cost, beside plain attention, forward and " +
			"backward; and wide heads: MLA's, and of 512",
		Grids: append(ofScores(Grid{Tokens: 16384, EmbDim: []int{2048}, HeadDim: []int{64, 128}, Seq: []int{8192}},
			Grid{Batch: []int{1}, Seq: []int{4096}}, "softcap=30", "1024", "documents=8"), latent, global),
		CPU: append(ofScores(Grid{Batch: []int{1}, Heads: []int{2}, HeadDim: []int{16}, Seq: []int{256}},
			Grid{Seq: []int{128}}, "softcap=30", "64", "documents=4"), latentCPU, globalCPU),
	},
	{
		Name: "papers", About: "the papers' grid: 16k tokens, embedding 2048, head dimensions 64, 128, 256",
		Grids: []Grid{{Tokens: 16384, EmbDim: []int{2048}, HeadDim: []int{64, 128, 256}, Seq: []int{512, 1024, 2048, 4096, 8192, 16384}}},
	},
	{
		Name: "long", About: "one long sequence: 16k (Path-X) and 64k (Path-256), forward and backward",
		Grids: []Grid{{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{16}, Seq: []int{16384, 65536}, Passes: both}},
	},
	{
		Name: "decode", About: "one query against a long cache, and several, of many sequences, in pages and quantised; 32 heads on 8, " +
			"head dimension 128",
		Grids: []Grid{
			decoding.Override(Grid{Seq: []int{4096, 16384, 65536}}),
			decoding.Override(Grid{Seq: []int{1024, 131072}}),
			decoding.Override(Grid{Batch: []int{8}, Seq: []int{16384}}),
			decoding.Override(Grid{QueryLen: []int{4, 8}, Caches: []string{"", "q8_0"}}),
			decoding.Override(Grid{Pages: []int{0, 16, 256}, Caches: []string{"", "q8_0", "q4_0"}}),
			decoding.Override(Grid{Batch: []int{64}, Seq: []int{4096}, Pages: []int{0, 16}, Caches: []string{"", "q8_0", "q4_0"}}),
		},
		CPU: []Grid{
			decodingCPU,
			decodingCPU.Override(Grid{QueryLen: []int{4}, Batch: []int{2}}),
			decodingCPU.Override(Grid{Pages: []int{0, 16}, Caches: []string{"", "q8_0", "q4_0"}}),
		},
	},
	{
		Name:  "paged",
		About: "keys and values in pages of 16 and 256 beside the same in one piece: decoding, 8 queries, and a chunk of 512",
		Grids: []Grid{
			decoding.Override(Grid{QueryLen: []int{1, 8}, Pages: []int{0, 16, 256}}),
			decoding.Override(Grid{QueryLen: []int{512}, Seq: []int{16384}, Causal: yes, Pages: []int{0, 16, 256}}),
		},
		CPU: []Grid{
			decodingCPU.Override(Grid{QueryLen: []int{1, 8}, Pages: []int{0, 16, 256}}),
			decodingCPU.Override(Grid{QueryLen: []int{64}, Seq: []int{256}, Causal: yes, Pages: []int{0, 16}}),
		},
	},
	{
		Name: "used", About: "32 caches of 4096 rows, all used and as many as documents are long, in one piece and in pages: decoding, 8 " +
			"queries, and a chunk of 512",
		Grids: []Grid{
			caches32.Override(Grid{QueryLen: []int{1, 8}, Pages: []int{0, 16}}),
			caches32.Override(Grid{QueryLen: []int{512}, Causal: yes}),
		},
		CPU: []Grid{decodingCPU.Override(Grid{Batch: []int{4}, QueryLen: []int{1, 8}, Used: []string{"", "mixed"}, Pages: []int{0, 16}})},
	},
	{
		Name: "packed", About: "32 sequences of 16k tokens one behind the other, forward and backward: of all lengths, and of one, " +
			"beside the same as a batch",
		Grids: []Grid{
			documents.Override(Grid{Seq: []int{1403}, Packed: []string{"mixed"}}),
			documents.Override(Grid{Seq: []int{512}, Packed: []string{"", "equal"}}),
		},
		CPU: []Grid{
			documentsCPU.Override(Grid{Seq: []int{160}, Packed: []string{"mixed"}}),
			documentsCPU.Override(Grid{Seq: []int{64}, Packed: []string{"", "equal"}}),
		},
	},
	{
		Name: "few", About: "few queries against many keys, one batch of 16 heads of 64 and of 8 of 128: too few blocks to fill a GPU",
		Grids: []Grid{
			{Impls: []string{"flash2"}, Batch: []int{1}, EmbDim: []int{1024}, HeadDim: []int{64, 128}, QueryLen: []int{64},
				Seq: []int{4096, 16384}, Causal: no},
			{Impls: []string{"flash2"}, Batch: []int{1}, EmbDim: []int{1024}, HeadDim: []int{64, 128}, QueryLen: []int{256},
				Seq: []int{4096, 16384}, Causal: no},
			{Impls: []string{"flash2"}, Batch: []int{1}, EmbDim: []int{1024}, HeadDim: []int{64, 128}, Seq: []int{512, 1024, 2048, 4096}},
		},
		CPU: []Grid{{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{2}, HeadDim: []int{64}, QueryLen: []int{16, 64},
			Seq: []int{512, 1024}, Causal: no}},
	},
	{
		Name: "guard", About: "a short regression check: every family of kernels, both passes; 'vkattn compare --relative' with a " +
			"recorded file judges it",
		Grids: guarded, CPU: guardedCPU, Rounds: 2,
	},
	{
		Name: "dims", About: "head dimensions between the powers of two, sequence length 4096",
		Grids: []Grid{{Impls: []string{"flash2"}, Batch: []int{4}, Heads: []int{16}, Seq: []int{4096},
			HeadDim: []int{32, 40, 80, 96, 112, 192}, Causal: no}},
	},
	{
		Name: "forward", About: "fp16 and fp32, head dimensions 64 and 128, sequence lengths 512 to 8192",
		Grids: []Grid{{DTypes: []string{"float16", "float32"}, Tokens: 16384, EmbDim: []int{2048}, HeadDim: []int{64, 128},
			Seq: []int{512, 1024, 2048, 4096, 8192}}},
	},
	{
		Name: "extra", About: "one setting each of bf16, fp32 and 32 heads on 8",
		Grids: []Grid{
			{DTypes: []string{"bfloat16"}, Batch: []int{4}, Heads: []int{16}, Seq: []int{4096}, HeadDim: []int{128}},
			{DTypes: []string{"float32"}, Batch: []int{4}, Heads: []int{16}, Seq: []int{2048}, Causal: no},
			{Batch: []int{4}, Heads: []int{32}, KVHeads: []int{8}, Seq: []int{4096}, HeadDim: []int{128}, Causal: yes},
		},
	},
	{
		Name: "compile", About: "every kernel and class of head dimensions once, for 'vkattn info --compile'",
		Grids: compileCover, CPU: guardedCPU,
	},
	{
		Name: "compile-all", About: "these, and every type, form and option: some minutes to compile",
		Grids: slices.Concat(compileCover, compileRest), CPU: guardedCPU,
	},
}

// reportsParts are the suites that "reports" runs one after the other.
var reportsParts = []string{"seq", "batch-seq", "batch", "heads", "embedding", "head-dim", "causal", "forward-backward", "map",
	"block-size", "dropout", "block-sparsity"}

// reportsLimit is what a row of "reports" may take, which one slow row of a hundred does not need more of.
const reportsLimit = 5 * time.Second

// Suites lists the named sweeps in the order in which help shows them.
func Suites() []Suite {
	out := append([]Suite{}, suites...)
	reports := Suite{Name: "reports", About: "every sweep of the reports: " + strings.Join(reportsParts, ", "), Limit: reportsLimit}
	for _, name := range reportsParts {
		for _, s := range suites {
			if s.Name == name {
				reports.Grids = append(reports.Grids, s.Grids...)
			}
		}
	}
	return append(out, reports)
}

// FindSuite returns the suite of that name, or an error that lists them.
func FindSuite(name string) (Suite, error) {
	var names []string
	for _, s := range Suites() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Suite{}, fmt.Errorf("suite %q: it must be one of %s", name, strings.Join(names, ", "))
}

// Jobs expands the suite for a device (cpu: one that is a CPU), with the axes
// of override replacing the suite's own. A case that several grids have is one
// job with the passes of all.
func (s Suite) Jobs(cpu bool, override Grid) ([]Job, error) {
	grids := s.Grids
	if cpu && s.CPU != nil {
		grids = s.CPU
	}
	var jobs []Job
	for _, g := range grids {
		g = g.Override(override)
		cases, err := g.Expand()
		if err != nil {
			return nil, fmt.Errorf("suite %s: %w", s.Name, err)
		}
		jobs = append(jobs, JobsOf(cases, g.Passes)...)
	}
	return DistinctJobs(jobs), nil
}
