package main

// The scalar backward kernels, the row term, and what the host hands to them.

const (
	backwardKV    = "shaders/scalar/scalar_backward_kv.comp"
	backwardQ     = "shaders/scalar/scalar_backward_q.comp"
	backwardDelta = "shaders/common/backward_delta.comp"
)

var (
	differences   = in("./flash", "TestBackwardFiniteDifferences")
	gradientsCase = conformance("grid/split/f32", scalar)
)

var backwardMutants = []Mutant{
	{
		ID: "delta-dlse-sign", File: backwardDelta, Modules: "backward_delta",
		Old: "= sum - (HAS_DLSE ?", New: "= sum + (HAS_DLSE ?",
		Breaks: "the gradient of lse joins the row term with the wrong sign",
		Kill:   []Killer{differences},
	},
	{
		ID: "delta-rows", File: backwardDelta, Modules: "backward_delta",
		Old:    "const uint o_at = x_off() + bh / heads() * x_sb + bh % heads() * x_sh + i * x_sn;",
		New:    "const uint o_at = x_off() + bh / heads() * x_sb + bh % heads() * x_sh;",
		Breaks: "the row term of every row is made with the first row of O",
		Kill:   []Killer{gradientsCase, differences},
	},
	{
		ID: "delta-columns", File: backwardDelta, Modules: "backward_delta",
		Old: "sum += c < DV ? part : 0;", New: "sum += part;",
		Breaks: "the last column counts several times in the row term where rows are ragged",
		Kill:   []Killer{differences},
	},
	{
		ID: "ds-sign", File: backwardKV, Modules: "scalar_backward_kv",
		Old: "= p * (x - dl) * slope;", New: "= p * (x + dl) * slope;",
		Breaks: "dS adds the row term and does not subtract it",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "weights-drop-nan", File: "shaders/include/common.glsl", Modules: "scalar_backward",
		Old: "return above > 0.0 ? 1.0 : exp2(above);", New: "return exp2(min(above, 0.0));",
		Breaks: "a NaN among scores may have weight 1",
		Kill:   []Killer{in("./flash", "TestBackwardKeepsNaN")},
	},
	{
		ID: "weights-above-one", File: "shaders/include/common.glsl", Modules: "scalar_backward",
		Old: "return above > 0.0 ? 1.0 : exp2(above);", New: "return exp2(above);",
		Breaks: "weights that are made of an lse whose rounding is large are large or infinite, and a do of 0 gives NaNs",
		Kill:   []Killer{in("./flash", "TestHugeBiases")},
	},
	{
		ID: "dk-scale", File: backwardKV, Modules: "scalar_backward_kv",
		Old: "h * x_sh, x_sn, scale);", New: "h * x_sh, x_sn, 1.0);",
		Breaks: "dK lacks the scale",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "dq-sign", File: backwardQ, Modules: "scalar_backward_q",
		Old: "h * x_sh, x_sn, scale);", New: "h * x_sh, x_sn, -scale);",
		Breaks: "dQ has the wrong sign",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "dq-mask", File: backwardQ, Modules: "scalar_backward_q",
		Old: "if (edge && !has(keys, key)) s = NEG_INFINITY;", New: "if (edge && int(key) > keys.last + 1) s = NEG_INFINITY;",
		Breaks: "dQ has a part of one key beyond the diagonal",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "dk-mask", File: mask, Modules: "scalar_backward_kv",
		Old: "int(key) > int(query) + high_shift() ||", New: "int(key) >= int(query) + high_shift() ||",
		Breaks: "dK and dV lack the diagonal",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "dk-window", File: mask, Modules: "scalar_backward_kv",
		Old: "int(key) < int(query) + low_shift();", New: "int(key) <= int(query) + low_shift();",
		Breaks: "dK and dV lack the first key of a window",
		Kill:   []Killer{differences},
	},
	{
		ID: "dk-window-walk", File: walk, Modules: "scalar_backward_kv",
		Old: "w.whole_end = min(w.whole_end, uint(max(a.last", New: "w.whole_end = min(w.whole_end, uint(max(b.last",
		Breaks: "dK and dV have queries beyond a window",
		Kill:   []Killer{conformance("window/100--1-256x256-bottom-right/f32", scalar)},
	},
	{
		ID: "dk-first-tile", File: walk, Modules: "scalar_backward_kv",
		Old: "a_begin = uint(clamp(a.first", New: "a_begin = uint(clamp(b.first",
		Breaks: "dK and dV leave out the queries that see only a part of a block of keys",
		Kill:   []Killer{gradientsCase, differences},
	},
	{
		ID: "dk-group", File: backwardKV, Modules: "scalar_backward_kv",
		Old: "for (uint member = 0; member < group(); ++member)", New: "for (uint member = 0; member < 1; ++member)",
		Breaks: "dK and dV have the part of one query head of the group alone",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "backward-empty-rows", File: backwardQ, Modules: "scalar_backward_q",
		Old: "    if (l[i] == NEG_INFINITY) l[i] = -NEG_INFINITY;\n", New: "",
		Breaks: "a query with nothing to attend to has a gradient that is no number",
		Kill:   []Killer{conformance("mixed/03/f16", scalar)},
		Equivalent: "lse is subtracted before a score is masked, and of a query with nothing to attend to every score is masked, in " +
			"tiles that are no " +
			"whole ones; only scores that overflow to −∞ would tell",
	},
	{
		ID: "dq-ds-sign", File: backwardQ, Modules: "scalar_backward_q",
		Old: "* (x - dl[i]) * slope;", New: "* (x + dl[i]) * slope;",
		Breaks: "dQ's dS adds the row term and does not subtract it",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "accumulate-ignored", File: "shaders/include/gradient.glsl", Modules: "scalar_backward",
		Old: "encode4(ACCUMULATE ? y + decode4(", New: "encode4(false ? y + decode4(",
		Breaks: "gradients in aligned rows overwrite what they should be added to",
		Kill:   []Killer{in("./flash", "TestGradientsAddUp")},
	},
	{
		ID: "accumulate-always", File: "shaders/include/gradient.glsl", Modules: "scalar_backward",
		Old: "encode4(ACCUMULATE ? y + decode4(", New: "encode4(true ? y + decode4(",
		Breaks: "gradients in aligned rows are added to what is there unasked",
		Kill:   []Killer{gradientsCase},
	},
	{
		ID: "dropout-ds", File: backwardKV, Modules: "scalar_backward_kv",
		Old: "x = keeps ? x * keep : 0;", New: "x = x * keep;",
		Breaks: "dK has a part of weights that dropout dropped",
		Kill:   []Killer{dropoutCase},
	},
	{
		ID: "dropout-dv-scale", File: backwardKV, Modules: "scalar_backward_kv",
		Old: "y_sn, DROPOUT ? drop_scale() : 1.0);", New: "y_sn, 1.0);",
		Breaks: "dV lacks the scale of weights that are kept",
		Kill:   []Killer{dropoutCase},
	},
	{
		ID: "backward-offsets", File: "internal/kernel/args.go",
		Old: "Offsets(&g.LSE, delta, x, y)", New: "Offsets(delta, &g.LSE, x, y)",
		Breaks: "the backward kernels are given the offsets of lse and of the row term in each other's place",
		Kill:   []Killer{conformance("core/layout-odd-bnhd/f16", scalar)},
	},
	{
		ID: "backward-dk-barrier", File: "shaders/include/scalar_backward.glsl", Modules: "scalar_backward",
		Old: "d0 < DV; d0 += DK) {\n    barrier();  // the last reads of what is overwritten now\n", New: "d0 < DV; d0 += DK) {\n",
		Breaks: "operands of the backward products are staged while others still read those before",
		Kill:   []Killer{gradientsCase, differences},
	},
}
