package ref

import (
	"fmt"
	"math"
)

// Dropout drops weights by a counter-based generator, so that forward and backward agree and the
// mask depends on nothing but seed, offset and position.
type Dropout struct {
	P      float64 // probability of dropping a weight, taken to the nearest 1/256
	Seed   uint64
	Offset uint32
	Head   int // number of the problem's first head, where it was cut out of a larger one
	Query  int // likewise of its first query
	Key    int // and key
}

// dropoutRounds: seven rounds of Philox pass BigCrush.
const dropoutRounds = 7

func (d *Dropout) check() error {
	if !(d.P >= 0 && d.P <= 1) || d.threshold() > 255 {
		return fmt.Errorf("ref: dropout probability is %v: want 0 ≤ p and round(256·p) ≤ 255", d.P)
	}
	return nil
}

// threshold is k = round(256·p): a weight is kept iff its draw, a byte, is at least k.
func (d *Dropout) threshold() int { return int(math.Round(256 * d.P)) }

// Probability is the effective one, k/256.
func (d *Dropout) Probability() float64 { return float64(d.threshold()) / 256 }

// keepScale is what kept weights are multiplied by, 256/(256 − k).
func (d *Dropout) keepScale() float64 { return 256 / float64(256-d.threshold()) }

// Keep reports whether the weight of query i and key j of the (b·Hq + h)-th head is kept.
// Sixteen columns of a row share one call of the generator, the grouping that lets a lane of a
// 16-wide matrix fragment use all it draws.
func (d *Dropout) Keep(head, i, j int) bool {
	i, j = i+d.Query, j+d.Key
	words := philox4x32(
		[4]uint32{uint32(4*(j/64) + j/2%4), uint32(i), uint32(head), d.Offset},
		[2]uint32{uint32(d.Seed), uint32(d.Seed >> 32)}, dropoutRounds)
	at := j%2 + 2*(j/8%2) + 4*(j/16%4)
	draw := words[at/4] >> (8 * (at % 4)) & 0xff
	return int(draw) >= d.threshold()
}

// Mask writes out the whole mask, [B, Hq, Nq, Nk], true where the weight is kept.
func (d *Dropout) Mask(b, h, nq, nk int) []bool {
	out := make([]bool, 0, b*h*nq*nk)
	for head := range b * h {
		for i := range nq {
			for j := range nk {
				out = append(out, d.Keep(head, i, j))
			}
		}
	}
	return out
}

// keepScale is what kept weights are multiplied by, 1 without dropout.
func (p *Problem) keepScale() float64 {
	if p.Dropout == nil {
		return 1
	}
	return p.Dropout.keepScale()
}

// weight is what dropout multiplies p_ij by: 0 or keepScale.
func (p *Problem) weight(b, h, i, j int) float64 {
	if p.Dropout == nil {
		return 1
	}
	if !p.Dropout.Keep(p.Dropout.Head+(p.sequenceIndex+b)*p.Q.H+h, i, j) {
		return 0
	}
	return p.Dropout.keepScale()
}
