package soak

import (
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// inputs says how q, k and v of a case are filled.
type inputs struct {
	name  string
	fill  conformance.Fill
	do    float64 // standard deviation of the gradient of o
	tight bool    // outputs are all tiny: bounds shrink with them, and gradients are not compared
}

// drawInputs draws a kind of inputs that plain attention in the problem's type survives, since it is what others are compared with.
func drawInputs(r *rand.Rand, f *family, p flash.Problem) inputs {
	n := inputs{name: "normal", fill: conformance.Normal(1, 1, 1), do: 1}
	d := math.Sqrt(float64(p.HeadDim))
	scale := math.Abs(p.Scale)
	if scale == 0 {
		scale = 1 / d
	}
	// Scores of standard normal inputs have this standard deviation; with more than some hundreds fp32 cannot keep lse's bound.
	spread := scale * d
	kind := r.IntN(16)
	if f.rows != (rows{}) {
		kind = -1 // judged by plain attention alone, which others may not survive
	}
	switch kind {
	case 0:
		n.name, n.fill = "small", conformance.Normal(0.1, 0.1, 1)
	case 1:
		if f.dtype != flash.F32 || spread <= 2 {
			n.name, n.fill = "large", conformance.Normal(4, 4, 1)
		}
	case 2:
		if p.HeadDim <= 64 && spread <= 1.01 {
			n.name, n.fill = "huge logits", conformance.Normal(30, 30, 1)
		}
	case 3:
		n.name, n.fill = "equal logits", conformance.Normal(0, 1, 1)
	case 4, 5:
		if p.Scale == 0 {
			n.name, n.fill = "far from zero", conformance.FarFromZero(float32(2*r.IntN(2)-1))
		}
	case 6:
		n.name, n.fill = "edges", edges(f.dtype)
	case 7:
		n.name, n.fill = "growing", growing
	case 8:
		n.name, n.fill, n.tight = "tiny v", conformance.Normal(1, 1, tiny(f.dtype)), true
	case 9:
		switch {
		case f.dtype == flash.F16 && !f.drops: // weights that are kept would carry outputs beyond the largest number
			n.name, n.fill, n.do = "large v", conformance.Normal(1, 1, 1e4), 1e-4
		case f.dtype != flash.F16:
			n.name, n.fill, n.tight = "large v", conformance.Normal(1, 1, 1e6), true
		}
	case 10:
		n.name, n.fill = "sparse", sparse
	}
	return n
}

func tiny(t flash.DType) float64 {
	if t == flash.F16 {
		return 1e-6 // among its subnormal numbers
	}
	return 1e-10
}

// edges are numbers at which formats end, among ordinary ones: zeros of both signs, subnormal numbers, the smallest normal one.
func edges(t flash.DType) conformance.Fill {
	subnormal, normal := math.Ldexp(1, -149), math.Ldexp(1, -126)
	switch t {
	case flash.F16:
		subnormal, normal = math.Ldexp(1, -24), math.Ldexp(1, -14)
	case flash.BF16:
		subnormal = math.Ldexp(1, -133)
	}
	return func(r *rand.Rand, q, k, v ref.Tensor) {
		for _, x := range []ref.Tensor{q, k, v} {
			for i := range x.Data {
				var y float64
				switch r.IntN(8) {
				case 0:
					y = 0
				case 1:
					y = subnormal * float64(1+r.IntN(100))
				case 2:
					y = normal
				case 3:
					y = 1
				default:
					y = r.NormFloat64()
				}
				x.Data[i] = float32(math.Copysign(y, float64(r.IntN(2))-0.5))
			}
		}
	}
}

// growing makes keys longer and longer, so that the running maximum moves all the time, up for some rows and down for others.
func growing(r *rand.Rand, q, k, v ref.Tensor) {
	conformance.Normal(1, 1, 1)(r, q, k, v)
	for b := range k.B {
		for h := range k.H {
			for j := range k.N {
				by := float32(0.1 + 3*float64(j)/float64(k.N))
				row := k.Row(b, h, j)
				for d := range row {
					row[d] *= by
				}
			}
		}
	}
}

// sparse has rows of zeros in q, k and v.
func sparse(r *rand.Rand, q, k, v ref.Tensor) {
	conformance.Normal(1, 1, 1)(r, q, k, v)
	for _, x := range []ref.Tensor{q, k, v} {
		for at := 0; at < len(x.Data); at += x.D {
			if r.IntN(3) == 0 {
				clear(x.Data[at : at+x.D])
			}
		}
	}
}
