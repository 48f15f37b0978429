package main

// Keys and values in pages, and quantised.

const (
	pagesShader = "shaders/include/pages.glsl"
	heldShader  = "shaders/include/quantised_piece.glsl"
)

var cacheMutants = []Mutant{
	{
		ID: "pages-lost", File: "shaders/scalar/scalar_decode.comp", Modules: "scalar_decode_cache.bf16",
		Old: "      if (lost != 0) lose_values();\n", New: "",
		Breaks: "values of a page that there is not are those of the first page of the pool, another sequence's",
		Kill:   []Killer{conformance("caches/lost-2/bf16", "flash2/scalar/decode=1")},
	},
	{
		ID: "pages-lookup", File: "shaders/scalar/scalar_decode.comp", Modules: "scalar_decode_cache.f32 scalar_decode_cache.f16",
		Old:    "min(batch * BATCH + (LOOKUPS == 1 ? 0 : g + GROUPS * u), max(seen, 1) - 1)",
		New:    "min(batch * BATCH + GROUPS * u, max(seen, 1) - 1)",
		Breaks: "lanes take the page of the first key of their batch where pages are shorter than it",
		Kill:   []Killer{in("./flash", "TestPagesGrow")},
	},
	{
		ID: "pages-last", File: pagesShader, Modules: "scalar_decode_cache.bf16",
		Old: "uint(max(pages, 1)) - 1,", New: "uint(max(pages, 1)),",
		Breaks: "an entry of a compressed table has the keys of a page more",
		Kill:   []Killer{conformance("caches/one-compressed/bf16", "flash2/scalar/decode=1")},
	},
	{
		ID: "pages-stage", File: "shaders/include/stage.glsl", Modules: "scalar_forward_cache.f16 scalar_forward_cache_subgroup.f16",
		Old: "        STAGE_PAGE(row)\n", New: "        STAGE_PAGE(row0)\n",
		Breaks: "all rows of a tile come from the page of its first one",
		Kill:   []Killer{conformance("caches/prefill/f16", "flash2/scalar/decode=0")},
	},
	{
		ID: "quantised-middle", File: heldShader, Modules: "scalar_decode_cache.f16",
		Old: "((HELD_ODD >> u ^ p / 2 * STEPS_OF(QUANTISED_TYPE)) & 1u)", New: "((HELD_ODD >> u) & 1u)",
		Breaks: "every second block is taken to begin where the one before it does in its word",
		Kill:   []Killer{conformance("caches/quantised/q8/f16", "flash2/scalar/decode=1")},
	},
	{
		ID: "quantised-scale", File: fewRows, Modules: "scalar_decode_cache.f16",
		Old: "    if (IS_FLOAT8(V_TYPE)) x *= value_scale(b, kh);\n", New: "",
		Breaks: "values of fp8 are not multiplied by their scales",
		Kill:   []Killer{conformance("caches/quantised/f8/f16", "flash2/scalar/decode=1")},
	},
	{
		ID: "quantised-pairs", File: "shaders/include/matrix_cache_rows.glsl", Modules: "matrix_decode_cache.f16",
		Old: "return (y & 1u) << 1 | (y >> 1 & 1u);", New: "return y;",
		Breaks: "the second and third number of a word change places on their way into fragments",
		Kill:   []Killer{in("./flash", "TestMatrixDecodeCaches")},
	},
	{
		ID: "quantised-denormals", File: "shaders/include/quantised.glsl",
		Modules: "scalar_decode_cache.f32 scalar_forward_cache.f32 scalar_forward_cache_subgroup.f32",
		Old:     "y = min(x, fma(x, vec4(2), vec4(-0.015625)));", New: "y = x;",
		Breaks: "the smallest numbers of fp8 are as far apart as those twice as large",
		Kill:   []Killer{in("./flash", "TestFP8Numbers")},
	},
	{
		ID: "quantised-fifths", File: heldShader, Modules: "scalar_decode_cache.f16",
		Old: "upper_four(w), fifths >> 16 + 4 * c);", New: "upper_four(w), fifths >> 4 * c);",
		Breaks: "numbers of the second half of a block of q5_0 have the highest bits of the first half's",
		Kill:   []Killer{conformance("caches/quantised/q5_0/f16", "flash2/scalar/decode=1")},
	},
	{
		ID: "quantised-least", File: heldShader, Modules: "scalar_decode_cache.f16",
		Old: "upper ? across(HELD[head], HELD[second]) : HELD[head]);", New: "HELD[head]);",
		Breaks: "d and m of a block of q5_1 that begins in the middle of a word are the number before it, and d",
		Kill:   []Killer{in("./flash", "TestBlocksInTheMiddleOfWords")},
	},
	{
		ID: "quantised-table", File: "shaders/include/quantised_types.glsl",
		Modules: "scalar_forward_cache.f16 scalar_forward_cache_subgroup.f16",
		Old:     "#define IQ4_C 0x26190d01u", New: "#define IQ4_C 0x26190d00u",
		Breaks: "the number of iq4_nl that is nearest to 0 is 0, and not 1",
		Kill:   []Killer{conformance("caches/quantised/iq4_nl/f16", "flash2/scalar/decode=0")},
	},
	{
		ID: "quantised-sum-of-least", File: "shaders/matrix/matrix_decode.comp", Modules: "matrix_decode_cache.f16",
		Old: "c * K_PER + part) / -1024;", New: "c * K_PER + part) / -1032;",
		Breaks: "keys of blocks with a least number have 127/128 of it",
		Kill:   []Killer{in("./flash", "TestDecodingKeysOfBlocks")},
	},
}
