package main

// Kernels on cooperative matrices. Most mistakes in them are seen by the self-check before a kernel's first use, and the plan then
// declines: the tests that find them are those that insist on the kernel.

const (
	matrixForward       = "shaders/matrix/matrix_forward.comp"
	matrixWide          = "shaders/matrix/matrix_forward_wide.comp"
	matrixLatent        = "shaders/matrix/matrix_latent.comp"
	matrixAttention     = "shaders/include/matrix_attention.glsl"
	matrixSoftmax       = "shaders/include/matrix_softmax.glsl"
	matrixSharedSoftmax = "shaders/include/matrix_shared_softmax.glsl"
	matrixRows          = "shaders/include/matrix_rows.glsl"
	matrixBackwardChunk = "shaders/include/matrix_backward_chunk.glsl"
)

var (
	matrixForms = in("./flash", "TestMatrixForms")
	matrixTiles = in("./flash", "TestMatrixTiles")
	wideForms   = in("./flash", "TestWideForms")
	wideTiles   = in("./flash", "TestWideTiles")
	latentTiles = in("./flash", "TestLatentTiles")

	// One case each: compiling these kernels takes a CPU's driver a quarter of a minute and more.
	matrixGradient        = Killer{"./flash", "^TestMatrixBackward$/Nq20_Nk23_D16"}
	matrixGradientDropout = Killer{"./flash", "^TestMatrixBackward$/dropout_"}
)

var matrixMutants = []Mutant{
	{
		ID: "wide-team-sum", File: matrixWide, Modules: "matrix_forward_wide.f16",
		Old:    "sum += X[TOPS + (own_row - share * TEAM_ROWS) + s * TEAM_ROWS + row];",
		New:    "sum += s == share ? X[TOPS + own_row + row] : 0.0;",
		Breaks: "O is divided by the sum over one subgroup's keys",
		Kill:   []Killer{wideForms},
	},
	{
		ID: "wide-team-reference", File: matrixWide, Modules: "matrix_forward_wide.f16",
		Old:    "most = max(most, X[TOPS + (own_row - share * TEAM_ROWS) + s * TEAM_ROWS + row]);",
		New:    "most = s == share ? X[TOPS + own_row + row] : most;",
		Breaks: "subgroups of a team weigh by references of their own",
		Kill:   []Killer{wideForms},
	},
	{
		ID: "wide-mask", File: matrixWide, Modules: "matrix_forward_wide.f16",
		Old:    "allowed(keys, query, key_base() + n * FN + col_lane + COL_OF(e)) ?",
		New:    "allowed(keys, query, key_base() + n * FN + col_lane + COL_OF(e) + 1) ?",
		Breaks: "forms 1 and 2 hide each row's last key",
		Kill:   []Killer{wideForms},
	},
	{
		ID: "wide-step-order", File: matrixWide, Modules: "matrix_forward_wide.f16",
		Old: "if (d + 1 < SLICES) fetch_qk(j, d + 1); else fetch_v(j, 0);", New: "if (d + 1 < SLICES) fetch_qk(j, d); else fetch_v(j, 0);",
		Breaks: "with PREFETCH each slice is staged a step late",
		Kill:   []Killer{wideTiles},
	},
	{
		ID: "latent-partners", File: matrixLatent, Modules: "matrix_latent.f16",
		Old:    "[[unroll]] for (uint p = 0; p < SPLIT - 1; ++p)",
		New:    "[[unroll]] for (uint p = 0; p < 1; ++p)",
		Breaks: "an owner adds one partial sum of scores, whatever others sent",
		Kill:   []Killer{latentTiles},
	},
	{
		ID: "latent-reference", File: matrixLatent, Modules: "matrix_latent.f16",
		Old:    "reference = max(reference, Statistics[TOPS + x * ALL_ROWS + slot_row(s)] - BELOW);",
		New:    "reference = max(reference, x == owned % F ? row_max(top[s]) - BELOW : reference);",
		Breaks: "owners of other keys of a row weigh by references of their own",
		Kill:   []Killer{latentTiles},
	},
	{
		ID: "latent-stage", File: "shaders/include/matrix_latent_rows.glsl", Modules: "matrix_latent.f16",
		Old:    "uint values_at(uint of) { return IN_KEYS ? of % STAGES * TILE : (STAGES - 1) * TILE; }",
		New:    "uint values_at(uint of) { return IN_KEYS ? (of + 1) % STAGES * TILE : (STAGES - 1) * TILE; }",
		Breaks: "values that lie in keys are those of the tile beside",
		Kill:   []Killer{latentTiles},
	},
	{
		ID: "latent-page", File: matrixLatent, Modules: "matrix_latent_cache.f16",
		Old:    "own_page = next_page; next_page = later_page;",
		New:    "own_page = next_page;",
		Breaks: "keys from the third tile of a part on are looked for in the second one's pages",
		Kill:   []Killer{conformance("latent/pages/f16", "flash2/matrix/decode=1")},
	},
	{
		ID: "latent-no-key", File: matrixLatent, Modules: "matrix_latent_lists.f16",
		Old:    "if (KEY_AT(e) == NO_KEY) own[e] = NEG_INFINITY;",
		New:    "if (KEY_AT(e) == NO_KEY && SLOT_OF(e) == 0) own[e] = NEG_INFINITY;",
		Breaks: "what is no key of a list weighs as a score of 0, in rows but a lane's first",
		Kill:   []Killer{conformance("latent/lists/f16", "flash2/matrix/decode=1")},
	},
	{
		ID: "latent-next-listed", File: matrixLatent, Modules: "matrix_latent_lists.f16",
		Old:    "own_listed = next_listed; next_listed = later_listed;",
		New:    "own_listed = next_listed;",
		Breaks: "places from the third tile on are said to hold the second one's keys",
		Kill:   []Killer{conformance("latent/lists/f16", "flash2/matrix/decode=1")},
	},
	{
		ID: "matrix-mask", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old: "KEY_OF_MASK(c, n, e)) ? S", New: "KEY_OF_MASK(c, n, e) + 1) ? S",
		Breaks: "forms 1 and 2 hide each row's last key",
		Kill:   []Killer{matrixForms},
	},
	{
		ID: "matrix-late-anew", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "l[x] = before[x];\n  return some_grew();", New: "l[x] = before[x];\n  some_grew(); return false;",
		Breaks: "weights that passed the largest fp16 behind the first chunk stay",
		Kill:   []Killer{in("./flash", "TestMatrixLate")},
	},
	{
		ID: "matrix-late-limit", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "const float LATE_LIMIT = 65504.0;", New: "const float LATE_LIMIT = 6.0e7;",
		Breaks: "sums are looked at behind the loop as if weights were fp32",
		Kill:   []Killer{in("./flash", "TestMatrixLate")},
	},
	{
		ID: "matrix-sums-look", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "fits = fits && row_sums[r][e] < LATE_LIMIT;", New: "fits = fits && row_sums[r][e] < LATE_LIMIT || RM > 0;",
		Breaks: "sums by products are not looked at",
		Kill:   []Killer{in("./flash", "TestMatrixLate")},
	},
	{
		ID: "matrix-sums-chunk", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old:    "n < NP; ++n) [[unroll]] for (uint r = 0; r < RM; ++r)\n    row_sums",
		New:    "n < 1; ++n) [[unroll]] for (uint r = 0; r < RM; ++r)\n    row_sums",
		Breaks: "of a chunk's operands one is summed by products",
		Kill:   []Killer{in("./flash", "TestMatrixLate")},
	},
	{
		ID: "matrix-late-references", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old: "m[x] = m[x] == NONE ? y : m[x];", New: "m[x] = y;",
		Breaks: "rows that saw keys in masked tiles before get another reference, and what they have summed is not rescaled",
		Kill:   []Killer{in("./flash", "TestMatrixLate")},
	},
	{
		ID: "matrix-late-sums", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "before[x] += l[x]; l[x] = 0.0;", New: "before[x] = l[x]; l[x] = 0.0;",
		Breaks: "what a row summed before the last look at its sum is forgotten",
		Kill:   []Killer{in("./flash", "TestMatrixLate")},
	},
	{
		ID: "matrix-repeat-values", File: "shaders/include/matrix_staging.glsl", Modules: "matrix_forward.f16",
		Old: "if (j * BC + x / VU >= key_count()) vr[u]", New: "if (j * BC + x / VU > key_count()) vr[u]",
		Breaks: "the first key that a tile lacks has the last one's value",
		Kill:   []Killer{in("./flash", "TestMatrixRepeats")},
	},
	{
		ID: "matrix-repeat-sum", File: matrixRows, Modules: "matrix_forward.f16",
		Old: "fma(-float(repeats), last_weight", New: "fma(-float(repeats - 1), last_weight",
		Breaks: "sums of rows keep the weight of a key that is there twice",
		Kill:   []Killer{in("./flash", "TestMatrixRepeats")},
	},
	{
		ID: "matrix-repeat-ahead", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "full = min(end, max(key_count() / BC, AHEAD) - AHEAD);", New: "full = min(end, key_count() / BC);",
		Breaks: "the loop that clamps no key fetches the tile that keys end within",
		Kill:   []Killer{in("./flash", "TestMatrixRepeats")},
	},
	{
		ID: "matrix-repeat-rows", File: matrixRows, Modules: "matrix_forward.f16",
		Old: "    if (REPEAT && QUERY_LENGTHS) leave_out_rows();\n", New: "",
		Breaks: "rows beyond an entry's last query get the mean of all values",
		Kill:   []Killer{in("./flash", "TestMatrixRepeatsOfLengths")},
	},
	{
		ID: "matrix-late-settled", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old: "shrink[s] = exp2(m[x] - y); m[x] = y; l[x] *= shrink[s];\n    }\n    [[unroll]] for (uint d = 0; d < VF; ++d) " +
			"[[unroll]] for (uint e = 0; e < O[0].length(); ++e) O[r * VF + d][e] *= shrink[SLOT_OF(e)];\n  }\n}\n\n#ifndef SPLIT",
		New:    "shrink[s] = exp2(m[x] - y); m[x] = y; l[x] *= shrink[s];\n    }\n  }\n}\n\n#ifndef SPLIT",
		Breaks: "O stays behind when references of rows become what they have summed",
		Kill:   []Killer{in("./flash", "TestMatrixLateTurned")},
	},
	{
		ID: "matrix-late-stop", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "stop = whole < start ? whole : end;", New: "stop = first < start ? first : end;",
		Breaks: "tiles at the lower edge of a window, which are turned behind those of the diagonal, have no masks",
		Kill:   []Killer{in("./flash", "TestMatrixLateTurned")},
	},
	{
		ID: "matrix-rescale-skipped", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old: "if (sums_grew()) {", New: "if (false) {",
		Breaks: "the reference of a row never follows its maximum",
		Kill:   []Killer{matrixForms},
	},
	{
		ID: "matrix-rescale-threshold", File: matrixAttention, Modules: "matrix_forward.f16",
		Old: "const float SUM_LIMIT = 32768.0;", New: "const float SUM_LIMIT = 3.0e8;",
		Breaks: "rows are rescaled so late that weights overflow fp16",
		Kill:   []Killer{in("./flash", "TestMatrixRescalesInTime")},
	},
	{
		ID: "matrix-rescale-first", File: matrixAttention, Modules: "matrix_forward.f16",
		Old: "const float GROWTH = 15.0;", New: "const float GROWTH = 30.0;",
		Breaks: "where the maximum is looked at first, rows are rescaled so late that weights overflow fp16",
		Kill:   []Killer{in("./flash", "TestMatrixRescalesInTime")},
	},
	{
		ID: "matrix-nothing-seen", File: matrixAttention, Modules: "matrix_forward.f16",
		Old: "const float NONE = LOWEST;", New: "const float NONE = -1.0e30;",
		Breaks: "a row all of whose scores are below -1e30 counts as one that sees no key",
		Kill:   []Killer{in("./flash", "TestHugeBiases")},
	},
	{
		ID: "matrix-far-bias", File: "shaders/include/score.glsl", Modules: "matrix_forward.f16",
		Old:    "else if (WIDE_BIAS) s = min(max(fma(bias, LOG2E, s), bias * 0.5 - FAR), bias * 0.5 + FAR);",
		New:    "else if (WIDE_BIAS) s = fma(bias, LOG2E, s);",
		Breaks: "a finite bias of fp32 is infinite in units of log 2",
		Kill:   []Killer{in("./flash", "TestHugeBiases")},
	},
	{
		ID: "matrix-no-query", File: "shaders/include/matrix_backward_chunk.glsl", Modules: "matrix_backward_kv.f16",
		Old: "if (l == infinity()) p = slope = 0;", New: "",
		Breaks: "queries beyond the last have weights where a function is infinite",
		Kill:   []Killer{in("./flash", "TestHugeFunctions")},
	},
	{
		ID: "score-bits-in-parts", File: "flash/score/bits.go",
		Old: "case !s.ofPair[r]:", New: "case !s.ofPair[r] && v.op != opMul && v.op != opAdd:",
		Breaks: "parts of what does not depend on the pair are brought into units of log 2 one by one, and are infinite",
		Kill:   []Killer{in("./flash/score", "TestFiniteScoresAreFiniteBits")},
	},
	{
		ID: "score-bits-far", File: "flash/score/bits.go",
		Old: "if !s.takes()[r] {\n\t\treturn inFarBits(g, r)", New: "if !s.takes()[r] {\n\t\treturn g.apply(opMul, r, g.float(math.Log2E))",
		Breaks: "a function's finfo.min hides keys",
		Kill:   []Killer{in("./flash/score", "TestFiniteScoresAreFiniteBits")},
	},
	{
		ID: "matrix-rescale-l", File: matrixSoftmax, Modules: "matrix_forward.f16",
		Old:    "- BIAS);\n      shrink[s] = exp2(m[x] - y); m[x] = y; l[x] *= shrink[s];",
		New:    "- BIAS);\n      shrink[s] = exp2(m[x] - y); m[x] = y;",
		Breaks: "the sum l is not rescaled with the reference",
		Kill: []Killer{conformance("threshold/grow8-every32/f16", "flash2/matrix"),
			conformance("numeric/huge-logits/f16", "flash2/matrix")},
	},
	{
		ID: "matrix-form3-sum", File: matrixSharedSoftmax, Modules: "matrix_forward.f16",
		Old: "X[s + 1] = X[s + 1] * X[s + 2] + all_weights;", New: "X[s + 1] = X[s + 1] + all_weights;",
		Breaks: "in form 3 the sum l is not rescaled",
		Kill:   []Killer{matrixForms},
	},
	{
		ID: "matrix-rows", File: matrixRows, Modules: "matrix_forward.f16",
		Old:    "if (((FM * FN / 8) % SG == 0 || x < FM * FN / 8) && row < rows) {",
		New:    "if (((FM * FN / 8) % SG == 0 || x < FM * FN / 8)) {",
		Breaks: "rows of O beyond the last query are written",
		Kill:   []Killer{conformance("core/narrow/f16", "flash2/matrix")},
	},
	{
		ID: "matrix-columns", File: matrixRows, Modules: "matrix_forward.f16",
		Old: "if (c + x < DV) STORED(o, 2,", New: "if (x == 7 || c + x < DV) STORED(o, 2,",
		Breaks: "a column of O beyond the last is written",
		Kill:   []Killer{conformance("core/narrow/f16", "flash2/matrix")},
	},
	{
		ID: "matrix-zero-columns", File: matrixRows, Modules: "matrix_forward.f16",
		Old: "  if (DF * FK > 8 * KU || VF * FN > 8 * VU) {", New: "  if (false) {",
		Breaks: "columns between D and the next fragment hold what shared memory held",
		Kill:   []Killer{in("./flash", "TestMatrixIgnoresSharedMemory"), matrixTiles},
		OnlyOn: "devices whose fragments are wider than 8 columns, where TestMatrixIgnoresSharedMemory finds it: lavapipe's are 8x8x8",
	},
	{
		ID: "matrix-gqa", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "const uint kv_head = PACK ? h : h / group();", New: "const uint kv_head = PACK ? h : h % key_heads();",
		Breaks: "query heads take turns with key heads",
		Kill:   []Killer{conformance("core/gqa/f16", "flash2/matrix")},
	},
	{
		ID: "matrix-packed", File: matrixAttention, Modules: "matrix_forward.f16",
		Old:    "uint member_of(uint row) { return PACK ? row % group() : 0u; }",
		New:    "uint member_of(uint row) { return PACK ? row / nq : 0u; }",
		Breaks: "packed rows are taken for the wrong head of their group",
		Kill:   []Killer{matrixTiles},
	},
	{
		ID: "matrix-lse", File: matrixAttention, Modules: "matrix_forward.f16",
		Old: "score_of_bits(reference + log2(row_sum));", New: "(reference + log2(row_sum));",
		Breaks: "lse is a logarithm to base 2",
		Kill:   []Killer{matrixForms},
	},
	{
		ID: "matrix-next-tile", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "fetch_k(next(2), clamp); fetch_v(next(2), clamp);", New: "fetch_k(next(2), clamp); fetch_v(next(1), clamp);",
		Breaks: "with two tiles in shared memory values are those of the tile before",
		Kill:   []Killer{matrixTiles},
	},
	{
		ID: "matrix-barrier", File: matrixForward, Modules: "matrix_forward.f16",
		Old: "    store_v(j, clamp);\n    barrier();\n", New: "    store_v(j, clamp);\n",
		Breaks: "a staged tile is read before all of it is written",
		Kill:   []Killer{matrixTiles},
	},
	{
		ID: "matrix-dropout-place", File: "shaders/include/matrix_dropout.glsl", Modules: "matrix_forward.f16",
		Old: "draw(4 * (keys + x / 4 % KEY_GROUPS) + x % 4, query_of(row),", New: "draw(4 * (keys + x / 4 % KEY_GROUPS) + x % 4, row0,",
		Breaks: "all rows of a subgroup drop the same weights",
		Kill:   []Killer{conformance("dropout/p0.100-70x90-d8/f16", "flash2/matrix")},
	},
	{
		ID: "matrix-bf16-cut-off", File: "shaders/include/matrix_types.glsl", Modules: "matrix_forward.bf16",
		Old: "0x7fc0u : floatBitsToUint(x) + 0x8000u >> 16;", New: "0x7fc0u : floatBitsToUint(x) >> 16;",
		Breaks: "outputs in bf16 are cut off and not rounded",
		Kill:   []Killer{in("./flash", "TestMatrixOutputsAreRounded", "TestOutputsAreRoundedToNearestEven")},
		OnlyOn: "devices that multiply matrices of bf16, where TestMatrixOutputsAreRounded finds it: lavapipe does not",
	},
	{
		ID: "matrix-parts-rows", File: "shaders/include/matrix_parts.glsl", Modules: "matrix_forward_parts.f16",
		Old: "statistics_row(b * heads() + q_head + member_of(row))", New: "statistics_row(b * heads() + q_head)",
		Breaks: "parts of all heads of a packed group are written to the first one's rows",
		Kill:   []Killer{in("./flash", "TestPartsOnMatrices")},
	},
	{
		ID: "matrix-flash1-sums", File: "shaders/matrix/matrix_flash1.comp", Modules: "matrix_flash1.f16",
		Old: "before[s] = y.y / P_UNIT;", New: "before[s] = 1.0 / P_UNIT;",
		Breaks: "O of earlier blocks of keys is taken up without its sum",
		Kill:   []Killer{in("./flash", "TestMatrixFlash1Tiles")},
	},
	{
		ID: "matrix-dk-scale", File: "shaders/matrix/matrix_backward_kv.comp", Modules: "matrix_backward_kv",
		Old: "store_x(r, d, scale * keep_scale * P_UNIT)", New: "store_x(r, d, keep_scale * P_UNIT)",
		Breaks: "dK on matrices lacks the scale",
		Kill:   []Killer{in("./flash", "TestMatrixBackwardIsTrusted"), matrixGradient},
	},
	{
		ID: "matrix-keep-slab", File: "shaders/matrix/matrix_backward_kv.comp", Modules: "matrix_backward_kv.f16",
		Old: "bh % (group() << slab_of_ds());", New: "bh % group();",
		Breaks: "every key head of a slab leaves dS where the first one has",
		Kill:   []Killer{in("./flash", "TestBackwardKeeping")},
	},
	{
		ID: "matrix-keep-sequence", File: "shaders/matrix/matrix_backward_kv.comp", Modules: "matrix_backward_kv.f16",
		Old: "(own_first_key + b * (FM - 1)) / FM", New: "own_first_key / FM",
		Breaks: "of packed sequences with dS in memory one puts its last keys where the next has its first",
		Kill:   []Killer{in("./flash", "TestBackwardKeepingPacked")},
	},
	{
		ID: "matrix-keep-packed-slab", File: "shaders/matrix/matrix_backward_kv.comp", Modules: "matrix_backward_kv.f16",
		Old: "(h - slab_head) * group()", New: "h * group()",
		Breaks: "of packed sequences with dS in memory the heads of the second slab leave it behind the slab's end",
		Kill:   []Killer{in("./flash", "TestBackwardKeepingPacked")},
	},
	{
		ID: "matrix-keep-lengths", File: "shaders/standard/standard_backward_product_matrix.comp",
		Modules: "standard_backward_product_matrix.f16",
		Old:     "if (TOP_LEFT) own_first_shift = max(own_first_shift, 0);", New: "",
		Breaks: "dQ by way of dS in memory, causal from the top left, sees with lengths what the diagonal moves to",
		Kill:   []Killer{in("./flash", "TestBackwardKeepingWithLengths")},
	},
	{
		ID: "matrix-skip-chunk", File: "shaders/include/matrix_backward.glsl", Modules: "matrix_backward_kv.f16",
		Old: "key <= query + queries - 1 + high_shift()", New: "key <= query + high_shift()",
		Breaks: "subgroups leave out chunks of which the later queries see their keys",
		Kill:   []Killer{in("./flash", "TestBackwardKeeping")},
	},
	{
		ID: "matrix-skip-tile", File: "shaders/matrix/matrix_forward.comp", Modules: "matrix_forward.f16",
		Old: "int(query_of(row0 + RM * FM - 1)) + high_shift()", New: "int(query_of(row0)) + high_shift()",
		Breaks: "subgroups leave out tiles of keys that all but their first row see",
		Kill:   []Killer{in("./flash", "TestTilesLeftOut")},
	},
	{
		ID: "matrix-walk-on", File: "shaders/include/matrix_backward.glsl", Modules: "matrix_backward_kv.f16",
		Old: "next_t = follows - first; next_member = 0;", New: "next_member = 0;",
		Breaks: "with two tiles in shared memory the first one without masks is the last one with them again",
		Kill:   []Killer{in("./flash", "TestBackwardKeeping")},
	},
	{
		ID: "items-heads", File: "shaders/include/items.glsl", Modules: "matrix_forward.f16",
		Old: "first_head + rest % members", New: "rest % members",
		Breaks: "of packed sequences the first heads are made again in place of later ones",
		Kill:   []Killer{in("./flash", "TestHeadsSideBySide")},
	},
	{
		ID: "matrix-keep-part", File: "internal/attn/problem.go",
		Old: "if p.turned {", New: "if p.turned && p.Within.Queries == 0 {",
		Breaks: "dQ as a product of dS of a part of a longer problem is made with the mask of queries and keys that have changed places",
		Kill:   []Killer{in("./internal/attn", "TestTurned"), in("./flash", "TestBackwardKeeping")},
	},
	{
		ID: "matrix-keep-unseen", File: "shaders/standard/standard_backward_product_matrix.comp",
		Modules: "standard_backward_product_matrix.f16",
		Old:     "if (TURNED && !plain) { leave_out(r0); barrier(); }", New: "",
		Breaks: "dQ is made of what lies in memory where a query sees no key",
		Kill:   []Killer{in("./flash", "TestKeepingReadsWhatIsWritten")},
	},
	{
		ID: "matrix-keep-scale", File: "shaders/standard/standard_backward_product_matrix.comp",
		Modules: "standard_backward_product_matrix.f16",
		Old:     "acc[f] *= score_scale * drop_scale();", New: "acc[f] *= score_scale;",
		Breaks: "dQ as a product of dS lacks what dropout multiplies by",
		Kill:   []Killer{in("./flash", "TestBackwardKeeping")},
	},
	{
		ID: "matrix-dq-mask", File: matrixBackwardChunk, Modules: "matrix_backward_q",
		Old: "    if (!KEYS_ARE_ROWS && key >= key_count()) p = 0;\n", New: "",
		Breaks: "dQ on matrices has parts of keys beyond the last",
		Kill:   []Killer{in("./flash", "TestMatrixBackwardIsTrusted"), matrixGradient},
	},
	{
		ID: "matrix-dropout-gradient", File: matrixBackwardChunk, Modules: "matrix_backward",
		Old: "dP[r * NS + n][e] = DROPOUT ? abs(p) * (p > 0 ? x :", New: "dP[r * NS + n][e] = DROPOUT ? abs(p) * (true ? x :",
		Breaks: "dS in form 1 has a part of weights that dropout dropped",
		Kill:   []Killer{matrixGradientDropout},
	},
	{
		ID: "self-check-ignored", File: "internal/kernel/proof.go",
		Old: "if verdict == Passed {", New: "if true {",
		Breaks: "a kernel that failed its self-check is used",
		Kill:   []Killer{in("./flash", "TestMatrixSelfCheck", "TestKnownAcrossDevices")},
	},
	{
		ID: "self-check-nan", File: "internal/kernel/selfcheck.go",
		Old:    "math.Abs(have-should) <= tolerance*math.Max(1, math.Abs(should))+rough {",
		New:    "!(math.Abs(have-should) > tolerance*math.Max(1, math.Abs(should))+rough) {",
		Breaks: "the self-check lets a NaN pass",
		Kill:   []Killer{in("./flash", "TestSelfChecksTellRightFromWrong")},
	},
	{
		ID: "slices-next", File: "shaders/include/matrix_backward_slices.glsl", Modules: "matrix_backward_weights_wide.",
		Old: "else if (!second) fetch_slice(true, 0, first_key);", New: "else if (!second) fetch_slice(true, 0, next_key);",
		Breaks: "the first slice of V of a wide head is that of the next tile",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "slices-barrier", File: "shaders/include/matrix_backward_weights.glsl", Modules: "matrix_backward_weights_wide.",
		Old: "    barrier();             // they leave by way of where the last slice lies\n", New: "",
		Breaks: "P and dS of a wide head overwrite slices that another subgroup still multiplies",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "weights-drop-scale", File: "shaders/include/matrix_backward_weights.glsl", Modules: "matrix_backward_weights_wide.",
		Old:    "  const float unit = scale * keep_scale * P_UNIT;\n  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n",
		New:    "  const float unit = scale * P_UNIT;\n  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n",
		Breaks: "dS in memory lacks the scale of weights that dropout keeps",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "products-across", File: "shaders/standard/standard_product_matrix.comp", Modules: "standard_product_matrix.",
		Old: "  col += col0;\n", New: "",
		Breaks: "workgroups side by side write the first columns of dQ over one another",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "sums-across", File: "shaders/standard/standard_backward_product_matrix.comp", Modules: "standard_backward_product_matrix.",
		Old: "col0 = id % ACROSS * BC;", New: "col0 = 0;",
		Breaks: "of dK and dV of wide heads only the first columns are made",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabs")},
	},
	{
		ID: "weights-zeros-lengths", File: "shaders/include/matrix_backward_weights.glsl", Modules: "matrix_backward_weights.f16",
		Old: "  if (QUERY_LENGTHS) last = min(last, max(i * BR, last_query()));", New: "  ",
		Breaks: "behind the last key of a block that ends beyond a batch entry's queries too few zeros are written",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabsWithLengths")},
	},
	{
		ID: "products-lengths", File: "shaders/standard/standard_product_matrix.comp", Modules: "standard_product_matrix.",
		Old: "  if (PADDED) { if (row >= rows_made) x = uvec4(0); }\n", New: "",
		Breaks: "dQ of queries beyond those of a batch entry is that of its last",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabsWithLengths")},
	},
	{
		ID: "sums-lengths", File: "shaders/standard/standard_backward_product_matrix.comp", Modules: "standard_backward_product_matrix.",
		Old:    "uint row_count() { return PADDED ? min(max(query_count(), row0) - row0, rows) : rows; }",
		New:    "uint row_count() { return rows; }",
		Breaks: "dK and dV are sums over queries that a batch entry does not have",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabsWithLengths")},
	},
	{
		ID: "plain-edges-rows", File: "shaders/standard/standard_backward_product_matrix.comp",
		Modules: "standard_backward_product_matrix.",
		Old:     "return queries.begin < queries.end && r0 + BK <= row_count();", New: "return queries.begin < queries.end;",
		Breaks: "dK and dV take rows of P and dS beyond the last query as they are",
		Kill:   []Killer{in("./flash", "TestPlainEdges")},
	},
	{
		ID: "draws-kept", File: "shaders/include/matrix_backward_dropout.glsl", Modules: "matrix_backward_weights.f16",
		Old: "const bool is = first_key / 64 == drawn_group;", New: "const bool is = drawn_group != ~0u;",
		Breaks: "tiles beyond the first group of 64 keys have its draws",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabsPacked")},
	},
	{
		ID: "weights-head-base", File: "shaders/matrix/matrix_backward_q.comp", Modules: "matrix_backward_weights.f16",
		Old: "matrix = matrix / y_sb * heads() + x_sb + matrix % y_sb;", New: "matrix = matrix / y_sb * heads() + matrix % y_sb;",
		Breaks: "of packed sequences each slab has P and dS of the first heads",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabsPacked")},
	},
	{
		ID: "products-sequence-row", File: "shaders/standard/standard_product_matrix.comp", Modules: "standard_product_matrix.",
		Old:    "PACKED ? (h - bh0) * rows + query_origin(b, nq, 1) : place.matrix * rows;",
		New:    "PACKED ? (h - bh0) * rows : place.matrix * rows;",
		Breaks: "dQ of each packed sequence is made of the rows of dS of the first",
		Kill:   []Killer{in("./flash", "TestBackwardBySlabsPacked")},
	},
	{
		ID: "sums-sequence-heads", File: "shaders/standard/standard_backward_product_matrix.comp",
		Modules: "standard_backward_product_matrix.",
		Old:     "{ b = place.matrix / sharing; place.matrix %= sharing; }",
		New:     "{ b = place.matrix / slab_heads; place.matrix %= sharing; }",
		Breaks:  "dK and dV of a block of packed keys are those of another sequence where several query heads read a key head",
		Kill:    []Killer{in("./flash", "TestBackwardBySlabsPacked")},
	},
}
