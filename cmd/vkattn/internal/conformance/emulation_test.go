package conformance

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// emulation is FlashAttention-2 as a shader computes it: fp32, keys in tiles, the row rescaled only
// when its maximum has grown past a threshold, P rounded to the dtype. With it the suite is tested
// without a device: right arithmetic passes every case, and each mistake fails the case made for it.
type emulation struct {
	tile    int
	mistake string
}

// attention gives o and lse of the compared rows only.
func (e emulation) attention(c *Case) (o, lse []float64) {
	p := c.inputs
	t := refType(c.Problem.DType)
	scale := float32(p.Scale * math.Log2E)
	if p.Scale == 0 {
		scale = float32(math.Log2E / math.Sqrt(float64(p.Q.D)))
	}
	exp2 := func(x float32) float32 { return float32(math.Exp2(float64(x))) }
	for _, r := range c.rows {
		hk := r.H / (p.Q.H / p.K.H)
		m, l := float32(math.Inf(-1)), float32(0)
		if e.mistake == "maximum starts at 0" {
			m = 0
		}
		acc := make([]float32, p.V.D)
		shift := p.K.N
		switch p.Causal {
		case ref.BottomRight:
			shift = p.K.N - p.Q.N
		case ref.TopLeft:
			shift = 0
		}
		if e.mistake == "one key too many" {
			shift++
		}
		for start := 0; start < p.K.N; start += e.tile {
			s := make([]float32, min(e.tile, p.K.N-start))
			top := float32(math.Inf(-1))
			for n := range s {
				s[n] = float32(math.Inf(-1))
				if start+n > r.I+shift || outside(p.Window, start+n-(r.I+p.K.N-p.Q.N)) ||
					p.Blocks != nil && !p.Blocks.Allows(r.B, r.H, r.I, start+n) || !listsKey(&p, r, hk, start+n) {
					continue
				}
				var sum float32
				for d, x := range p.Q.Row(r.B, r.H, r.I) {
					y := p.K.Row(r.B, hk, start+n)[d]
					if e.mistake == "bf16 through fp16" && t == ref.BF16 {
						x, y = ref.F16.Round(x), ref.F16.Round(y)
					}
					sum += x * y
				}
				if e.mistake == "scale without its sign" {
					scale = float32(math.Abs(float64(scale)))
				}
				s[n] = sum * scale
				top = max(top, s[n])
			}
			if top > m+8 || math.IsInf(float64(m), -1) && top > m {
				if !math.IsInf(float64(m), -1) && e.mistake != "no rescaling" {
					f := exp2(m - top)
					l *= f
					for d := range acc {
						acc[d] *= f
					}
				}
				m = top
			}
			for n, s := range s {
				if math.IsInf(float64(s), -1) {
					continue
				}
				w := exp2(s - m)
				l += w
				w = t.Round(w)
				if e.mistake == "subnormal weights become 0" && t == ref.F16 && w < 1.0/16384 {
					w = 0
				}
				for d, v := range p.V.Row(r.B, hk, start+n) {
					acc[d] += w * v
				}
			}
		}
		for _, x := range acc {
			if l > 0 {
				x /= l
			}
			o = append(o, float64(t.Round(x)))
		}
		switch {
		case l > 0:
			lse = append(lse, (float64(m)+math.Log2(float64(l)))*math.Ln2)
		default:
			lse = append(lse, math.Inf(-1))
		}
	}
	return o, lse
}

// outside says whether a key so many positions after the query's own is outside a window.
func outside(w *ref.Window, after int) bool {
	return w != nil && (w.Left >= 0 && after < -w.Left || w.Right >= 0 && after > w.Right)
}

// listsKey says whether a query's list, where it has one, has a key.
func listsKey(p *ref.Problem, r ref.Row, keyHead, key int) bool {
	l := p.Lists
	if l == nil {
		return true
	}
	at := ((r.B*l.H+min(keyHead, l.H-1))*p.Q.N + r.I) * l.K
	return slices.Contains(l.Data[at:at+l.K], int32(key))
}

// judge runs a case on the emulation.
func (e emulation) judge(t *testing.T, c *Case) string {
	require.NoError(t, c.prepare())
	o, lse := e.attention(c)
	judge := ref.CheckOutput
	if c.Tight {
		judge = ref.CheckTight
	}
	dt := refType(c.Problem.DType)
	if v := judge(o, c.o, c.plainO, dt); !v.OK {
		return "o: " + v.String() + c.where(v.At, c.inputs.V.D)
	}
	if v := ref.CheckLSE(lse, c.lse, nil, dt); !v.OK {
		return "lse: " + v.String() + c.where(v.At, 1)
	}
	return ""
}

func everyCase(t *testing.T) []*Case {
	s := &suite{seed: 1}
	for _, add := range []func(*suite){core, dimensions, lengths, heads, layouts, numerics, thresholds, magnitudes} {
		add(s)
	}
	require.NoError(t, golden(s, os.DirFS(goldenFolder)))
	random(s, 60, true)
	return s.cases
}

// TestRightArithmeticPasses: no case asks for more than fp32 sums and a rounded P can give.
func TestRightArithmeticPasses(t *testing.T) {
	for _, c := range everyCase(t) {
		p := &c.Problem
		if len(c.lacks) > 0 || p.Sinks || p.KeyLengths || p.QueryLengths || p.Bias != (flash.PerScore{}) || p.Mask != (flash.PerScore{}) ||
			!p.ScoreFunction.Identity() ||
			p.Packed != (flash.Packed{}) || p.Pages != (flash.Pages{}) {
			continue // the emulation is of plain attention
		}
		for _, tile := range []int{64, 16} {
			if testing.Short() && tile == 16 && c.kind() != "core" {
				continue
			}
			if failure := (emulation{tile: tile}).judge(t, c); failure != "" {
				t.Errorf("%s, tiles of %d: %s", c.Name, tile, failure)
			}
		}
		c.release()
	}
}

// TestMistakesFail: each mistake is found by the cases that are there for it, in 16-bit dtypes too.
func TestMistakesFail(t *testing.T) {
	for mistake, finders := range map[string][]string{
		"no rescaling":               {"threshold/grow8.1-every32/f16", "threshold/65536-tiny-large-last-gap16/f16"},
		"maximum starts at 0":        {"numeric/all-far-below-zero/f16", "numeric/all-far-below-zero/f32"},
		"subnormal weights become 0": {"threshold/65536-tiny-large-first-gap20/f16"},
		"bf16 through fp16":          {"magnitude/all-1e+06/bf16", "magnitude/all-1e-10/bf16"},
		"scale without its sign":     {"core/negative-scale/f16", "numeric/scale-7/bf16"},
		"one key too many":           {"core/d16/bottom-right/f16", "core/top-left/bf16", "core/empty-rows/f32"},
	} {
		found := map[string]bool{}
		for _, c := range everyCase(t) {
			for _, name := range finders {
				if c.Name == name {
					found[name] = (emulation{tile: 16, mistake: mistake}).judge(t, c) != ""
				}
			}
		}
		for _, name := range finders {
			ok, exists := found[name]
			require.True(t, exists, "no case is called %s", name)
			require.True(t, ok, "%s does not notice: %s", name, mistake)
		}
	}
}
