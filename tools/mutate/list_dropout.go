package main

// Which weights dropout drops, and what becomes of the others.

const (
	dropoutShader         = "shaders/include/dropout.glsl"
	matrixBackwardDropout = "shaders/include/matrix_backward_dropout.glsl"
)

var (
	dropoutMask = in("./flash", "TestDropoutMask")
	dropoutCase = conformance("dropout/p0.900-64x64-d8/f32", scalar)
)

var dropoutMutants = []Mutant{
	{
		ID: "dropout-head", File: dropoutShader, Modules: forwardF16,
		Old: "uvec4(group_of_columns, i, bh, drop_offset)", New: "uvec4(group_of_columns, i, 0, drop_offset)",
		Breaks: "all heads drop the same weights",
		Kill:   []Killer{dropoutMask},
	},
	{
		ID: "dropout-transposed", File: dropoutShader, Modules: forwardF16,
		Old: "uvec4(group_of_columns, i, bh, drop_offset)", New: "uvec4(i, group_of_columns, bh, drop_offset)",
		Breaks: "what is dropped follows from row and column in each other's place",
		Kill:   []Killer{dropoutMask},
	},
	{
		ID: "dropout-offset", File: dropoutShader, Modules: forwardF16,
		Old: "uvec4(group_of_columns, i, bh, drop_offset)", New: "uvec4(group_of_columns, i, bh, 0)",
		Breaks: "the offset makes no difference",
		Kill:   []Killer{dropoutMask},
	},
	{
		ID: "dropout-seed", File: "internal/kernel/args.go",
		Old: "p.Put(argSeedHigh, uint32(d.Seed>>32))", New: "p.Put(argSeedHigh, 0)",
		Breaks: "the upper half of the seed makes no difference",
		Kill:   []Killer{dropoutCase},
	},
	{
		ID: "dropout-byte", File: dropoutShader, Modules: forwardF16,
		Old: "8 * (j & 1u) + 2 * (j & 8u)", New: "8 * (j & 1u) + (j & 8u)",
		Breaks: "a column takes another's byte of the draw",
		Kill:   []Killer{dropoutMask},
	},
	{
		ID: "dropout-threshold", File: dropoutShader, Modules: forwardF16,
		Old: "& 255u) >= drop_k();", New: "& 255u) > drop_k();",
		Breaks: "one byte of 256 too many drops its weight",
		Kill:   []Killer{dropoutMask},
	},
	{
		ID: "dropout-rounds", File: dropoutShader, Modules: forwardF16,
		Old: "round < 7", New: "round < 6",
		Breaks: "Philox has six rounds and not seven",
		Kill:   []Killer{dropoutMask},
	},
	{
		ID: "dropout-scale", File: dropoutShader, Modules: forwardF32 + " " + forwardF16,
		Old: "float drop_scale() { return 256.0 / float(256 - drop_k()); }", New: "float drop_scale() { return 1.0; }",
		Breaks: "weights that are kept are not scaled up",
		Kill:   []Killer{dropoutCase},
	},
	{
		ID: "dropout-draw-shared", File: softmaxTile, Modules: forwardF16,
		Old: "(BC % 64) * (64 % BC) == 0 ? 64 : 1;", New: "(BC % 64) * (64 % BC) == 0 ? 1024 : 1;",
		Breaks: "a draw serves keys of another group of 64",
		Kill:   []Killer{in("./flash", "TestDropoutOfWideTiles")},
	},
	{
		ID: "dropout-standard-sign", File: "shaders/standard/standard_softmax.comp", Modules: "standard_softmax",
		Old: "mix(bits | 0x80000000u, bits, keep)", New: "mix(bits, bits, keep)",
		Breaks: "standard attention drops nothing",
		Kill:   []Killer{conformance("dropout/p0.100-70x90-d8/f32", "standard/scalar")},
	},
	{
		ID: "dropout-bits", File: "shaders/include/dropout_bits.glsl", Modules: "matrix_backward_weights.f16",
		Old: "drop_k() < 128u ? ~0u : 0u", New: "drop_k() < 128u ? 0u : ~0u",
		Breaks: "the 16 bits of a draw compare bytes with the threshold wrongly where their first bits differ",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "dropout-lane-gradients", File: matrixBackwardDropout, Modules: "matrix_backward_weights.f16",
		Old: "key = DRAW_KEYS % 64 == 0 ? column : first_key % 64 + column;", New: "key = column;",
		Breaks: "every tile takes the bits of the first one of a group of 64 keys, in gradients by way of memory",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "dropout-memory-sign", File: matrixBackwardDropout, Modules: "matrix_backward_weights.f16",
		Old: "is ? S[r * NS + n][e] : -S[r * NS + n][e];", New: "S[r * NS + n][e];",
		Breaks: "weights in memory have no sign that says they are dropped",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
}
