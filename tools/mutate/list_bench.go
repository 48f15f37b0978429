package main

// Figures: what the benchmark measures and checks, and what reports make of it.

var summaries = in("./cmd/vkattn/internal/report", "TestSummaries")

var benchMutants = []Mutant{
	{
		ID: "bench-percentile", File: "cmd/vkattn/internal/bench/result/stats.go",
		Old: "pos := q * float64(len(sorted)-1)", New: "pos := q * float64(len(sorted))",
		Breaks: "percentiles and medians are those of higher ranks",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench/result", "TestQuantiles")},
	},
	{
		ID: "bench-mean", File: "cmd/vkattn/internal/bench/result/stats.go",
		Old: "return math.Exp(sum / float64(len(values)))", New: "return math.Exp(sum)",
		Breaks: "the geometric mean is a product",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench/result", "TestGeoMean")},
	},
	{
		ID: "bench-tflops", File: "cmd/vkattn/internal/bench/forward.go",
		Old: "f.TFLOPS = flops / f.Ms / 1e9", New: "f.TFLOPS = 2 * flops / f.Ms / 1e9",
		Breaks: "TFLOP/s are twice what they are",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench", "TestFiguresFollowFromTheTime")},
	},
	{
		ID: "bench-check", File: "cmd/vkattn/internal/bench/check.go",
		Old: "v := ref.CheckOutput(out.o, want.o, plain.o, dtype)\n", New: "v := ref.CheckOutput(want.o, want.o, plain.o, dtype)\n",
		Breaks: "the benchmark compares the reference with itself",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench", "TestJudge")},
	},
	{
		ID: "bench-wrong-output", File: "cmd/vkattn/internal/bench/result/parts.go",
		Old: "return r == ReasonFailed || r == ReasonCheck", New: "return r == ReasonFailed",
		Breaks: "a row whose output is wrong counts as skipped",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench/result", "TestFaultsAreNoSkips")},
	},
	{
		ID: "peer-other-case", File: "cmd/vkattn/internal/bench/peer.go",
		Old: "if answer.Shape() != c.Shape() || answer.Impl != c.Impl {", New: "if answer.Impl != c.Impl {",
		Breaks: "a peer's answer to another question is taken for one to this",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench", "TestPeerMisbehaves")},
	},
	{
		ID: "report-ratio", File: "cmd/vkattn/internal/report/compare.go",
		Old: "out.Standard = x.standard[row.Shape()] / row.Fwd.Ms", New: "out.Standard = row.Fwd.Ms / max(x.standard[row.Shape()], 1e-9)",
		Breaks: "the speed against standard attention is upside down",
		Kill:   []Killer{summaries},
	},
	{
		ID: "report-peer-ratio", File: "cmd/vkattn/internal/report/compare.go",
		Old: "out.Peers = append(out.Peers, ms/row.Fwd.Ms)", New: "out.Peers = append(out.Peers, ms)",
		Breaks: "the speed against a peer is the peer's time",
		Kill:   []Killer{summaries},
	},
	{
		ID: "report-repeated-rows", File: "cmd/vkattn/internal/report/compare.go",
		Old: "out[k] = result.Median(v)", New: "out[k] = v[0]",
		Breaks: "of a peer's repeated rows the first counts alone",
		Kill:   []Killer{in("./cmd/vkattn/internal/report", "TestRepeatedPeerRowsCountWithTheirMedian")},
	},
	{
		ID: "report-slower", File: "cmd/vkattn/internal/report/change.go",
		Old: "r.Significant && r.Ratio > factor {", New: "r.Significant && r.Ratio < factor {",
		Breaks: "what became faster is reported as slower",
		Kill:   []Killer{in("./cmd/vkattn/internal/report", "TestDiff")},
	},
	{
		ID: "report-significance", File: "cmd/vkattn/internal/report/change.go",
		Old: "c.Significant = a.p80 < b.p20 || b.p80 < a.p20", New: "c.Significant = a.p80 < b.p20",
		Breaks: "what became faster is no change where percentiles decide",
		Kill:   []Killer{in("./cmd/vkattn/internal/report", "TestDiff")},
	},
	{
		ID: "bench-hosts-as-ring", File: "cmd/vkattn/internal/bench/ranks/over.go",
		Old: "return ring.Shard{Over: ring.Both, PerHost: o.PerHost}", New: "return ring.Shard{Over: ring.Keys}",
		Breaks: "heads within hosts are timed as a ring of all ranks",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench/ranks", "TestOverHosts")},
	},
	{
		ID: "bench-one-of-another-pass", File: "cmd/vkattn/internal/bench/ranks/alone.go",
		Old: "x.bwd > 0}", New: "false}",
		Breaks: "rows of forward passes alone have the memory of both passes on one device",
		Kill:   []Killer{in("./cmd/vkattn/internal/bench/ranks", "TestOverHosts")},
	},
}
