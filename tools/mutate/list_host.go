package main

// What the host does in package flash: grids, layouts, findings and tunings on disk; and the models of traffic.

var (
	bytesTests = in("./internal/traffic", "Test.*BytesByHand")
	tuningTest = in("./flash", "TestStoredTuning.*", "Test.*Tuning.*Store.*")
)

var hostMutants = []Mutant{
	{
		ID: "grid-rows", File: "internal/kernel/grid.go",
		Old: "return [3]uint32{(n + y - 1) / y, y, 1}", New: "return [3]uint32{n / y, y, 1}",
		Breaks: "the last workgroups of a grid of several rows are left out",
		Kill:   []Killer{in("./flash", "TestGridCoversEachGroupOnce")},
	},
	{
		ID: "layout-overlap", File: "internal/attn/layout.go",
		Old: "return ahead >= cover[0] && ahead+cover[1] <= period", New: "return ahead >= cover[0]",
		Breaks: "tensors of a packed buffer that overlap count as apart",
		Kill:   []Killer{in("./internal/attn", "TestOverlapNeverMissed")},
	},
	{
		ID: "layout-bounds", File: "internal/attn/layout.go",
		Old: "if offset > bufferSize || l.Span > bufferSize-offset {", New: "if offset > bufferSize {",
		Breaks: "a tensor may reach beyond its buffer",
		Kill:   []Killer{in("./internal/attn", "TestLayoutErrors"), in("./flash", "TestBadTensors")},
	},
	{
		ID: "mask-allows", File: "internal/attn/mask.go",
		Old: "return m.KeysOf(i).Has(j) }", New: "return m.KeysOf(i).Begin <= j }",
		Breaks: "what asks pair by pair takes a query to see the keys behind its last one",
		Kill:   []Killer{in("./internal/attn", "TestMaskIsTheOracles")},
	},
	{
		ID: "operands-places", File: "internal/attn/operands.go",
		Old: "to[i] = own[-1-at]", New: "to[i] = own[len(own)+at]",
		Breaks: "a pass's own tensors stand in one another's places",
		Kill:   []Killer{in("./internal/attn", "TestPlaces")},
	},
	{
		ID: "bytes-ragged", File: "internal/traffic/queries.go",
		Old: "n := min((end+ahead)*m.Keys, p.KeyLen) - begin*m.Keys", New: "n := (end+ahead)*m.Keys - begin*m.Keys",
		Breaks: "the model of traffic counts keys beyond the last",
		Kill:   []Killer{bytesTests},
	},
	{
		ID: "bytes-again", File: "internal/traffic/keys.go",
		Old: "\tconst statistics = 2 * fp32 // m and l\n", New: "\tconst statistics = fp32\n",
		Breaks: "the model of flash1's traffic counts one number a row between blocks of keys and not two",
		Kill:   []Killer{bytesTests},
	},
	{
		ID: "bytes-pitch", File: "internal/traffic/standard.go",
		Old: "weights += float64(n * (min(to, pitch(p)) - min(from, pitch(p))))", New: "weights += float64(n * (to - from))",
		Breaks: "the model of standard attention's traffic counts weights beyond the row's pitch",
		Kill:   []Killer{bytesTests},
	},
	{
		ID: "bytes-delta", File: "internal/traffic/backward.go",
		Old: "read := 2*queries*dv + one(c.DLSE)*queries*fp32", New: "read := queries*dv + one(c.DLSE)*queries*fp32",
		Breaks: "the model of the backward pass's traffic counts dO and not O",
		Kill:   []Killer{bytesTests},
	},
	{
		ID: "bytes-blocks", File: "internal/traffic/queries.go",
		Old: "loads = tiles + one(!m.NoneUnseen)*(1-some)", New: "loads = tiles",
		Breaks: "the model of a kernel with a block mask forgets the queries of a block that sees nothing",
		Kill:   []Killer{bytesTests},
	},
	{
		ID: "flops-twice", File: "internal/attn/problem.go",
		Old: "return 2 * p.AllHeads() * p.PaperPairs() *", New: "return 4 * p.AllHeads() * p.PaperPairs() *",
		Breaks: "a multiply-add counts as four operations",
		Kill:   []Killer{in("./flash", "TestForwardFLOPs")},
	},
	{
		ID: "flops-causal", File: "internal/attn/problem.go",
		Old: "return float64(p.QueryLen) * float64(p.KeyLen) / 2", New: "return float64(p.QueryLen) * float64(p.KeyLen)",
		Breaks: "causal attention counts the operations of all pairs",
		Kill:   []Killer{in("./flash", "TestForwardFLOPs")},
	},
	{
		ID: "flops-backward", File: "flash/problem.go",
		Old: "return 2.5 * p.ForwardFLOPs()", New: "return 2 * p.ForwardFLOPs()",
		Breaks: "the backward pass counts as twice the forward pass and not 2.5 times",
		Kill:   []Killer{in("./flash", "TestForwardFLOPs", "TestBackwardOperations")},
	},
	{
		ID: "known-driver", File: "internal/kernel/known.go",
		Old: "f.VendorID, f.DeviceID, f.DriverVersion, f.PipelineCacheUUID)", New: "f.VendorID, f.DeviceID, 0, f.PipelineCacheUUID)",
		Breaks: "findings about one version of a driver are believed of another",
		Kill:   []Killer{in("./flash", "TestFindingsBelongToADriver")},
	},
	{
		ID: "known-checksum", File: "internal/kernel/known.go",
		Old: "if sum != f.SHA256 {", New: "if sum == \"\" {",
		Breaks: "a damaged file of findings is believed",
		Kill:   []Killer{in("./flash", "TestKnownFile")},
	},
	{
		ID: "verdict-module", File: "internal/kernel/proof.go",
		Old: "fmt.Fprintf(&key, \" %s %.16s\", k.Module, hash)", New: "fmt.Fprintf(&key, \" %s %.0s\", k.Module, hash)",
		Breaks: "the verdict on a kernel outlives its shader",
		Kill:   []Killer{in("./flash", "TestVerdictsBelongToAModule")},
	},
	{
		ID: "plan-again-stale", File: "internal/kernel/known.go", Old: "if old, ok := Known.Entries[at]; ok && old != value {",
		New:    "if false {",
		Breaks: "a plan that was made before is made again by a kernel that was denied meanwhile",
		Kill:   []Killer{in("./flash", "TestPlanAgain")},
	},
	{
		ID: "plan-again-tuned", File: "flash/selection.go", Old: "s.tunings = tuned.State()", New: "s.tunings = 0",
		Breaks: "a plan that was made before is made again without a tuning that was stored meanwhile",
		Kill:   []Killer{in("./flash", "TestPlanAgain")},
	},
	{
		ID: "plan-again-functions", File: "flash/selection.go", Old: "sees: p.Sees.CacheKey(),", New: "sees: \"\",",
		Breaks: "problems that differ in who sees what share a plan",
		Kill:   []Killer{in("./flash", "TestPlanAgain")},
	},
	{
		ID: "tuning-drops-others", File: "internal/tuned/file.go",
		Old:    "func(e Entry) bool { return e.Key == o.Key })\n\t\t}), entries...)",
		New:    "func(e Entry) bool { return true })\n\t\t}), entries...)",
		Breaks: "storing one tuning drops all others",
		Kill:   []Killer{in("./internal/tuned", "TestStoredTuningsAdd")},
	},
	{
		ID: "tiles-family", File: "internal/tiles/tiles.go",
		Old: "n > most {", New: "most < 0 && n >= 0 {",
		Breaks: "the first family of tiles that suits a device has it, and not the one that asks the most of it",
		Kill:   []Killer{in("./internal/kernel/catalogue", "TestFamilies")},
	},
	{
		ID: "tiles-order", File: "internal/tiles/tiles.go",
		Old: "f.all = append(f.all, from.all...)", New: "f.all = append(slices.Clone(from.all), f.all...)",
		Breaks: "inherited rows of tiles go before a family's own",
		Kill:   []Killer{in("./internal/kernel/catalogue", "TestFamilies", "TestTilesStay"), in("./internal/tiles", "TestOver")},
	},
	{
		ID: "tiles-keys", File: "internal/tiles/row.go",
		Old: "c.MostKeys != 0 && p.Keys > c.MostKeys", New: "c.MostKeys != 0 && p.Keys > 2*c.MostKeys",
		Breaks: "a row of tiles for few keys is taken for more",
		Kill:   []Killer{in("./internal/tiles", "TestSuits"), in("./internal/tuned", "TestExportedTiles")},
	},
	{
		ID: "tiles-export", File: "internal/tuned/tiles.go",
		Old: "w.LeastKeys = w.MostKeys/2 + 1", New: "w.LeastKeys = w.MostKeys / 2",
		Breaks: "what tune measured for one class of key lengths is exported for a length of the class before it too",
		Kill:   []Killer{in("./internal/tuned", "TestExportedTiles")},
	},
	{
		ID: "tuning-build", File: "internal/tuned/key.go",
		Old: "Build: hex.EncodeToString(f.PipelineCacheUUID[:]),", New: "Build: hex.EncodeToString(nil),",
		Breaks: "a tuning measured with one build of a driver holds for all",
		Kill:   []Killer{in("./flash", "TestFindingsBelongToADriver")},
	},
	{
		ID: "tuning-causal", File: "internal/tuned/key.go",
		Old: "Causal: p.Masked(),", New: "Causal: true,",
		Breaks: "a tuning measured with a causal mask holds without one",
		Kill:   []Killer{tuningTest},
	},
	{
		ID: "slab-tables", File: "internal/kernel/slabs/backward.go",
		Old: "return a.Keys == b.Keys && a.Rows == b.Rows", New: "return a.Rows == b.Rows",
		Breaks: "blocks of packed keys are those of queries",
		Kill:   []Killer{in("./internal/kernel/slabs", "TestPackedPasses")},
	},
	{
		ID: "slab-heads", File: "internal/kernel/standard/slabs.go",
		Old:    "out = append(out, Slab{Head0: h, Heads: min(each, heads-h), Rows: rows})",
		New:    "out = append(out, Slab{Head0: h, Heads: each, Rows: rows})",
		Breaks: "the last buffer of scores holds heads that there are not",
		Kill:   []Killer{in("./internal/kernel/standard", "TestSlabsCoverEveryRowOnce")},
	},
}
