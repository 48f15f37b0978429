package main

// Lengths of batch entries, packed sequences, and rows that are turned and written into caches.

const (
	lengthsShader = "shaders/include/lengths.glsl"
	appendShader  = "shaders/cache/append.comp"
	quantiser     = "shaders/include/quantise.glsl"
	wideAppend    = "shaders/include/append_wide.glsl"

	rowTableShader = "shaders/common/row_table.comp"
)

var rowMutants = []Mutant{
	{
		ID: "lengths-top-left", File: lengthsShader, Modules: forwardF32,
		Old: "if (TOP_LEFT) own_last_shift = min(own_last_shift, 0);", New: "",
		Breaks: "causal order from the top left moves with the lengths of a batch entry",
		Kill:   []Killer{conformance("lengths/window-top-left/f32", scalar)},
	},
	{
		ID: "lengths-diagonal", File: lengthsShader, Modules: forwardF16,
		Old: "const int moved = int(own_keys) - int(nk) - int(own_queries) + int(nq);", New: "const int moved = int(own_keys) - int(nk);",
		Breaks: "the diagonal does not move with the length of the queries",
		Kill:   []Killer{conformance("lengths/window-causal/f16", scalar)},
	},
	{
		ID: "lengths-unwritten", File: "shaders/include/gradient.glsl", Modules: "scalar_backward_kv.f16 scalar_backward_q.f16",
		Old: "    if (PADDED) { if (row >= rows) y = vec4(0); }\n", New: "",
		Breaks: "gradients beyond lengths are what was made of nothing, and not 0",
		Kill:   []Killer{conformance("lengths/top-left/f16", scalar)},
	},
	{
		ID: "lengths-offset", File: "internal/kernel/scores.go",
		Old: "put(of.More, o.Offset)", New: "put(of.More, o.Offset*uint32(BoolInt(i != attn.AtKeyLengths)))",
		Breaks: "lengths are read from the beginning of what is bound",
		Kill:   []Killer{conformance("lengths/full", scalar)},
	},
	{
		ID: "packed-order", File: rowTableShader, Modules: "row_table",
		Old: "x = add ? x + scan[lid - step] : max(x, scan[lid - step]);", New: "x = add ? x + scan[lid - step] : x;",
		Breaks: "starts of sequences in no order are taken as they are, and slots overlap",
		Kill:   []Killer{in("./flash", "TestBadStarts")},
	},
	{
		ID: "packed-last-row", File: rowTableShader, Modules: "row_table",
		Old: "table[at + 5] = min(keys, USED_KEYS ? given_keys(b) : nk);", New: "table[at + 5] = USED_KEYS ? given_keys(b) : keys;",
		Breaks: "a sequence uses keys beyond its slot",
		Kill:   []Killer{in("./flash", "TestBadStarts")},
	},
	{
		ID: "packed-statistics", File: "shaders/include/rows.glsl", Modules: "scalar_backward_kv.f16 scalar_backward_q.f16",
		Old: "packed_statistics(bh % heads()) + own_first_query : bh * nq", New: "packed_statistics(bh % heads()) : bh * nq",
		Breaks: "every packed sequence has the first one's lse and delta in the backward pass",
		Kill:   []Killer{in("./flash", "TestPackedIsSequenceBySequence")},
	},
	{
		ID: "packed-items", File: "internal/attn/packed.go",
		Old: "return (uint64(packed) + uint64(p.Batch)*uint64(rows-1)) / uint64(rows)", New: "return uint64(packed) / uint64(rows)",
		Breaks: "fewer workgroups are started than there are blocks of packed rows",
		Kill:   []Killer{in("./internal/attn", "TestPackedBlocks"), in("./flash", "TestPackedIsSequenceBySequence")},
	},
	{
		ID: "indirect-cut", File: rowTableShader, Modules: "row_table",
		Old: "min(max(groups, i * step) - i * step, step)", New: "min(groups, step)",
		Breaks: "each dispatch of packed blocks is counted as the first one",
		Kill:   []Killer{in("./flash", "TestPackedIndirect")},
	},
	{
		ID: "indirect-members", File: rowTableShader, Modules: "row_table",
		Old: "key_heads() : heads() / MEMBERS) * PARTS", New: "key_heads() : heads()) * PARTS",
		Breaks: "query heads that share a block are counted each",
		Kill:   []Killer{in("./flash", "TestPackedIndirect")},
	},
	{
		ID: "indirect-parts", File: scalarForward, Modules: "scalar_forward_parts",
		Old: "#define GROUPS (PACKED ? max(items() * heads(), 1) : total / PARTS)", New: "#define GROUPS (total / PARTS)",
		Breaks: "workgroups look for their part of the keys behind as many blocks as there may be, and fewer were started",
		Kill:   []Killer{in("./flash", "TestPackedIndirect")},
	},
	{
		ID: "append-ring", File: appendShader, Modules: "append.",
		Old: "return (from + i) % n;", New: "return min(from + i, n - 1);",
		Breaks: "a circular cache does not begin again where it ends",
		Kill:   []Killer{in("./flash/rows", "TestAppend")},
	},
	{
		ID: "rotate-back", File: appendShader, Modules: "append.",
		Old: "return INVERSE ? vec2(turn.x, -turn.y) : turn;", New: "return turn;",
		Breaks: "the gradient of a rotation is a rotation the same way",
		Kill:   []Killer{in("./flash/rows", "TestRotateBackIsTheAdjoint")},
	},
	{
		ID: "rotate-far", File: appendShader, Modules: "append.",
		Old: "const uint phase = p * frequency.x + upper + (lower >> 31);", New: "const uint phase = p * frequency.x;",
		Breaks: "angles of positions far away are off",
		Kill:   []Killer{in("./flash/rows", "TestRotate")},
	},
	{
		ID: "rotate-digits", File: "internal/kernel/append.go",
		Old: "0.15915494309189533576888376337251436203445964574045644874766734405889679763422653509", New: "0.15915494309189533",
		Breaks: "frequencies are divided by 2π in float64",
		Kill:   []Killer{in("./flash/rows", "TestRotaryPhases", "TestRotaryFarAway")},
	},
	{
		ID: "append-page-starts", File: appendShader, Modules: "append.",
		Old: "    at += uint(start);\n", New: "",
		Breaks: "compressed tables of pages are read from their beginning, whatever the entry",
		Kill:   []Killer{in("./flash/rows", "TestAppendPages")},
	},
	{
		ID: "append-counts", File: appendShader, Modules: "append_quantised.f16",
		Old: "if (n <= 0 || from_row >= uint(n)) return;", New: "if (n <= 0) return;",
		Breaks: "an entry with fewer rows than others has as many",
		Kill:   []Killer{in("./flash/rows", "TestAppendCounts")},
	},
	{
		ID: "quantise-sign", File: quantiser, Modules: "append_quantised.f32",
		Old: "return abs(b) > abs(a) ? b : a;", New: "return abs(b) >= abs(a) ? b : a;",
		Breaks: "of two numbers of one magnitude the last gives a block of q4_0 its sign",
		Kill:   []Killer{in("./flash/rows", "TestAppendGGML")},
	},
	{
		ID: "quantise-halves", File: quantiser, Modules: "append_quantised.f32",
		Old: "| 0x3effffffu);", New: "| 0x3effff00u);",
		Breaks: "halves of q8_0 go towards zero",
		Kill:   []Killer{in("./flash/rows", "TestAppendQuantisedExactly")},
	},
	{
		ID: "quantise-quotient", File: quantiser, Modules: "append_quantised.f32",
		Old: "(uint(exponent) << 23) + ((n + 1u >> 1) - 0x800000u)", New: "(uint(exponent) << 23) + ((n >> 1) - 0x800000u)",
		Breaks: "quotients are rounded towards zero",
		Kill:   []Killer{in("./flash/rows", "TestAppendQuantisedExactly")},
	},
	{
		ID: "quantise-pairs", File: quantiser, Modules: "append_quantised.",
		Old: "first ? c + R / 2 : c - R / 2", New: "c ^ 16u",
		Breaks: "a column is turned with one of its own block",
		Kill:   []Killer{in("./flash/rows", "TestAppendTypes")},
	},
	{
		ID: "quantise-bytes", File: quantiser, Modules: "append_quantised.",
		Old: "if (mask == 0xffffffffu) {", New: "if (mask != 0u) {",
		Breaks: "a word of e4m3 that two invocations have bytes of is written whole by one",
		Kill:   []Killer{in("./flash/rows", "TestAppendTypes")},
	},
	{
		ID: "quantise-least", File: quantiser, Modules: "append_quantised.f32",
		Old: "float smaller(float a, float b) { return b < a ? b : a; }", New: "float smaller(float a, float b) { return b <= a ? b : a; }",
		Breaks: "of zeros of both signs the last gives a block of q4_1 the sign of its m",
		Kill:   []Killer{in("./flash/rows", "TestAppendGGML")},
	},
	{
		ID: "quantise-sums", File: quantiser, Modules: "append_quantised.f32",
		Old: "a = above + block_sums[from + i].x,", New: "a = above + block_sums[from + 31 - i].x,",
		Breaks: "the scale of iq4_nl is a quotient of sums in two orders",
		Kill:   []Killer{in("./flash/rows", "TestAppendQuantisedExactly")},
	},
	{
		ID: "append-wide-fifths", File: wideAppend, Modules: "append_quantised.",
		Old: "(quad_fifths(a) | quad_fifths(b) << 16) << 4 * s.l);", New: "(quad_fifths(a) | quad_fifths(b) << 16) << s.l);",
		Breaks: "the highest bits of a block's numbers of five bits are not those of their columns",
		Kill:   []Killer{in("./flash/rows", "TestAppendGGML")},
	},
	{
		ID: "append-wide-runs", File: wideAppend, Modules: "append.",
		Old: "(among ? halves : columns - halves) / 2;", New: "columns / 2;",
		Breaks: "where only the first columns are turned, many at once are turned with columns that are not theirs",
		Kill:   []Killer{in("./flash/rows", "TestAppendWide")},
	},
	{
		ID: "append-wide-words", File: wideAppend, Modules: "append_quantised.",
		Old: "if (w - two * pair <= words) word", New: "if (w - two * pair < words) word",
		Breaks: "the word between two blocks lacks the scale of the second",
		Kill:   []Killer{in("./flash/rows", "TestAppendWide")},
	},
}
