package main

// The scalar forward kernel, what it shares with others, and what the host hands to it.

const (
	scalarForward = "shaders/scalar/scalar_forward.comp"
	softmaxTile   = "shaders/include/micro_softmax.glsl"
	mask          = "shaders/include/mask.glsl"
	walk          = "shaders/include/walk.glsl"
	scalar        = "flash2/scalar"

	forwardF32 = "scalar_forward.f32 scalar_forward_subgroup.f32"
	forwardF16 = "scalar_forward.f16 scalar_forward_subgroup.f16"
)

var forwardMutants = []Mutant{
	{
		ID: "mask-diagonal", File: mask, Modules: forwardF32,
		Old: "min(last, int(query) + high_shift())", New: "min(last, int(query) + high_shift() + 1)",
		Breaks: "with a causal mask each query sees one key too many",
		Kill:   []Killer{in("./flash", "TestBackwardFiniteDifferences")},
	},
	{
		ID: "mask-top-left", File: "internal/attn/mask.go",
		Old: "\t\tm.High = 0\n", New: "\t\tm.High = diagonal\n",
		Breaks: "the top-left mask is taken for the bottom-right one",
		Kill:   []Killer{conformance("length/65x63/top-left/f16", scalar)},
	},
	{
		ID: "mask-bottom-right", File: "internal/attn/mask.go",
		Old: "\t\tm.High = diagonal\n", New: "\t\tm.High = diagonal - 1\n",
		Breaks: "the bottom-right mask hides one key too many",
		Kill:   []Killer{in("./flash", "TestForward")},
	},
	{
		ID: "window-left", File: mask, Modules: forwardF32,
		Old: "LOWER_BOUND ? max(int(query) + low_shift(), 0)", New: "LOWER_BOUND ? max(int(query) + low_shift() + 1, 0)",
		Breaks: "a window hides one key too many on its left",
		Kill:   []Killer{in("./flash", "TestBackwardFiniteDifferences")},
	},
	{
		ID: "window-walk", File: walk, Modules: forwardF32,
		Old: "w.whole_begin = min((uint(b.first) + size - 1) / size, w.end);", New: "w.whole_begin = min(uint(b.first) / size, w.end);",
		Breaks: "the tile in which a window begins takes the way of whole ones",
		Kill:   []Killer{conformance("window/100--1-256x256-bottom-right/f32", "flash2/scalar")},
	},
	{
		ID: "mask-finite", File: softmaxTile, Modules: forwardF32 + " " + forwardF16,
		Old: "+ j % 4)) S[i * MC4 + j / 4][j % 4] = NEG_INFINITY;", New: "+ j % 4)) S[i * MC4 + j / 4][j % 4] = -1e30;",
		Breaks: "a masked score is a large negative number, so that a row with nothing to attend to averages what it may not see",
		Kill:   []Killer{conformance("length/17x15/bottom-right/f16", scalar), differences},
	},
	{
		ID: "ragged-keys", File: mask, Modules: forwardF32,
		Old: "query_exists(query) ? int(key_count()) - 1 : -1;", New: "int(key_count()) + 255;",
		Breaks: "keys beyond the last, staged as zeros, are attended to",
		Kill:   []Killer{conformance("mixed/35/f32", scalar)},
	},
	{
		ID: "ragged-whole-tiles", File: walk, Modules: forwardF32,
		Old: "Walk(0, 0, end_of(a) / size,", New: "Walk(0, 0, (end_of(a) + size - 1) / size,",
		Breaks: "the last tile of keys, which may be ragged, takes the way of whole ones",
		Kill:   []Killer{conformance("mixed/35/f32", scalar)},
	},
	{
		ID: "ragged-rows", File: scalarForward, Modules: forwardF32,
		Old: `    if (row >= query_slots()) continue;
    float sunk`,
		New:    `    float sunk`,
		Breaks: "rows of O beyond the last query are written",
		Kill:   []Killer{conformance("mixed/35/f32", scalar)},
	},
	{
		ID: "ragged-columns", File: scalarForward, Modules: forwardF32,
		Old:    "if (col + e < DV) STORED(o, BYTES, o1[at + col + e] = encode(x[e]));",
		New:    "STORED(o, BYTES, o1[at + col + e] = encode(x[e]));",
		Breaks: "columns of O beyond the last are written",
		Kill:   []Killer{conformance("mixed/35/f32", scalar)},
	},
	{
		ID: "ragged-staging", File: "shaders/include/stage.glsl", Modules: forwardF32,
		Old: "if (row0 + r >= rows || col >= STAGE_COLS STAGE_LOST) x[e] = 0;", New: "if (row0 + r >= rows STAGE_LOST) x[e] = 0;",
		Breaks: "columns beyond the last are staged as repetitions of it and not as zeros",
		Kill:   []Killer{differences},
	},
	{
		ID: "scale-twice", File: "internal/kernel/args.go",
		Old: "pr.Scale*math.Log2E)", New: "pr.Scale*pr.Scale*math.Log2E)",
		Breaks: "the forward kernels multiply scores by the scale twice",
		Kill:   []Killer{in("./flash", "TestForward")},
	},
	{
		ID: "scale-log2e", File: "internal/kernel/args.go",
		Old: "pr.Scale*math.Log2E)", New: "pr.Scale)",
		Breaks: "scores are not in units of log 2 though exponentials are exp2",
		Kill:   []Killer{in("./flash", "TestForward")},
	},
	{
		ID: "scale-default", File: "flash/problem.go",
		Old: "p.Scale = 1 / math.Sqrt(float64(p.HeadDim))", New: "p.Scale = 1 / float64(p.HeadDim)",
		Breaks: "the default scale is 1/D and not 1/√D",
		Kill:   []Killer{in("./flash", "TestNormalizeDefaults")},
	},
	{
		ID: "scale-sign", File: matrixAttention, Modules: "matrix_forward.f16",
		Old: "flip = score_scale < 0.0 ? 0x80008000u : 0u;", New: "flip = 0u;",
		Breaks: "the matrix kernel takes a negative scale for its absolute value",
		Kill:   []Killer{conformance("core/negative-scale/f16", "flash2/matrix/decode=0/form=1")},
	},
	{
		ID: "rescale-l", File: scalarForward, Modules: forwardF32,
		Old: "l[i] = l[i] * alpha + weigh(i, top[i]);", New: "l[i] = l[i] + weigh(i, top[i]);",
		Breaks: "the sum l is not rescaled when the maximum grows",
		Kill:   []Killer{conformance("grid/split/f32", scalar)},
	},
	{
		ID: "rescale-o", File: scalarForward, Modules: forwardF32,
		Old: "acc[i * MD4 + j] *= alpha;", New: "acc[i * MD4 + j] *= 1;",
		Breaks: "O is not rescaled when the maximum grows",
		Kill:   []Killer{conformance("grid/split/f32", scalar)},
	},
	{
		ID: "maximum-start", File: scalarForward, Modules: forwardF32,
		Old: "{ m[i] = LOWEST; l[i] = 0; }", New: "{ m[i] = 0; l[i] = 0; }",
		Breaks: "the running maximum starts at 0: rows whose scores are all far below lose their weights",
		Kill:   []Killer{in("./cmd/vkattn/internal/conformance", "TestScoresFarFromZero")},
	},
	{
		ID: "maximum-of-row", File: softmaxTile, Modules: forwardF16,
		Old: "top[i] = max(top[i], max(max(s.x, s.y), max(s.z, s.w)));", New: "top[i] = max(top[i], max(max(s.x, s.y), s.z));",
		Breaks: "every fourth score is left out of the maximum: exponentials overflow where it is the largest by far",
		Kill:   []Killer{conformance("numeric/huge-logits/f16", scalar)},
	},
	{
		ID: "barrier-staging", File: scalarForward, Modules: forwardF32 + " " + forwardF16,
		Old: "    barrier();  // the last reads of what is overwritten now\n", New: "",
		Breaks: "a tile is staged while others still read the one before",
		Kill:   []Killer{conformance("grid/split/f32", scalar), in("./flash", "TestTiles")},
	},
	{
		ID: "barrier-staged", File: scalarForward, Modules: forwardF32,
		Old: "    barrier();\n    add_scores(", New: "    add_scores(",
		Breaks: "a tile is read before it is staged",
		Kill:   []Killer{conformance("grid/split/f32", scalar)},
	},
	{
		ID: "barrier-weights", File: scalarForward, Modules: forwardF32 + " " + forwardF16,
		Old: "      barrier_for_p();\n      add_product(", New: "      add_product(",
		Breaks: "weights and values in shared memory are read before they are written",
		Kill:   []Killer{conformance("grid/split/f32", scalar), in("./flash", "TestTiles")},
	},
	{
		ID: "barrier-exchange", File: softmaxTile, Modules: "scalar_forward.f16",
		Old: "reduce[tx * BR + ty + TY * i] = x[i];\n  barrier();", New: "reduce[tx * BR + ty + TY * i] = x[i];",
		Breaks: "without subgroups, a row's maximum is taken before all have written theirs",
		Kill:   []Killer{in("./flash", "TestTiles")},
	},
	{
		ID: "stride-batch-head", File: scalarForward, Modules: forwardF32,
		Old: "query_origin(b, q_sb, q_sn) + h * q_sh;", New: "query_origin(b, q_sh, q_sn) + h * q_sb;",
		Breaks: "the strides of Q's batch and head are exchanged",
		Kill:   []Killer{conformance("grid/split/f32", scalar)},
	},
	{
		ID: "stride-rows", File: "internal/kernel/args.go",
		Old: "p.Set(at+4*i, s)", New: "p.Set(at+4*((3-i)%3), s)",
		Breaks: "every kernel is given the strides of head and row in each other's place",
		Kill:   []Killer{in("./flash", "TestForward")},
	},
	{
		ID: "offset-ignored", File: "shaders/include/args.glsl", Modules: forwardF32,
		Old: "return offsets >> 16 & 255u;", New: "return 0u;",
		Breaks: "V is read from the beginning of its binding wherever it begins",
		Kill:   []Killer{conformance("core/layout-odd/f32", scalar)},
	},
	{
		ID: "gqa-modulo", File: scalarForward, Modules: forwardF32,
		Old: "(h / group()) * k_sh;", New: "(h % key_heads()) * k_sh;",
		Breaks: "query heads take turns with key heads: head h reads key head h mod Hk, not h/(Hq/Hk)",
		Kill:   []Killer{conformance("dropout/p0.900-64x64-d8/f32", scalar)},
	},
	{
		ID: "lse-log2", File: scalarForward, Modules: forwardF32,
		Old: "NEG_INFINITY : score_of_bits(m[i] + log2(l[i])));", New: "NEG_INFINITY : m[i] + log2(l[i]));",
		Breaks: "lse is a logarithm to base 2",
		Kill:   []Killer{differences},
	},
	{
		ID: "lse-maximum", File: scalarForward, Modules: forwardF32,
		Old: "NEG_INFINITY : score_of_bits(m[i] + log2(l[i])));", New: "NEG_INFINITY : log2(l[i]) * LN2);",
		Breaks: "lse lacks the row's maximum",
		Kill:   []Killer{differences},
	},
	{
		ID: "lse-offset", File: scalarForward, Modules: forwardF32,
		Old: "lse[lse_off() + statistics_row(bh) + row] = l[i]", New: "lse[statistics_row(bh) + row] = l[i]",
		Breaks: "lse is written to the beginning of its binding wherever it begins",
		Kill:   []Killer{conformance("core/layout-odd/f32", scalar)},
	},
	{
		ID: "bf16-cut-off", File: "shaders/include/dtype.glsl", Modules: "scalar_forward.bf16 scalar_forward_subgroup.bf16",
		Old: "uvec4 r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;", New: "uvec4 r = u >> 16;",
		Breaks: "outputs in bf16 are cut off and not rounded",
		Kill:   []Killer{in("./flash", "TestOutputsAreRoundedToNearestEven")},
	},
	{
		ID: "bf16-ties", File: "shaders/include/dtype.glsl", Modules: "scalar_forward.bf16 scalar_forward_subgroup.bf16",
		Old: "uvec4 r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;", New: "uvec4 r = (u + 0x8000u) >> 16;",
		Breaks: "outputs in bf16 that lie half-way are rounded away from zero and not to even",
		Kill:   []Killer{in("./flash", "TestOutputsAreRoundedToNearestEven")},
	},
}
