package rows

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/kernel"
)

// reducedAngle is position times frequency less whole turns, from −π to π, to more digits than float64 has: of both numbers as they are.
func reducedAngle(position int32, frequency float64) float64 {
	const prec = 300
	number := func(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }
	// Machin, 1706: π/4 = 4 arctan 1/5 − arctan 1/239.
	arctan := func(inverse float64) *big.Float {
		power := new(big.Float).Quo(number(1), number(inverse))
		sum, square := number(0).Set(power), number(inverse*inverse)
		for k := 3.0; power.MantExp(nil) > -prec; k += 2 {
			power.Neg(power.Quo(power, square))
			sum.Add(sum, number(0).Quo(power, number(k)))
		}
		return sum
	}
	quarter := arctan(5)
	quarter.Mul(quarter, number(4)).Sub(quarter, arctan(239))
	turn := number(8)
	turn.Mul(turn, quarter)
	turns := number(float64(position))
	turns.Mul(turns, number(frequency)).Quo(turns, turn)
	whole, _ := turns.Int(nil)
	turns.Sub(turns, number(0).SetInt(whole))
	angle, _ := turns.Mul(turns, turn).Float64()
	return angle
}

// TestRotaryPhases: what the kernel reckons with integers is that angle, to 2⁻³⁰ radians at positions up to 2³⁰ from 0 and to 2⁻²⁹ beyond.
func TestRotaryPhases(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 5000 {
		f := math.Ldexp(r.Float64()-0.5, 21-r.IntN(60))
		position := int32(r.Uint32()) >> r.IntN(31)
		if n%3 == 0 {
			position = []int32{1 << 30, -1 << 30, math.MaxInt32, math.MinInt32}[n/3%4]
		}
		words := kernel.FrequencyWords([]float64{f})
		upper, lower := binary.NativeEndian.Uint32(words), binary.NativeEndian.Uint32(words[4:])
		p := uint64(uint32(max(position, -position))) // of the lowest, as GLSL has it
		phase := uint32(p*uint64(upper)) + uint32(p*uint64(lower)>>32) + uint32(p*uint64(lower)>>31&1)
		if position < 0 {
			phase = -phase
		}
		off := math.Abs(math.Remainder(float64(phase)*math.Pi/(1<<31)-reducedAngle(position, f), 2*math.Pi))
		most := 1.0 / (1 << 29)
		if p <= 1<<30 {
			most /= 2
		}
		require.LessOrEqual(t, off, most, "%d times %v", position, f)
	}
}

// TestRotaryFarAway: cosines and sines are those of position times frequency, however far away the position and however high the frequency.
func TestRotaryFarAway(t *testing.T) {
	d := testDevice(t)
	positions := []int32{1, 1000, 1e6, 1 << 30, math.MaxInt32, -1, -1e6, math.MinInt32}
	frequencies := []float64{1e6, 1000.1, 1 << 20, -777.77, 1, -1, 0.1, 1e-3, 1.0 / 3, 1e-9, 2 * math.Pi, math.Pi / 4, 5e-324, 0,
		123456.789, 3}
	const dim = 2 * 64
	for len(frequencies) < dim/2 {
		frequencies = append(frequencies, frequencies[len(frequencies)-16]*1.37)
	}
	for i, f := range frequencies {
		frequencies[i] = min(max(f, -1<<20), 1<<20)
	}
	for _, interleaved := range []bool{false, true} {
		for _, columns := range []int{dim, 2 * 13} { // many columns at once, and pair by pair
			for _, inverse := range []bool{false, true} {
				t.Run(fmt.Sprint(columns, interleaved, inverse), func(t *testing.T) {
					turn := Rotary{Columns: columns, Interleaved: interleaved, Frequencies: frequencies[:columns/2], Positions: true}
					p := RotateProblem{Batch: 1, Heads: 1, Rows: len(positions), HeadDim: columns, DType: flash.F32, Rotary: turn,
						Inverse: inverse}
					plan, err := PlanRotate(d, p)
					require.NoError(t, err)
					defer plan.Close()
					x, err := d.NewTensor(flash.F32, 1, 1, len(positions), columns)
					require.NoError(t, err)
					defer x.Close()
					at, err := d.NewTensor(flash.Int32, 1, 1, 1, len(positions))
					require.NoError(t, err)
					defer at.Close()
					var raw []byte
					for _, p := range positions {
						raw = binary.NativeEndian.AppendUint32(raw, uint32(p))
					}
					require.NoError(t, at.UploadBytes(bg, raw))
					pair := func(j int) (a, b int) {
						if interleaved {
							return 2 * j, 2*j + 1
						}
						return j, j + columns/2
					}
					values := make([]float32, len(positions)*columns)
					for i := range positions {
						for j := range columns / 2 {
							a, _ := pair(j)
							values[i*columns+a] = 1
						}
					}
					require.NoError(t, x.Upload(bg, values))
					require.NoError(t, plan.Rotate(bg, Rotation{X: x, Positions: at}))
					require.NoError(t, x.Download(bg, values))
					for i, p := range positions {
						for j, f := range turn.Frequencies {
							angle := reducedAngle(p, f)
							if inverse {
								angle = -angle
							}
							a, b := pair(j)
							const most = 1.0 / (1 << 23)
							require.InDelta(t, math.Cos(angle), values[i*columns+a], most, "cos of %d times %v", p, f)
							require.InDelta(t, math.Sin(angle), values[i*columns+b], most, "sin of %d times %v", p, f)
						}
					}
				})
			}
		}
	}
}
