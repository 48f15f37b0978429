package rows

import (
	"math"

	"github.com/vkattn/vkattn/flash"
)

// Rotary says how rows are turned by their positions (rotary position embedding). Of the first Columns columns, R, pair j is (2j, 2j+1) if
// Interleaved, else (j, j + R/2), and is turned by an angle θ_j:
//
//	y_a = cos θ_j · x_a − sin θ_j · x_b
//	y_b = sin θ_j · x_a + cos θ_j · x_b
//
// Columns from R on stay as they are. Angles are positions times Frequencies, in radians, modulo 2π. Whatever the frequency they are
// accurate to 2⁻³⁰ at positions up to 2³⁰ from 0, and to 2⁻²⁹ at all others; cosines and sines to 2⁻²³. Or cosines and sines are given:
// fp32 tensors Cos and Sin of shape [1, 1, Table, R/2], which have a row for each position (positions beyond are clamped), or with PerToken
// [Batch, 1, Rows, R/2], which have one for each row of the batch. Products are fp32.
//
// Source: Su et al., RoFormer (2021), equation 34.
type Rotary struct {
	Columns     int  // R, even; 0 means all columns
	Interleaved bool // pairs are neighbours
	// Frequencies are R/2 radians for each position, for example of NTKFrequencies or ByPartsFrequencies; nil means Scale · Base^(−2j/R),
	// as float64 has it: a power that it has rounded is off by 2⁻⁵⁴ of itself, and positions of millions make millions of that.
	Frequencies []float64
	Base        float64 // above 0; 0 means 10000
	Scale       float64 // of positions; 0 means 1
	Table       int     // rows of tables by position; 0: none
	PerToken    bool    // tables are by token
	Positions   bool    // are given for each row: Int32 [1, 1, Batch, Rows]
}

const leastBase, mostBase = 1e-3, 1e30

// check fills the defaults in for rows of that many columns.
func (r Rotary) check(columns int) (Rotary, error) {
	if r.Columns == 0 {
		r.Columns = columns
	}
	switch {
	case r.Columns < 2 || r.Columns%2 != 0 || r.Columns > columns:
		return r, badArgument("Rotary.Columns", r.Columns, "must be an even number from 2 to the head dimension, %d", columns)
	case r.Table < 0 || r.Table > math.MaxInt32/2:
		return r, badArgument("Rotary.Table", r.Table, "must be from 0 to %d", math.MaxInt32/2)
	case r.Table > 0 && r.PerToken:
		return r, badArgument("Rotary.Table", r.Table, "must be 0 where tables are PerToken")
	case r.PerToken && r.Positions:
		return r, badArgument("Rotary.Positions", r.Positions, "must be false where tables are PerToken: positions are not looked at")
	}
	given := r.Frequencies != nil || r.Base != 0 || r.Scale != 0
	if r.Table > 0 || r.PerToken {
		if given {
			return r, badArgument("Rotary.Frequencies", r.Frequencies, "must be nil, and Base and Scale 0, where tables are given")
		}
		return r, nil
	}
	if r.Frequencies != nil {
		if len(r.Frequencies) != r.Columns/2 {
			return r, badArgument("len(Rotary.Frequencies)", len(r.Frequencies), "must be %d, half of the columns that are turned",
				r.Columns/2)
		}
		for _, f := range r.Frequencies {
			if math.IsNaN(f) || math.Abs(f) > 1<<20 {
				return r, badArgument("Rotary.Frequencies", f, "each must be a number of at most 2²⁰ radians")
			}
		}
		if r.Base != 0 || r.Scale != 0 {
			return r, badArgument("Rotary.Base", r.Base, "must be 0, and Scale too, where Frequencies are given")
		}
		return r, nil
	}
	if r.Base == 0 {
		r.Base = 10000
	}
	if r.Scale == 0 {
		r.Scale = 1
	}
	if !(r.Base >= leastBase && r.Base <= mostBase) {
		return r, badArgument("Rotary.Base", r.Base, "must be from %g to %g (0 itself means 10000)", leastBase, mostBase)
	}
	if !(math.Abs(r.Scale) <= 1<<10) {
		return r, badArgument("Rotary.Scale", r.Scale, "must be a number of at most 1024 (0 itself means 1)")
	}
	r.Frequencies = frequencies(r.Columns, r.Base)
	for j := range r.Frequencies {
		r.Frequencies[j] *= r.Scale
	}
	return r, nil
}

// frequencies are base^(−2j/columns).
func frequencies(columns int, base float64) []float64 {
	out := make([]float64, columns/2)
	for j := range out {
		out[j] = math.Pow(base, -2*float64(j)/float64(columns))
	}
	return out
}

// NTKFrequencies are the [Rotary].Frequencies of a model that was trained with a base and is to see factor times as many positions: those
// of the base
//
//	base' = base · factor^(R/(R−2))
//
// which leaves the first pair as it is and divides the last one's frequency by factor ("NTK-aware" scaling). Columns is R, even; linear
// scaling, which divides all of them, is Rotary.Scale 1/factor. The error is a [*flash.ArgumentError].
//
// Source: Peng et al., YaRN: Efficient Context Window Extension of Large Language Models (2023), definition 1.
func NTKFrequencies(columns int, base, factor float64) (_ []float64, err error) {
	defer within.During("NTKFrequencies", &err)
	if err := checkScaling(columns, base, factor); err != nil {
		return nil, err
	}
	out := frequencies(columns, base)
	for j := range out { // base'^(−2j/R), which for R = 2 has no base'
		if j > 0 {
			out[j] *= math.Pow(factor, -2*float64(j)/float64(columns-2))
		}
	}
	return out, nil
}

// ByPartsFrequencies are the [Rotary].Frequencies of a model that was trained with a base on contexts of length tokens and is to see factor
// times as many positions, each pair by the number of turns r = length · θ/2π that it makes in such a context:
//
//	θ' = (1 − γ) · θ/factor + γ · θ        γ = (r − low)/(high − low), from 0 to 1
//
// so that what turns more often than high times keeps its frequency, and what turns less often than low times is divided by factor. Llama
// 3.1 and later have base 500000, factor 8 (3.2: 32), length 8192, low 1 and high 4 (rope_scaling "llama3": low_freq_factor and
// high_freq_factor); YaRN low 1 and high 32, and scales scores by (0.1·ln factor + 1)² besides, which is a matter of flash.Problem.Scale.
// The error is a [*flash.ArgumentError].
//
// Source: Peng et al., YaRN (2023), definition 2 (NTK-by-parts), with α = low and β = high.
func ByPartsFrequencies(columns int, base, factor float64, length int, low, high float64) (_ []float64, err error) {
	defer within.During("ByPartsFrequencies", &err)
	if err := checkScaling(columns, base, factor); err != nil {
		return nil, err
	}
	switch {
	case length < 1:
		return nil, badArgument("length", length, "must be at least 1")
	case !(low >= 0 && low < math.Inf(1)):
		return nil, badArgument("low", low, "must be a number of at least 0")
	case !(high > low && high < math.Inf(1)):
		return nil, badArgument("high", high, "must be a number above low = %v", low)
	}
	out := frequencies(columns, base)
	for j, f := range out {
		keep := min(max((float64(length)*f/(2*math.Pi)-low)/(high-low), 0), 1)
		out[j] = (1-keep)*f/factor + keep*f
	}
	return out, nil
}

func checkScaling(columns int, base, factor float64) error {
	switch {
	case columns < 2 || columns%2 != 0 || columns > 1<<16:
		return badArgument("columns", columns, "must be an even number from 2 to %d", 1<<16)
	case !(base >= leastBase && base <= mostBase):
		return badArgument("base", base, "must be from %g to %g", leastBase, mostBase)
	case !(factor >= 1e-3 && factor <= 1e6):
		return badArgument("factor", factor, "must be from 0.001 to 1e6")
	}
	return nil
}

// RotateProblem is a rotation of rows X [Batch, Heads, Rows, HeadDim]: of queries most often, or of gradients back (Inverse), since the
// gradient of a rotation is that by the negative angle.
type RotateProblem struct {
	Batch, Heads, Rows, HeadDim int
	DType                       flash.DType
	Rotary                      Rotary
	Inverse                     bool // by the negative angle
}
