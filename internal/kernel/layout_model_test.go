package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// subgroup is a model of one that holds fragments as a layout says and knows of it what the shader's tables say: lanes of matrix_forward
// on a device that nobody here has.
type subgroup struct {
	shape kernel.Fragment
	l     kernel.FragmentLayout
}

// place is where a lane believes component e of an accumulator to lie.
func (g *subgroup) place(lane, e int) (row, col int) {
	row, col = g.l.RowOfComp[e], g.l.ColOfComp[e]
	for b := range g.l.RowLane {
		if lane>>b&1 != 0 {
			row, col = row+g.l.RowLane[b], col+g.l.ColLane[b]
		}
	}
	return row, col
}

// rows reduces the components of each of a lane's rows, then over the lanes that share the row, by xor shuffles.
func (g *subgroup) rows(fragments [][][]float64, start float64, join func(a, b float64) float64) [][]float64 {
	out := make([][]float64, g.shape.Lanes)
	for lane := range out {
		out[lane] = make([]float64, len(g.l.RowOfSlot))
		for slot := range out[lane] {
			out[lane][slot] = start
		}
		for _, f := range fragments {
			for e, v := range f[lane] {
				out[lane][g.l.SlotOfComp[e]] = join(out[lane][g.l.SlotOfComp[e]], v)
			}
		}
	}
	for b, w := range g.l.ColLane {
		if w == 0 {
			continue
		}
		next := make([][]float64, len(out))
		for lane := range out {
			for slot, v := range out[lane] {
				next[lane] = append(next[lane], join(v, out[lane^1<<b][slot]))
			}
		}
		out = next
	}
	return out
}

// held are the components of an accumulator as the device has them.
func held(at kernel.HeldElements, value func(row, col int) float64) [][]float64 {
	out := make([][]float64, len(at))
	for lane, elements := range at {
		for _, x := range elements {
			out[lane] = append(out[lane], value(x.Row, x.Col))
		}
	}
	return out
}

// TestFormsOnModels: one tile of the online softmax, as forms 1 and 2 of matrix_forward compute it from their tables, on subgroups that
// hold fragments as devices do, or are said to: row maxima and sums are those of the rows, every number of O meets its row's factor, and P
// gets to where the second product reads it, in registers (form 1) or through shared memory (form 2).
func TestFormsOnModels(t *testing.T) {
	tried := map[int]int{}
	for _, test := range kerneltest.Layouts {
		g := subgroup{test.Shape, kernel.DecodeLayout(test.Shape, test.Acc, test.A)}
		if g.l.Form == kernel.FormShared { // nothing rests on the layout
			continue
		}
		tried[g.l.Form]++
		t.Run(test.Name, func(t *testing.T) {
			s, rng := test.Shape, rand.New(rand.NewPCG(1, 2))
			columns := max(s.N, s.K)
			scores := make([][]float64, s.M)
			for row := range scores {
				for range columns {
					scores[row] = append(scores[row], 4*rng.NormFloat64())
				}
			}
			var fragments [][][]float64 // accumulators side by side
			for f := range columns / s.N {
				fragments = append(fragments, held(test.Acc, func(row, col int) float64 { return scores[row][f*s.N+col] }))
			}
			top := g.rows(fragments, math.Inf(-1), math.Max)
			for f := range fragments {
				for lane := range fragments[f] {
					for e := range fragments[f][lane] {
						fragments[f][lane][e] = math.Exp(fragments[f][lane][e] - top[lane][g.l.SlotOfComp[e]])
					}
				}
			}
			sum := g.rows(fragments, 0, func(a, b float64) float64 { return a + b })

			want := make([][]float64, s.M) // P
			for row := range scores {
				m := math.Inf(-1)
				for _, v := range scores[row] {
					m = math.Max(m, v)
				}
				for _, v := range scores[row] {
					want[row] = append(want[row], math.Exp(v-m))
				}
			}
			total := func(row int) (l float64) {
				for _, p := range want[row] {
					l += p
				}
				return l
			}
			shared := make([][]float64, s.M) // P as form 2 writes it
			for row := range shared {
				shared[row] = make([]float64, columns)
			}
			o := held(test.Acc, func(row, col int) float64 { return float64(row + 1) })
			for lane := range s.Lanes {
				for e, x := range test.Acc[lane] {
					row, col := g.place(lane, e)
					require.Equal(t, x, kernel.Element{Row: row, Col: col})
					require.InDelta(t, total(x.Row), sum[lane][g.l.SlotOfComp[e]], 1e-12, "lane %d, row %d", lane, x.Row)
					require.InDelta(t, float64(x.Row+1)/total(x.Row), o[lane][e]/sum[lane][g.l.SlotOfComp[e]], 1e-12)
					for f := range fragments {
						shared[row][f*s.N+col] = fragments[f][lane][e]
					}
				}
			}
			for row := range shared {
				require.InDeltaSlice(t, want[row], shared[row], 1e-12)
			}
			if g.l.Form != kernel.FormRegisters {
				return
			}
			n := len(test.Acc[0])
			for lane := range s.Lanes {
				for i, x := range test.A[lane] { // of the first operand of K columns
					for at, to := range g.l.AOfComp {
						if to == i {
							require.InDelta(t, want[x.Row][x.Col], fragments[at/n][lane][at%n], 1e-12,
								"lane %d, component %d of the operand", lane, i)
						}
					}
				}
			}
		})
	}
	require.Positive(t, tried[kernel.FormRegisters])
	require.Positive(t, tried[kernel.FormRows])
}
