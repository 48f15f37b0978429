package flash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
)

// BenchmarkJVP measures, on the device, a pass in forward mode in multiples of the forward pass beside it, each the median of runs in turn;
// five products to two are 2.5. With VKATTN_JVP_SWEEP=1 it tries tiles of the kernel on matrices.
func BenchmarkJVP(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	batch, heads, length, runs := 2, 16, 4096, 21
	if slowCompiler(d) {
		batch, heads, length, runs = 1, 2, 64, 3
	}
	for _, dim := range []int{64, 128, 256} {
		for _, causal := range []Causal{CausalNone, CausalBottomRight} {
			p := Problem{Batch: batch, Heads: heads, QueryLen: length, HeadDim: dim, DType: F16, Causal: causal}
			random := rand.New(rand.NewPCG(1, 2)) // kernels on zeros run at higher clocks
			tensor := func(dtype DType, shape [4]int) *Tensor {
				x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
				require.NoError(b, err)
				values := make([]float32, x.Elements())
				for i := range values {
					values[i] = float32(random.NormFloat64())
				}
				require.NoError(b, x.Upload(b.Context(), values))
				return x
			}
			all := []*Tensor{tensor(F16, p.QShape()), tensor(F16, p.KShape()), tensor(F16, p.VShape()), tensor(F16, p.OShape()),
				tensor(F32, p.LSEShape()), tensor(F16, p.QShape()), tensor(F16, p.KShape()), tensor(F16, p.VShape()),
				tensor(F16, p.OShape()), tensor(F32, p.LSEShape())}
			f := Forward{Q: all[0], K: all[1], V: all[2], O: all[3], LSE: all[4]}
			j := JVP{Forward: f, QTangent: all[5], KTangent: all[6], VTangent: all[7], OTangent: all[8], LSETangent: all[9]}
			for _, tuning := range jvpTunings(dim) {
				b.Run(fmt.Sprintf("d%d/%v/%v", dim, causal, kernel.Constants(tuning)), func(b *testing.B) {
					plan, err := d.Plan(p)
					require.NoError(b, err)
					defer plan.Close()
					if tuning != nil {
						program, err := matrix.JVP.Plan(d.env, &plan.attn, kernel.NewTuning(tuning))
						if err != nil {
							b.Skip(err)
						}
						plan.jvp.is, plan.jvp.made = &jvpChoice{kernel: matrix.JVP, program: program}, true
					}
					forward, err := plan.NewRecording(WithTimestamps())
					require.NoError(b, err)
					defer forward.Close()
					require.NoError(b, forward.Forward(f))
					mode, err := plan.NewRecording(WithTimestamps(), ForJVP())
					require.NoError(b, err)
					defer mode.Close()
					require.NoError(b, mode.JVP(j))
					for range b.N {
						var ms [2][]float64
						for range runs {
							for i, rec := range []*Recording{forward, mode} {
								pending, err := rec.Submit()
								require.NoError(b, err)
								require.NoError(b, pending.Wait(b.Context()))
								t, _ := rec.GPUTime()
								ms[i] = append(ms[i], t.Seconds()*1e3)
							}
						}
						for i := range ms {
							slices.Sort(ms[i])
						}
						a := plan.attn
						b.ReportMetric(ms[0][runs/2], "forward-ms")
						b.ReportMetric(ms[1][runs/2], "jvp-ms")
						b.ReportMetric(ms[1][runs/2]/ms[0][runs/2], "times")
						b.ReportMetric(kernel.JVPWork*a.ForwardFLOPs()/ms[1][runs/2]/1e9, "TFLOP/s")
					}
				})
			}
			for _, x := range all {
				require.NoError(b, x.Close())
			}
		}
	}
}

// jvpTunings are what is measured for a head dimension: the library's own choice, or a sweep of tiles.
func jvpTunings(dim int) []map[string]int {
	if os.Getenv("VKATTN_JVP_SWEEP") == "" {
		return []map[string]int{nil}
	}
	var out []map[string]int
	if dim > 128 { // slices of Q' in shared memory, where registers are short
		for _, w := range []int{4, 8} {
			for _, slices := range [][2]int{{16, 16}, {16, 14}, {14, 14}, {16, 12}, {12, 12}} {
				for prefetch := range 2 {
					out = append(out, map[string]int{"q_w": w, "q_rm": 1, "q_bc": 16, "q_ck": 16, "q_prefetch": prefetch,
						"q_a_reg": slices[0], "q_b_reg": slices[1]})
				}
			}
		}
		return out
	}
	for _, w := range []int{4, 8} {
		for _, rm := range []int{1, 2} {
			for _, bc := range []int{16, 32, 64, 128} {
				for _, ck := range []int{16, 32} {
					for _, prefetch := range []int{0, 1, 2} {
						if ck > bc || bc*dim > 8192 || bc*dim < 2048 || rm*dim > 128 || w == 4 && rm == 1 && dim < 256 {
							continue
						}
						out = append(out, map[string]int{"q_w": w, "q_rm": rm, "q_bc": bc, "q_ck": ck, "q_prefetch": prefetch})
					}
				}
			}
		}
	}
	return out
}
