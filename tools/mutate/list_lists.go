package main

// Lists of keys.

const (
	listsShader = "shaders/include/lists.glsl"
	listsF16    = "scalar_decode_lists.f16"
	ofLists     = "flash2/scalar/decode=1"

	drawShader = "shaders/view/view_draw.comp"
	viewRender = "./cmd/vkattn/internal/view/render"

	invertShader  = "shaders/common/lists_invert.comp"
	listsBackward = "shaders/scalar/scalar_backward_lists.comp"
)

var listMutants = []Mutant{
	{
		ID: "lists-first-batches", File: scalarDecode, Modules: listsF16,
		Old:    "listed[u] = listed_next[u]; listed_next[u] = listed_later[u];",
		New:    "listed[u] = listed_next[u];",
		Breaks: "the list is read no further than a subgroup's first batch",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
	},
	{
		ID: "lists-none-is-a-key", File: listsShader, Modules: listsF16,
		Old:    "return int(key) >= 0 && has(list_span, key) ? key : NO_KEY;",
		New:    "return has(list_span, uint(max(int(key), 0))) ? uint(max(int(key), 0)) : NO_KEY;",
		Breaks: "numbers below 0 are key 0",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
	},
	{
		ID: "lists-causal-by-place", File: listsShader, Modules: listsF16,
		Old:    "int(key) >= 0 && has(list_span, key)",
		New:    "key < key_count() && has(list_span, place)",
		Breaks: "causal order counts places in the list, not keys",
		Kill:   []Killer{conformance("lists/causal/f16", ofLists)},
	},
	{
		ID: "lists-end", File: listsShader, Modules: listsF16,
		Old: "if (place >= list_keys) return NO_KEY;", New: "",
		Breaks: "a list goes on into the next query's",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
	},
	{
		ID: "lists-heads", File: listsShader, Modules: listsF16,
		Old: "LISTS_PER_HEAD ? b * key_heads() + kh : b", New: "b",
		Breaks: "key heads take the lists of others",
		Kill:   []Killer{conformance("lists/per-head/f16", ofLists)},
	},
	{
		ID: "lists-score", File: scalarDecode, Modules: listsF16,
		Old:    "#define KEY_AT(batch, u) min(listed[u], last_key())",
		New:    "#define KEY_AT(batch, u) min(batch * BATCH + g + GROUPS * u, last_key())",
		Breaks: "score functions see places in the list in the place of keys",
		Kill:   []Killer{conformance("lists/alibi/f16", ofLists)},
	},
	{
		ID: "lists-blocks", File: "shaders/include/few_rows.glsl", Modules: listsF16,
		Old: "row0 = query * group() + place.block % blocks_of_query() * ROWS;", New: "row0 = place.block * ROWS;",
		Breaks: "blocks of rows go on from one query to the next",
		Kill:   []Killer{conformance("lists/group/f16", ofLists)},
	},
	{
		ID: "lists-invert-order", File: invertShader, Modules: "lists_invert",
		Old: "    memoryBarrierBuffer();\n    barrier();\n  }\n}\n\nvoid main", New: "  }\n}\n\nvoid main",
		Breaks: "queries of a key come in the order in which invocations come, and sums with them",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
		OnlyOn: "devices that run subgroups of a workgroup side by side",
	},
	{
		ID: "lists-invert-chunks", File: invertShader, Modules: "lists_invert",
		Old: "        counts[i] = next;\n        next += n;\n", New: "        counts[i] = next;\n",
		Breaks: "queries of each chunk are written over those of the chunk before",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
	},
	{
		ID: "lists-invert-entries", File: invertShader, Modules: "lists_invert",
		Old: "entries[matrix * nq * list_keys + atomicAdd(counts[at + key], 1)]", New: "entries[atomicAdd(counts[at + key], 1)]",
		Breaks: "queries of each batch entry are written over those of another",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
	},
	{
		ID: "lists-backward-group", File: listsBackward, Modules: "scalar_backward_lists_kv.f16",
		Old: "(starts[at + 1] - starts[at]) * group()", New: "starts[at + 1] - starts[at]",
		Breaks: "gradients of keys leave query heads out",
		Kill:   []Killer{conformance("lists/plain/f16", ofLists)},
	},
	{
		ID: "lists-backward-score", File: listsBackward, Modules: "scalar_backward_lists_q.f16 scalar_backward_lists_kv.f16",
		Old: "min(item_key[u], last_key()));", New: "min(walk_length, last_key()));",
		Breaks: "score functions of backward passes see another key",
		Kill:   []Killer{conformance("lists/alibi/f16", ofLists)},
	},
	{
		ID: "lists-marks-first-word", File: drawShader, Modules: "view_draw",
		Old: "if (w == first.x / 32) bits &= ~0u << first.x % 32;", New: "",
		Breaks: "cells are marked for keys before their first one, in the same word of bits",
		Kill:   []Killer{in(viewRender, "TestMarkedPixels")},
	},
	{
		ID: "lists-marks-view", File: drawShader, Modules: "view_draw",
		Old: "last = uvec2(i.key, i.query) + (cell + 1) * length / n - 1;", New: "last = first;",
		Breaks: "a cell of several pairs is marked by its first one",
		Kill:   []Killer{in(viewRender, "TestMarkedPixels")},
	},
	{
		ID: "lists-marks-heads", File: "cmd/vkattn/internal/lists/lists.go",
		Old: "(head*l.Heads/heads*l.Queries+query)", New: "(head%l.Heads*l.Queries+query)",
		Breaks: "query heads are given the lists of other key heads",
		Kill:   []Killer{in("./cmd/vkattn/internal/lists", "TestParse")},
	},
}
