package main

// The float64 reference, the bounds that outputs are held to, and the conformance suite: who watches the watchmen.

var (
	goldenTests = in("./internal/ref", "TestGoldenVectors")
	boundTests  = in("./internal/ref", "TestCheckOutput", "TestCheckOutputFP32", "TestCheckTight", "TestCheckLSE", "TestCheckGradient.*")
	gradTests   = in("./internal/ref", "TestGradientsAgainstDifferences")
)

var referenceMutants = []Mutant{
	{
		ID: "reference-mask", File: "internal/ref/options.go",
		Old: "case p.Causal == BottomRight && j > diagonal,", New: "case p.Causal == BottomRight && j > diagonal+1,",
		Breaks: "the reference shows one key too many",
		Kill:   []Killer{goldenTests},
	},
	{
		ID: "reference-gqa", File: "internal/ref/forward.go",
		Old: "p.V.Row(r.B, r.H/p.group(), j), o)", New: "p.V.Row(r.B, r.H%p.V.H, j), o)",
		Breaks: "the reference lets query heads take turns with value heads",
		Kill:   []Killer{goldenTests},
	},
	{
		ID: "reference-scale", File: "internal/ref/options.go",
		Old: "return 1 / math.Sqrt(float64(p.Q.D))", New: "return 1 / math.Sqrt(float64(p.Q.D+1))",
		Breaks: "the reference's default scale is not 1/√D",
		Kill:   []Killer{in("./internal/ref", "TestDefaultScale")},
	},
	{
		ID: "reference-lse", File: "internal/ref/forward.go",
		Old: "return m + math.Log(sum)", New: "return math.Log(sum)",
		Breaks: "the reference's lse lacks the maximum",
		Kill:   []Killer{goldenTests},
	},
	{
		ID: "reference-delta", File: "internal/ref/backward.go",
		Old: "delta := -dlse", New: "delta := dlse",
		Breaks: "the reference's gradient of lse has the wrong sign",
		Kill:   []Killer{gradTests},
	},
	{
		ID: "reference-ds-scale", File: "internal/ref/backward.go",
		Old: "ds *= slope[j] * scale", New: "ds *= slope[j] * (scale / scale)",
		Breaks: "the reference's dQ and dK lack the scale",
		Kill:   []Killer{gradTests},
	},
	{
		ID: "reference-dropout", File: "internal/ref/dropout.go",
		Old: "at := j%2 + 2*(j/8%2) + 4*(j/16%4)", New: "at := j%2 + 2*(j/4%2) + 4*(j/16%4)",
		Breaks: "the reference drops other weights",
		Kill:   []Killer{in("./internal/ref", "TestDropoutRows")},
	},
	{
		ID: "reference-bf16", File: "internal/ref/bfloat16.go",
		Old: "return uint16((bits + 0x7fff + bits>>16&1) >> 16)", New: "return uint16((bits + 0x8000) >> 16)",
		Breaks: "the reference rounds bf16 away from zero where it lies half-way",
		Kill:   []Killer{in("./internal/ref", "TestRounding", "TestSixteenBitRoundTrip")},
	},
	{
		ID: "bound-forward", File: "internal/ref/bounds.go",
		Old: "forwardFactor  = 2", New: "forwardFactor  = 200",
		Breaks: "outputs may be 200 times as wrong as plain attention",
		Kill:   []Killer{boundTests},
	},
	{
		ID: "bound-gradient", File: "internal/ref/bounds.go",
		Old: "gradientFactor = 3", New: "gradientFactor = 300",
		Breaks: "gradients may be 300 times as wrong as plain attention's",
		Kill:   []Killer{boundTests},
	},
	{
		ID: "bound-lse", File: "internal/ref/bounds.go",
		Old: "b = 1e-5 + 1e-6*math.Abs(ref[i])", New: "b = 1e-3 + 1e-6*math.Abs(ref[i])",
		Breaks: "lse in fp32 may be a hundred times as wrong",
		Kill:   []Killer{boundTests},
	},
	{
		ID: "bound-norm", File: "internal/ref/bounds.go",
		Old:    "v.Bound = max(1e-5, factor*relative(plain, ref)) + epsilon",
		New:    "v.Bound = max(1e-3, factor*relative(plain, ref)) + epsilon",
		Breaks: "fp32 may be a hundred times as wrong",
		Kill:   []Killer{boundTests},
	},
	{
		ID: "bound-nan", File: "internal/ref/bounds.go",
		Old: "r := e / b\n\t\tif math.IsNaN(r) {\n\t\t\tr = math.Inf(1)", New: "r := e / b\n\t\tif math.IsNaN(r) {\n\t\t\tr = 0",
		Breaks: "a NaN is within every bound",
		Kill:   []Killer{boundTests},
	},
	{
		ID: "arena-stray-writes", File: "cmd/vkattn/internal/conformance/arena.go",
		Old: "if !bytes.Equal(raw[:len(want)], want) {", New: "if len(raw) < len(want) {",
		Breaks: "the suite does not notice what kernels write outside their tensors",
		Kill:   []Killer{in("./cmd/vkattn/internal/conformance", "TestArenaNoticesStrayWrites")},
	},
	{
		ID: "arena-unwritten", File: "cmd/vkattn/internal/conformance/arena.go",
		Old: "if bytes.Equal(row[i:i+size], want[:size]) {", New: "if bytes.Equal(row[i:i+size], nil) {",
		Breaks: "the suite does not notice elements that kernels leave out",
		Kill:   []Killer{in("./cmd/vkattn/internal/conformance", "TestArenaNoticesStrayWrites")},
	},
	{
		ID: "suite-empty-rows", File: "cmd/vkattn/internal/conformance/case.go",
		Old: "if x != 0 {\n\t\t\t\tr.fail(", New: "if x != x {\n\t\t\t\tr.fail(",
		Breaks: "the suite lets rows with nothing to attend to be anything",
		Kill:   []Killer{in("./cmd/vkattn/internal/conformance", "TestCheckNoticesErrors")},
	},
	{
		ID: "suite-lse", File: "cmd/vkattn/internal/conformance/case.go",
		Old: "r.LSEErr, r.LSEBound = v.Err, v.Bound\n\tif !v.OK {", New: "r.LSEErr, r.LSEBound = v.Err, v.Bound\n\tif false {",
		Breaks: "the suite does not look at lse",
		Kill:   []Killer{in("./cmd/vkattn/internal/conformance", "TestCheckNoticesErrors")},
	},
	{
		ID: "suite-gradients", File: "cmd/vkattn/internal/conformance/backward.go",
		Old: "\tif !v.OK {\n\t\tr.fail(\"%s: %v\", name, v)", New: "\tif false {\n\t\tr.fail(\"%s: %v\", name, v)",
		Breaks: "the suite does not look at gradients",
		Kill:   []Killer{in("./cmd/vkattn/internal/conformance", "TestJudgeNoticesWrongGradients")},
	},
}
