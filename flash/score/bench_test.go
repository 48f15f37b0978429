package score_test

import (
	"testing"

	"github.com/vkattn/vkattn/flash/score"
)

// The oracle computes a value and a slope for every pair.
func BenchmarkSlope(b *testing.B) {
	for name, f := range map[string]score.Function{"alibi": score.ALiBi([]float32{1, 2}), "softcap": score.Softcap(30),
		"t5": score.RelativeBias(score.Table(make([]float32, 64), 32, 2), score.T5Bucket(true, 32, 128))} {
		b.Run(name, func(b *testing.B) {
			e, err := f.Bind(nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				e.Slope(score.Point{S: 1, Key: i & 1023, Position: 300})
			}
		})
	}
}
