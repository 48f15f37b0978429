package main

// The largest score of each head.

const (
	maxLogit       = "shaders/include/max_logit.glsl"
	matrixMaxLogit = "shaders/include/matrix_max_logit.glsl"
	matrix         = "flash2/matrix"
)

var maxLogitMutants = []Mutant{
	{
		ID: "max-logit-stale", File: matrixMaxLogit, Modules: "matrix_forward.f16",
		Old:    "return logit_of(largest[x] * scale, NOTED_SUM(x));",
		New:    "return logit_of(FORM == 3 ? largest[x] * scale : m[x], NOTED_SUM(x));",
		Breaks: "the reference that rescaling leaves behind is taken for the largest score",
		Kill:   []Killer{conformance("max-logit/grown/f16", matrix)},
	},
	{
		ID: "max-logit-masked", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old:    "  if (masked) mask(c);\n  if (late) {\n",
		New:    "  if (MAX_LOGIT) { lane_max(); note_scores(); }\n  if (masked) mask(c);\n  if (late) {\n",
		Breaks: "keys that are hidden count among the largest scores",
		Kill:   []Killer{conformance("max-logit/hidden/f16", matrix)},
	},
	{
		ID: "max-logit-sign", File: maxLogit, Modules: forwardF16,
		Old:    "atomicMin(max_logit_below[max_logit_off + bh], uint(key ^ 0x7fffffff));",
		New:    "atomicMax(max_logit[max_logit_off + bh], key ^ 0x7fffffff);",
		Breaks: "numbers below 0 are compared as those above",
		Kill:   []Killer{conformance("max-logit/negative/f16", scalar)},
	},
	{
		ID: "max-logit-nan", File: maxLogit, Modules: forwardF16,
		Old: "if ((floatBitsToUint(weights) & 0x7f800000u) == 0x7f800000u) return NAN_LOGIT;", New: "",
		Breaks: "a score that is no number is passed over",
		Kill:   []Killer{in("./flash", "TestMaxLogitOfNoNumbers")},
	},
	{
		ID: "max-logit-row-beyond", File: scalarForward, Modules: forwardF16,
		Old: "if (q0 + ty + TY * i < query_count()) own", New: "own",
		Breaks: "rows of zeros beyond the last query have scores of 0",
		Kill:   []Killer{conformance("max-logit/negative/f16", scalar)},
	},
	{
		ID: "max-logit-member", File: matrixMaxLogit, Modules: "matrix_forward.f16",
		Old: "add_logit(b * heads() + q_head + member_of(NOTED_ROW(x)), own)", New: "add_logit(b * heads() + q_head, own)",
		Breaks: "heads that share a tile give all their scores to the first",
		Kill:   []Killer{conformance("max-logit/few/f16", matrix)},
	},
	{
		ID: "max-logit-few", File: "shaders/matrix/matrix_decode.comp", Modules: "matrix_decode.f16",
		Old: "int own = exists ? logit_of(largest[r], l[r]) : NO_LOGIT;", New: "int own = exists ? logit_of(m[r], l[r]) : NO_LOGIT;",
		Breaks: "of few queries the reference is taken for the largest score",
		Kill:   []Killer{conformance("max-logit/parts-2/f16", "flash2/matrix/decode=1")},
	},
	{
		ID: "max-logit-sinks", File: "shaders/standard/standard_softmax.comp", Modules: "standard_softmax.f16",
		Old: "logit_of(l == 0 ? NEG_INFINITY : m, l)", New: "logit_of(max(m, SINKS ? bits_of_score(sinks[sinks_off]) : m), l)",
		Breaks: "a sink counts as a score",
		Kill:   []Killer{conformance("max-logit/sinks/f16", "standard/scalar")},
	},
	{
		ID: "max-logit-begin", File: "shaders/common/max_logit.comp", Modules: "max_logit",
		Old: "= floatBitsToUint(NEG_INFINITY);", New: "= 0u;",
		Breaks: "heads begin at 0, not at -inf",
		Kill:   []Killer{conformance("max-logit/negative/f16", scalar)},
	},
	{
		ID: "max-logit-offset", File: "internal/kernel/scores.go",
		Old: "[4*maxLogitAt:], o.Offset)", New: "[4*maxLogitAt:], 0)",
		Breaks: "the numbers before a tensor are taken for its own",
		Kill:   []Killer{conformance("max-logit/causal/f16", scalar)},
	},
}
