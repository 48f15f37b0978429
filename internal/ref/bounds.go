package ref

import (
	"fmt"
	"math"
)

// Verdict compares one output with the oracle: the error and the bound of the element that comes
// nearest to (or goes farthest beyond) its bound.
type Verdict struct {
	Err, Bound float64
	At         int // that element
	OK         bool
}

// String is for messages.
func (v Verdict) String() string {
	return fmt.Sprintf("error %.3g, bound %.3g, at element %d", v.Err, v.Bound, v.At)
}

// How many times plain's own error an output may be wrong by.
const (
	forwardFactor  = 2
	gradientFactor = 3
)

// CheckOutput judges a forward output: max|out − ref| ≤ 2·max|plain − ref| + 1e-5 and an ulp of the
// output's dtype. For fp32 the relative Frobenius error must be ≤ 1e-5 or 2 × plain's, whichever is
// larger, and besides no single element may be wrong by 1e-3 of the largest (nor 4 × plain's worst),
// which a norm over many elements would hide.
func CheckOutput(out, ref, plain []float64, t DType) Verdict {
	return check(out, ref, plain, t, forwardFactor)
}

// CheckGradient is CheckOutput with factor 3 instead of 2.
func CheckGradient(out, ref, plain []float64, t DType) Verdict {
	return check(out, ref, plain, t, gradientFactor)
}

// CheckTight is CheckOutput with its 1e-5, meant for outputs of order 1, scaled by the largest
// element of ref: for problems whose outputs are all tiny.
func CheckTight(out, ref, plain []float64, t DType) Verdict {
	if t == F32 {
		return checkNorm(out, ref, plain, forwardFactor)
	}
	return checkElements(out, ref, t, forwardFactor*MaxDistance(plain, ref)+1e-5*maxAbs(ref))
}

// CheckWithin judges an output by a bound that does not depend on plain: no element may be wrong by more, and an ulp of the dtype.
func CheckWithin(out, ref []float64, t DType, bound float64) Verdict {
	if len(out) != len(ref) {
		return Verdict{Err: math.NaN(), At: -1}
	}
	return checkElements(out, ref, t, bound)
}

func check(out, ref, plain []float64, t DType, factor float64) Verdict {
	if len(out) != len(ref) || len(plain) != len(ref) {
		return Verdict{Err: math.NaN(), At: -1}
	}
	if t == F32 {
		return checkNorm(out, ref, plain, factor)
	}
	return checkElements(out, ref, t, factor*MaxDistance(plain, ref)+1e-5)
}

// checkElements wants |out − ref| ≤ bound + one ulp, element by element.
func checkElements(out, ref []float64, t DType, bound float64) Verdict {
	worst := Verdict{Bound: bound, OK: true}
	ratio := -1.0
	for i := range ref {
		e, b := distance(out[i], ref[i]), bound+t.Ulp(ref[i])
		r := e / b
		if math.IsNaN(r) {
			r = math.Inf(1)
		}
		if r > ratio {
			ratio, worst.Err, worst.Bound, worst.At = r, e, b, i
		}
	}
	worst.OK = ratio <= 1
	return worst
}

// checkNorm is the rule for fp32.
func checkNorm(out, ref, plain []float64, factor float64) Verdict {
	const epsilon = 1.0 / (1 << 23) // one ulp of 1
	single := max(1e-3*maxAbs(ref), 2*factor*MaxDistance(plain, ref))
	if v := checkElements(out, ref, F32, single); !v.OK {
		return v
	}
	v := Verdict{Err: relative(out, ref), At: -1}
	v.Bound = max(1e-5, factor*relative(plain, ref)) + epsilon
	v.OK = v.Err <= v.Bound
	return v
}

// CheckLSE judges lse: |error| ≤ 1e-3 + 3e-6·|lse| (fp16, bf16) or 1e-5 + 1e-6·|lse| (fp32), and one
// fp32 ulp. Where the implementation rounds its scores to the dtype before the softmax, as standard
// attention does, plain is given and adds 2·max|plain − ref|; else it is nil.
func CheckLSE(out, ref, plain []float64, t DType) Verdict {
	if len(out) != len(ref) {
		return Verdict{Err: math.NaN(), At: -1}
	}
	extra := 0.0
	if plain != nil {
		extra = 2 * MaxDistance(plain, ref)
	}
	worst := Verdict{OK: true}
	ratio := -1.0
	for i := range ref {
		b := 1e-3 + 3e-6*math.Abs(ref[i])
		if t == F32 {
			b = 1e-5 + 1e-6*math.Abs(ref[i])
		}
		if math.IsInf(b, 0) {
			b = 0 // −∞ must be −∞
		} else {
			b += extra + F32.Ulp(ref[i])
		}
		e := distance(out[i], ref[i])
		r := e / b
		if e == 0 {
			r = 0
		} else if math.IsNaN(r) {
			r = math.Inf(1)
		}
		if r > ratio {
			ratio, worst.Err, worst.Bound, worst.At = r, e, b, i
		}
	}
	worst.OK = ratio <= 1
	return worst
}

// distance is |x − y|, 0 for equal infinities, NaN where either is NaN.
func distance(x, y float64) float64 {
	if x == y {
		return 0
	}
	return math.Abs(x - y)
}

// MaxDistance is max|x − y| over the elements where that is finite.
func MaxDistance(x, y []float64) float64 {
	m := 0.0
	for i := range x {
		// A NaN or infinity in plain (it overflowed) says nothing about what others may do.
		if d := distance(x[i], y[i]); d > m && !math.IsInf(d, 0) {
			m = d
		}
	}
	return m
}

func maxAbs(x []float64) float64 {
	m := 0.0
	for _, x := range x {
		if a := math.Abs(x); a > m && !math.IsInf(a, 0) {
			m = a
		}
	}
	return m
}

// relative is ‖x − ref‖ / ‖ref‖ in the Frobenius norm; ‖x − ref‖ where ref is zero.
func relative(x, ref []float64) float64 {
	var e, n float64
	for i := range ref {
		d := distance(x[i], ref[i])
		e += d * d
		n += ref[i] * ref[i]
	}
	if n == 0 {
		return math.Sqrt(e)
	}
	return math.Sqrt(e / n)
}
