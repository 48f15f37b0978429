package main

// Keys in parts and their combination, the merge of parts that passes left, and the kernel for few queries.

const (
	combineParts = "shaders/common/combine_parts.comp"
	mergeShader  = "shaders/common/merge.comp"
	scalarDecode = "shaders/scalar/scalar_decode.comp"
	matrixDecode = "shaders/matrix/matrix_decode.comp"
	fewRows      = "shaders/include/few_rows.glsl"
)

var (
	partsTests  = in("./flash", "TestPartsInScalarArithmetic")
	mergeTests  = in("./flash", "TestMerge")
	decodeTests = in("./flash", "TestDecode")
)

var partsMutants = []Mutant{
	{
		ID: "combine-weights", File: combineParts, Modules: "combine_parts",
		Old: "acc = acc * a + acc2 * b;", New: "acc = acc * a + acc2;",
		Breaks: "a part's rows are added without their weight",
		Kill:   []Killer{partsTests},
	},
	{
		ID: "combine-sum", File: combineParts, Modules: "combine_parts",
		Old: "l = l * a + l2 * b;", New: "l = l + l2 * b;",
		Breaks: "the sum over parts is not rescaled",
		Kill:   []Killer{partsTests},
	},
	{
		ID: "combine-empty-part", File: scalarForward, Modules: "scalar_forward_parts",
		Old: "statistics[at] = l[i] == 0 ? NEG_INFINITY : m[i] + log2(l[i]));", New: "statistics[at] = l[i] == 0 ? 0 : m[i] + log2(l[i]));",
		Breaks: "a part without a key for a row counts as one",
		Kill:   []Killer{partsTests},
	},
	{
		ID: "combine-lse", File: combineParts, Modules: "combine_parts",
		Old: "NEG_INFINITY : score_of_bits(m + log2(l)));", New: "NEG_INFINITY : m + log2(l));",
		Breaks: "lse of keys in parts is a logarithm to base 2",
		Kill:   []Killer{partsTests},
	},
	{
		ID: "combine-barrier", File: combineParts, Modules: "combine_parts",
		Old: "    barrier();\n    if (share < step)", New: "    if (share < step)",
		Breaks: "the invocations of four columns meet before all have written theirs",
		Kill:   []Killer{partsTests, decodeTests},
	},
	{
		ID: "merge-rescale", File: mergeShader, Modules: "merge.",
		Old: "    acc[f] *= kept;\n", New: "",
		Breaks: "what earlier parts summed up to is not rescaled when a larger lse comes",
		Kill:   []Killer{mergeTests},
	},
	{
		ID: "merge-empty", File: mergeShader, Modules: "merge.",
		Old: "if (!empty[n]) acc[f]", New: "acc[f]",
		Breaks: "rows of parts that have no key for them are used, NaN among them",
		Kill:   []Killer{mergeTests},
	},
	{
		ID: "merge-lse", File: mergeShader, Modules: "merge.",
		Old: "m + log(l);", New: "m + log2(l);",
		Breaks: "lse of merged parts is in part a logarithm to base 2",
		Kill:   []Killer{mergeTests, in("./flash", "TestCascade")},
	},
	{
		ID: "merge-chain", File: mergeShader, Modules: "merge.",
		Old: "statistics[((chain & ODD) != 0 ? 0 : rows) + row] = vec2(m, l);", New: "statistics[rows + row] = vec2(m, l);",
		Breaks: "from the third dispatch of a chain on the statistics are those of the first",
		Kill:   []Killer{mergeTests},
	},
	{
		ID: "merge-row-strides", File: "internal/kernel/merge.go",
		Old: "p.Set(l.at[argRowStrides]+8*i+4, lse.Strides[1])", New: "p.Set(l.at[argRowStrides]+8*i+4, uint32(m.QueryLen))",
		Breaks: "lse of parts is read in row-major order whatever its strides",
		Kill:   []Killer{mergeTests, in("./flash", "TestCascade")},
	},
	{
		ID: "parts-remainder", File: walk, Modules: "scalar_forward_parts",
		Old: "walk.end = walk.begin + least + (part < more ? 1 : 0);", New: "walk.end = walk.begin + least;",
		Breaks: "tiles that cannot be shared out evenly among the parts are left out",
		Kill:   []Killer{partsTests},
	},
	{
		ID: "parts-columns", File: scalarForward, Modules: "scalar_forward_parts",
		Old:    "if (four < (DV + 7) / 8 * 2) STORED(sums, 16, sums[at * ((DV + 7) / 8 * 2) + four]",
		New:    "if (four < (DV + 7) / 8 * 2) STORED(sums, 16, sums[at * ((DV + 3) / 4) + four]",
		Breaks: "parts' rows are packed closer than they are read",
		Kill:   []Killer{partsTests},
	},
	{
		ID: "decode-rescale", File: scalarDecode, Modules: "scalar_decode",
		Old: "      l[r] *= alpha;\n", New: "",
		Breaks: "with few queries the sum l is not rescaled when the maximum grows",
		Kill:   []Killer{decodeTests},
	},
	{
		ID: "decode-remainder", File: walk, Modules: "scalar_decode",
		Old: "walk.end = walk.begin + least + (part < more ? 1 : 0);", New: "walk.end = walk.begin + least;",
		Breaks: "with few queries batches of keys that cannot be shared out evenly are left out",
		Kill:   []Killer{decodeTests},
	},
	{
		ID: "decode-member", File: fewRows, Modules: "scalar_decode",
		Old:    "uint member_of(uint row) { return min(row, all_rows - 1) % group(); }",
		New:    "uint member_of(uint row) { return min(row, all_rows - 1) / nq; }",
		Breaks: "with few queries rows are taken for the wrong head of their group",
		Kill:   []Killer{decodeTests},
	},
	{
		ID: "decode-mask", File: mask, Modules: "scalar_decode",
		Old: "min(last, int(query) + high_shift())", New: "min(last, int(query) + high_shift() + 1)",
		Breaks: "with few queries a causal mask shows one key too many",
		Kill:   []Killer{decodeTests},
	},
	{
		ID: "decode-shuffle", File: scalarDecode, Modules: "scalar_decode",
		Old:    "for (uint step = LPR; step < SG; step <<= 1) l[r] += subgroupShuffleXor(l[r], step);",
		New:    "for (uint step = LPR; step < SG / 2; step <<= 1) l[r] += subgroupShuffleXor(l[r], step);",
		Breaks: "half of the lanes' sums are left out of l",
		Kill:   []Killer{decodeTests},
	},
	{
		ID: "decode-padding-values", File: scalarDecode, Modules: "scalar_decode",
		Old:    "#else\n      [[unroll]] for (uint i = 0; i < VP; ++i) V[u * VP + i] = uvec4(0);",
		New:    "#else\n      [[unroll]] for (uint i = 0; i < VP; ++i) V[u * VP + i] |= uvec4(0);",
		Breaks: "values that padding keys read in their place are kept, an infinity among them",
		Kill:   []Killer{in("./flash", "TestDecode.*")},
	},
	{
		ID: "matrix-decode-padding", File: matrixDecode, Modules: "matrix_decode.f16",
		Old: "    if (current * BATCH + v_key(u) >= seen)", New: "    if (false)",
		Breaks: "values that padding keys read in their place are kept, an infinity among them, in fragments",
		Kill:   []Killer{in("./flash", "TestMatrixDecode.*")},
	},
	{
		ID: "matrix-decode-rescale", File: matrixDecode, Modules: "matrix_decode.f16",
		Old: "        l[r] *= alpha;\n", New: "",
		Breaks: "with few queries on matrices the sum l is not rescaled when the reference moves",
		Kill:   []Killer{in("./flash", "TestMatrixDecode.*")},
	},
	{
		ID: "decode-barrier", File: scalarDecode, Modules: "scalar_decode",
		Old: "if (first_row > 0) barrier();", New: "",
		Breaks: "sums of the next rows are written over those that are still read",
		Kill:   []Killer{in("./flash", "TestDecode.*")},
	},
}
