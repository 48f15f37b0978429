package main

// The example that runs models from files.

const (
	llama       = "./examples/llama"
	llamaConfig = "examples/llama/config.go"
)

var llamaMutants = []Mutant{
	{
		ID: "llama-pairs", File: llamaConfig,
		Old: "r.Interleaved = !halves", New: "r.Interleaved = halves",
		Breaks: "columns are turned in pairs of the other kind than rows of weights are permuted for",
		Kill:   []Killer{{llama, "TestLogits"}},
	},
	{
		ID: "llama-window", File: llamaConfig,
		Old: "flash.SlidingWindow(seen-1, 0)", New: "flash.SlidingWindow(seen, 0)",
		Breaks: "a window is a key longer than the file says",
		Kill:   []Killer{{llama, "TestLogits"}},
	},
	{
		ID: "llama-window-layers", File: llamaConfig,
		Old: "if layer%c.every != 0 {", New: "if layer%c.every == 1 && layer > 1 {",
		Breaks: "layers that see all have the window of the others",
		Kill:   []Killer{{llama, "TestLogits"}},
	},
	{
		ID: "llama-chunks", File: "examples/llama/main.go",
		Old: "at += s.cache.prefill.tokens", New: "at += max(s.cache.prefill.tokens-1, 1)",
		Breaks: "the last token of a chunk is taken in twice",
		Kill:   []Killer{{llama, "TestLogits"}},
	},
	{
		ID: "llama-frequencies", File: "examples/llama/model.go",
		Old:    "scale * math.Pow(base, -float64(j)/float64(len(divisors))) / float64(d)",
		New:    "scale * math.Pow(base, -float64(j)/float64(len(divisors))) * float64(d)",
		Breaks: "factors of frequencies multiply them",
		Kill:   []Killer{{llama, "TestLogits"}},
	},
	{
		ID: "llama-pieces", File: "examples/llama/vocabulary.go",
		Old: "p[i].score > p[j].score ||", New: "p[i].score < p[j].score ||",
		Breaks: "neighbours with the worst score are joined first",
		Kill:   []Killer{{llama, "TestPieces"}},
	},
	{
		ID: "gguf-end", File: "examples/llama/internal/gguf/gguf.go",
		Old: "t.Bytes > size-start-t.Offset", New: "t.Bytes > size-start",
		Breaks: "a tensor may end behind the file's end",
		Kill:   []Killer{{"./examples/llama/internal/gguf", "TestTruncated"}},
	},
	{
		ID: "gguf-text", File: "examples/llama/internal/gguf/gguf.go",
		Old: "if r.err == nil && n > uint64(r.left) {", New: "if r.err == nil && n > uint64(r.left)+1000000 {",
		Breaks: "memory is taken for more than the file has left",
		Kill:   []Killer{{"./examples/llama/internal/gguf", "TestHostile"}},
	},
	{
		ID: "gguf-k-scales", File: "examples/llama/internal/gguf/types.go",
		Old: "packed[4+j]>>4|packed[j]>>6<<4", New: "packed[4+j]>>4|packed[j-4]>>6<<4",
		Breaks: "upper bits of what blocks of K types subtract are those of their scales",
		Kill:   []Killer{{"./examples/llama/internal/gguf", "TestKTypes"}},
	},
	{
		ID: "gguf-fifth-bit", File: "examples/llama/internal/gguf/types.go",
		Old: "bits>>(i+16)&1", New: "bits>>(i+15)&1",
		Breaks: "the second half of a block of Q5_0 has its neighbours' fifth bits",
		Kill:   []Killer{{"./examples/llama/internal/gguf", "TestRead"}},
	},
	{
		ID: "folder-pairs", File: "examples/llama/internal/folder/config.go",
		Old: "arch + \".rope.halves\": true", New: "arch + \".rope.halves\": false",
		Breaks: "a folder's columns are turned as those of GGUF files",
		Kill:   []Killer{{llama, "TestFolder"}},
	},
	{
		ID: "folder-end", File: "examples/llama/internal/folder/folder.go",
		Old: "e.Offsets[1] > body || ", New: "",
		Breaks: "a tensor may end behind the file's end",
		Kill:   []Killer{{"./examples/llama/internal/folder", "TestHostile"}},
	},
}
