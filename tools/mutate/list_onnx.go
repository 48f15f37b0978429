package main

// The operators of ONNX, and GoMLX's.

var onnxMutants = []Mutant{
	{
		ID: "onnx-past", File: "flash/onnx/attention.go", Old: "Keys: queries + past}", New: "Keys: queries}",
		Breaks: "queries behind a past stand at the first keys",
		Kill:   []Killer{in("./flash/onnx", "TestAttention")},
	},
	{
		ID: "onnx-pad", File: "flash/onnx/attention.go", Old: "hidden := float32(math.Inf(-1))", New: "hidden := float32(0)",
		Breaks: "keys that a mask of numbers has no column for are seen",
		Kill:   []Killer{in("./flash/onnx", "TestAttention")},
	},
	{
		ID: "onnx-heads", File: "flash/onnx/tensors.go", Old: "[4]int{strides[0], dim, strides[2], 1})",
		New:    "[4]int{strides[0], dim * shape[2], dim, 1})",
		Breaks: "heads that lie in columns are read one behind the other",
		Kill:   []Killer{in("./flash/onnx", "TestAttention", "TestRotaryEmbedding")},
	},
	{
		ID: "onnx-behind", File: "flash/onnx/tensors.go", Old: "part, err := rowsOf(out, before, x.Shape()[2])",
		New:    "part, err := rowsOf(out, 0, x.Shape()[2])",
		Breaks: "new keys and values take the place of the past",
		Kill:   []Killer{in("./flash/onnx", "TestAttention")},
	},
	{
		ID: "onnx-axis", File: "flash/onnx/scatter.go", Old: "return [4]int{s[0], 1, s[1], s[2] * s[3]}",
		New:    "return s",
		Breaks: "rows of the second axis are written as those of the third",
		Kill:   []Killer{in("./flash/onnx", "TestTensorScatter")},
	},
	{
		ID: "gomlx-causal", File: "examples/gomlx/gomlx.go", Old: "opts.Causal = flash.CausalTopLeft",
		New:    "opts.Causal = flash.CausalBottomRight",
		Breaks: "causal order counts from the last key",
		Kill:   []Killer{in("./examples/gomlx", "TestFields")},
	},
	{
		ID: "gomlx-mask-layout", File: "examples/gomlx/gomlx.go", Old: "shape[1], shape[2] = shape[2], shape[1]\n", New: "",
		Breaks: "a mask in the other layout has its heads for queries",
		Kill:   []Killer{in("./examples/gomlx", "TestFields")},
	},
}
