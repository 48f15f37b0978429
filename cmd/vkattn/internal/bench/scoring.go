package bench

import (
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash/score"
)

// scoring is what a case makes of the scores of its pairs, on the host.
type scoring struct {
	c     result.Case
	score score.Evaluator
	unit  bool // the function's slope is 1 everywhere
	bias  result.Stream
	shape [4]int // of the bias
}

func newScoring(c result.Case, in *inputs) (s scoring, err error) {
	f := c.ScoreOf(0, c.H)
	s = scoring{c: c, unit: f.UnitSlope(), bias: in.bias, shape: c.BiasShape()}
	s.score, err = f.Bind(nil)
	return s, err
}

// point is a pair, of a head that is counted over the batch.
func (s *scoring) point(bh, i, j int) score.Point {
	return score.Point{Batch: bh / s.c.H, Head: bh % s.c.H, Query: i, Key: j, Position: i + s.c.N - s.c.Nq}
}

// of is what becomes of a score, and its slope: in float64, and as attention in the inputs' own dtype has them, which rounds
// what depends on the score as it rounds the score.
func (s *scoring) of(bh, i, j int, x float64, rounded func(float64) float64) (value, slope, plain, plainSlope float64) {
	value, slope, plain, plainSlope = x, 1, rounded(x), 1
	if s.c.Score != "" {
		at := s.point(bh, i, j)
		at.S = plain
		plain, plainSlope = s.score.Slope(at)
		at.S = x
		value, slope = s.score.Slope(at)
		if !s.unit {
			plain = rounded(plain)
		}
	}
	if s.c.Bias != "" {
		by := float64(s.bias.At(biasAt(s.shape, bh/s.c.H, bh%s.c.H, i, j)))
		value, plain = value+by, plain+by
	}
	return value, slope, plain, plainSlope
}
