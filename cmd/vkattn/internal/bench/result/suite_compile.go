package result

import "slices"

// compileBase is a problem that fills a GPU, for suites that nothing runs.
var compileBase = Grid{Impls: []string{"flash2"}, Batch: []int{4}, Heads: []int{16}, Seq: []int{2048}, Causal: yes, Passes: both}

// compileDecode is one query of 32 heads on 8.
var compileDecode = Grid{Impls: []string{"flash2"}, Batch: []int{4}, Heads: []int{32}, KVHeads: []int{8}, QueryLen: []int{1},
	Seq: []int{8192}, Causal: no}

// compileCover are every kernel and every class of head dimensions once: what a check has time for.
var compileCover = []Grid{
	compileBase.Override(Grid{HeadDim: []int{64, 128}, Causal: no}),
	compileBase.Override(Grid{HeadDim: []int{256}}),
	compileBase.Override(Grid{HeadDim: []int{64}, DTypes: []string{"float32"}}),
	compileBase.Override(Grid{HeadDim: []int{64}, Packed: []string{"mixed"}}),
	compileDecode.Override(Grid{HeadDim: []int{64, 128}}),
	compileDecode.Override(Grid{HeadDim: []int{128}, Pages: []int{16}, Caches: []string{"q8_0"}}),
}

// compileRest are the other types, forms, options and head dimensions.
var compileRest = slices.Concat(
	[]Grid{
		compileBase.Override(Grid{HeadDim: []int{32, 64, 80, 96, 128, 160, 192}}),
		compileBase.Override(Grid{HeadDim: []int{128, 256}, DTypes: []string{"float32"}}),
		compileBase.Override(Grid{HeadDim: []int{64, 128}, DTypes: []string{"bfloat16"}}),
		compileBase.Override(Grid{HeadDim: []int{64, 128}, Dropout: []float64{0.1}}),
		compileBase.Override(Grid{HeadDim: []int{64, 128}, Tunings: []Tuning{"form=1", "form=2", "form=3"}}),
		compileBase.Override(Grid{Impls: []string{"standard"}, HeadDim: []int{64, 128}, DTypes: []string{"float16", "float32"}}),
		compileBase.Override(Grid{Impls: []string{"flash1"}, HeadDim: []int{64, 128}, Passes: Passes{Fwd: true}}),
		compileBase.Override(Grid{Impls: []string{"blocksparse"}, Causal: no, HeadDim: []int{64}, Density: []float64{0.5}}),
		latent, global,
		compileDecode.Override(Grid{HeadDim: []int{256}}),
		compileDecode.Override(Grid{HeadDim: []int{128}, DTypes: []string{"float32"}}),
		compileDecode.Override(Grid{HeadDim: []int{128}, QueryLen: []int{4, 64}}),
		compileDecode.Override(Grid{HeadDim: []int{64, 128}, Caches: []string{"q8_0", "q4_0"}}),
		compileDecode.Override(Grid{HeadDim: []int{128}, Batch: []int{1}, Seq: []int{65536}}),
		compileDecode.Override(Grid{HeadDim: []int{128}, Listed: []int{2048}}),
		compileDecode.Override(Grid{Heads: []int{16, 128}, KVHeads: []int{1}, HeadDim: []int{576}, ValueDim: []int{512}, Latent: yes}),
		compileBase.Override(Grid{HeadDim: []int{64, 128}, Listed: []int{512}}),
	},
	ofScores(compileBase.Override(Grid{HeadDim: []int{64}}), Grid{}, "softcap=30", "512", "documents=8"),
)
