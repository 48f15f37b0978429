package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// BenchmarkPlan measures what planning costs once its kernels exist: a problem that was planned before, and one that differs from it in
// what no kernel is compiled for. Plans are closed at once, as by a program that makes one for each call.
func BenchmarkPlan(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	base := Problem{Batch: 1, Heads: 8, KeyHeads: 2, QueryLen: 1024, HeadDim: 64}
	masked := base
	masked.Causal = CausalBottomRight
	decoding := base
	decoding.QueryLen, decoding.KeyLen = 1, 2048
	half := masked
	half.DType, half.HeadDim = F16, 16 // which a CPU's driver compiles in seconds
	scored := masked
	scored.ScoreFunction = score.Softcap(30)
	for _, bench := range []struct {
		name     string
		problem  Problem
		step     func(p *Problem, i int) // makes it another
		backward bool
		options  []PlanOption
	}{
		{"again", base, nil, false, nil},
		{"length", base, func(p *Problem, i int) { p.QueryLen, p.KeyLen = 1024+64*(i%4096), 1024+64*(i%4096) }, false, nil},
		{"causal", masked, nil, false, nil},
		{"decoding", decoding, nil, false, nil},
		{"decoding/length", decoding, func(p *Problem, i int) { p.KeyLen = 2048 + i%1024 }, false, nil},
		{"scores", scored, nil, false, nil},
		{"backward", masked, nil, true, nil},
		{"backward/length", masked, func(p *Problem, i int) { p.QueryLen, p.KeyLen = 1024+64*(i%4096), 1024+64*(i%4096) }, true, nil},
		{"matrix", half, nil, true, []PlanOption{WithTier(TierMatrix)}},
		{"matrix/length", half, func(p *Problem, i int) { p.QueryLen, p.KeyLen = 1024+128*(i%4096), 1024+128*(i%4096) }, true,
			[]PlanOption{WithTier(TierMatrix)}},
	} {
		if len(bench.options) > 0 && d.env.Caps.LacksMatrix(attn.F16) != "" {
			continue
		}
		b.Run(bench.name, func(b *testing.B) {
			plan := func(i int) {
				p := bench.problem
				if bench.step != nil {
					bench.step(&p, i)
				}
				plan, err := d.Plan(p, bench.options...)
				require.NoError(b, err)
				if bench.backward {
					_, err := plan.BackwardInfo()
					require.NoError(b, err)
				}
				require.NoError(b, plan.Close())
			}
			plan(0)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				plan(i + 1)
			}
		})
	}
}
