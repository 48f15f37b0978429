package main

// Standard attention, the first FlashAttention, and block masks.

var otherKernelMutants = []Mutant{
	{
		ID: "standard-scale", File: "shaders/standard/standard_backward_softmax.comp", Modules: "standard_backward_softmax",
		Old: "p[t] * (g[t] - delta) * score_scale * slopes(", New: "p[t] * (g[t] - delta) * slopes(",
		Breaks: "dS of standard attention lacks the scale",
		Kill:   []Killer{conformance("grid/split/f16", "standard/scalar")},
	},
	{
		ID: "standard-slopes", File: "shaders/standard/standard_backward_softmax.comp", Modules: "standard_backward_softmax",
		Old: "score_scale * slopes(p[t]", New: "score_scale; slopes(p[t]",
		Breaks: "dS of standard attention lacks the derivative of score functions",
		Kill:   []Killer{conformance("scores/softcap-window/f16", "standard/scalar")},
	},
	{
		ID: "mask-bits", File: "shaders/include/score.glsl", Modules: forwardF32,
		Old: "mask_words[at / 32] >> at % 32 & 1u", New: "mask_words[at / 32] >> 31u - at % 32 & 1u",
		Breaks: "a mask of bits is read from the high end of its words",
		Kill:   []Killer{conformance("scores/bits-odd/f32", scalar)},
	},
	{
		ID: "proof-of-functions", File: "internal/kernel/proof.go",
		Old: "return !p.Score.Identity() || !p.Sees.Everything()", New: "return false",
		Breaks: "kernels of the scalar tier are used unproved with functions in them",
		Kill:   []Killer{in("./flash", "TestFunctionsAreProved")},
	},
	{
		ID: "standard-dlse-sign", File: "shaders/standard/standard_backward_softmax.comp", Modules: "standard_backward_softmax",
		Old: "if (DLSE) delta -= LOADED_IF(", New: "if (DLSE) delta += LOADED_IF(",
		Breaks: "the gradient of lse joins standard attention's row term with the wrong sign",
		Kill:   []Killer{differences},
	},
	{
		ID: "standard-long-rows", File: "shaders/standard/standard_softmax.comp", Modules: "standard_softmax",
		Old: "l = l * exp2(m - higher) + sum(exp2(s - higher));", New: "l = l + sum(exp2(s - higher));",
		Breaks: "the sum of a row too long for registers is not rescaled",
		Kill:   []Killer{in("./flash", "TestStandardMatrix")},
	},
	{
		ID: "standard-zeros", File: "shaders/standard/standard_softmax.comp", Modules: "standard_softmax",
		Old: "for (uint c = pieces + lane; c < zero_end; c += TPR)", New: "for (uint c = pieces + lane; c < pieces; c += TPR)",
		Breaks: "what lies behind a row's last key is multiplied by values",
		Kill:   []Killer{conformance("grid/split/f16", "standard/scalar")},
	},
	{
		ID: "standard-mask", File: mask, Modules: "standard_softmax",
		Old: "min(last, int(query) + high_shift())", New: "min(last, int(query) + high_shift() - 1)",
		Breaks: "standard attention hides the diagonal",
		Kill:   []Killer{conformance("grid/split/f16", "standard/scalar")},
	},
	{
		ID: "standard-slab-keys", File: "shaders/standard/standard_product.comp", Modules: "standard_product",
		Old: "key_tiles(row0 + r0, row0 + min(r0 + BR, rows) - 1, BC)", New: "key_tiles(r0, min(r0 + BR, rows) - 1, BC)",
		Breaks: "a slab of rows that is not the first sees too few keys",
		Kill:   []Killer{in("./flash", "TestSlabs")},
	},
	{
		ID: "standard-slab-gradients", File: "shaders/standard/standard_backward_product.comp", Modules: "standard_backward_product",
		Old: "const bool add = ACCUMULATE || row0 > 0 || first > key_head * group();", New: "const bool add = ACCUMULATE || first > key_head * group();",
		Breaks: "dK and dV of a slab of rows overwrite those of the one before",
		Kill:   []Killer{in("./flash", "TestStandardGradientsOfSlabs")},
	},
	{
		ID: "standard-dropped-weights", File: "shaders/include/standard_matrix.glsl", Modules: "standard_product_matrix",
		Old: "return DROPOUT ? x & ~((x >> 15 & 0x10001u) * 0xffffu) : x;", New: "return x;",
		Breaks: "on matrices standard attention multiplies values by negated weights that are dropped",
		Kill:   []Killer{conformance("dropout/p0.100-70x90-d8/f16", "standard/matrix"), dropoutMask},
	},
	{
		ID: "standard-barrier", File: "shaders/standard/standard_scores.comp", Modules: "standard_scores",
		Old: "    barrier();\n    add_scores(", New: "    add_scores(",
		Breaks: "operands of QKᵀ are read before they are staged",
		Kill:   []Killer{conformance("grid/split/f16", "standard/scalar")},
	},
	{
		ID: "flash1-old-sum", File: "shaders/scalar/scalar_flash1.comp", Modules: "scalar_flash1",
		Old: "acc[i * MD4 + j] *= l[i];", New: "acc[i * MD4 + j] *= 1;",
		Breaks: "flash1 takes up O of earlier blocks of keys without its sum",
		Kill:   []Killer{conformance("mixed/29/f32", "flash1/scalar")},
	},
	{
		ID: "flash1-rescale", File: "shaders/scalar/scalar_flash1.comp", Modules: "scalar_flash1",
		Old: "l[i] *= exp2(m[i] - top[i]);", New: "l[i] *= 1;",
		Breaks: "flash1 does not rescale what earlier blocks of keys left",
		Kill:   []Killer{conformance("mixed/29/f32", "flash1/scalar")},
	},
	{
		ID: "flash1-first-block", File: "shaders/scalar/scalar_flash1.comp", Modules: "scalar_flash1",
		Old: "uint i = j > 0 ? queries.begin : 0;", New: "uint i = j > 0 ? queries.begin + 1 : 0;",
		Breaks: "flash1 leaves out the first block of queries that sees a block of keys",
		Kill:   []Killer{conformance("mixed/29/f32", "flash1/scalar")},
	},
	{
		ID: "blocks-bit-order", File: "internal/kernel/blocks.go",
		Old: "set(mask+r*across+c/32, c%32)", New: "set(mask+r*across+c/32, 31-c%32)",
		Breaks: "the blocks of a mask stand in their words from the highest bit on",
		Kill:   []Killer{in("./flash", "TestPackMask")},
	},
	{
		ID: "blocks-score-bit", File: mask, Modules: "scalar_forward. scalar_forward_subgroup.",
		Old: "/ BLOCK_OWN * block_words + c / 32] >> (c % 32) & 1u)", New: "/ BLOCK_OWN * block_words + c / 32] >> (31 - c % 32) & 1u)",
		Breaks: "a score of a ragged tile looks up another block's bit",
		Kill:   []Killer{in("./flash", "TestBlockSparseRowsOfOneTile")},
	},
	{
		ID: "blocks-words", File: walk, Modules: "scalar_forward. scalar_forward_subgroup.",
		Old: "(word * 32 + findLSB(bits))", New: "findLSB(bits)",
		Breaks: "of masks wider than 32 blocks the first 32 are visited again and again",
		Kill:   []Killer{in("./flash", "TestBlockSparseWideMask")},
	},
	{
		ID: "blocks-per-head", File: mask, Modules: "scalar_forward. scalar_forward_subgroup.",
		Old: "+ (BLOCK_PER_HEAD ? head : 0))", New: "+ (BLOCK_PER_HEAD ? 0 : 0))",
		Breaks: "all heads use the first one's mask",
		Kill:   []Killer{in("./flash", "TestBlockSparseWideMask")},
	},
	{
		ID: "blocks-per-batch", File: mask, Modules: "scalar_backward_q.",
		Old: "(BLOCK_PER_BATCH ? b *", New: "(BLOCK_PER_BATCH ? 0 *",
		Breaks: "dQ of all batch entries is made with the first one's block mask",
		Kill:   []Killer{in("./flash", "TestBlockSparseBackward")},
	},
	{
		ID: "blocks-columns", File: mask, Modules: "scalar_backward_kv.",
		Old: "block_head += others;", New: "block_head += 0 * others;",
		Breaks: "dK and dV are made with the rows of the block mask for its columns",
		Kill:   []Killer{in("./flash", "TestBlockSparseBackward")},
	},
	{
		ID: "blocks-matrix-parity", File: "shaders/include/matrix_backward.glsl", Modules: "matrix_backward_",
		Old: "BLOCK_MASK ? 1 - tile : t % 2", New: "t % 2",
		Breaks: "with two tiles in shared memory and a block mask that leaves some out, the wrong one is computed with",
		Kill:   []Killer{in("./flash", "TestBlockSparseBackward")},
	},
	{
		ID: "blocks-matrix-bits", File: matrixBackwardChunk, Modules: "matrix_backward_",
		Old: "if (!block_allows(query, key)) p = 0;", New: "",
		Breaks: "a ragged tile's gradients have scores of blocks that are not attended to",
		Kill:   []Killer{in("./flash", "TestBlockSparseBackward")},
	},
	{
		ID: "blocks-skipping", File: walk, Modules: "scalar_forward. scalar_forward_subgroup.",
		Old: "r < block_rows; ++r)", New: "r < 1; ++r)",
		Breaks: "tiles that only the later rows of blocks attend to are skipped",
		Kill:   []Killer{in("./flash", "TestBlockSparseRowsOfOneTile")},
	},
	{
		ID: "classes-beyond-bounds", File: "shaders/common/mask_classes.comp", Modules: "mask_classes",
		Old: "if (has(keys, key)) {", New: "{",
		Breaks: "classes of blocks look at pairs that the causal order and the window hide: blocks on the diagonal are no longer whole",
		Kill:   []Killer{in("./flash", "TestMaskClasses")},
	},
	{
		ID: "classes-columns", File: "shaders/common/mask_classes.comp", Modules: "mask_classes",
		Old: "atomicOr(classes[of_column + words], 1u << row % 32);", New: "atomicOr(classes[of_column], 1u << row % 32);",
		Breaks: "no block is whole for kernels that own keys",
		Kill:   []Killer{in("./flash", "TestMaskClasses")},
	},
	{
		ID: "classes-whole", File: mask, Modules: "scalar_forward. scalar_forward_subgroup. scalar_backward_q. scalar_backward_kv.",
		Old: "return BLOCKS_OF_TILES && (block_bits[block_head + block_whole + block_row0", New: "return BLOCKS_OF_TILES && (block_bits[block_head + block_row0",
		Breaks: "every block with a bit counts as whole, and mask functions are not asked of edges",
		Kill:   []Killer{in("./flash", "TestMaskTiles")},
	},
	{
		ID: "classes-edges", File: walk, Modules: "matrix_forward. matrix_backward_",
		Old: "found = next_tile(t, stop, inside ? EDGE : ANY);", New: "found = next_tile(t, stop, EDGE);",
		Breaks: "on matrices tiles that bounds cut in whole blocks are left out",
		Kill:   []Killer{in("./flash", "TestMaskTiles")},
	},
}
