package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// reference is the model again, in float64 and as its equations stand, over a whole text each time: no cache, no tiles, no code of the
// model's own. It reads sizes and weights from the file.
type reference struct {
	*testing.T
	f      *gguf.File
	arch   string
	folder bool // a folder's: columns half a head apart are turned together, and frequencies are scaled as Llama 3 does
	// round, where there is one, is what becomes of the rows of queries ('q', turned already), keys, values and outputs of heads.
	round func(what byte, row []float64)
}

func (r *reference) number(key string, otherwise float64) float64 {
	x, err := gguf.Or(r.f.Float(r.arch + "." + key))(otherwise)
	require.NoError(r, err)
	return x
}

// rows are those of a tensor, nil where there is none.
func (r *reference) rows(name string) (all [][]float64) {
	if !r.f.Has(name) {
		return nil
	}
	t, err := r.f.Tensor(name)
	require.NoError(r, err)
	raw, err := t.Data()
	require.NoError(r, err)
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	x := make([]float32, n)
	t.Type.Floats(x, raw)
	for at := 0; at < n; at += t.Dims[0] {
		row := make([]float64, t.Dims[0])
		for c := range row {
			row[c] = float64(x[at+c])
		}
		all = append(all, row)
	}
	return all
}

// times is W·x, and a bias where the file has one.
func (r *reference) times(name string, x []float64) []float64 {
	w, bias := r.rows(name+".weight"), r.rows(name+".bias")
	y := make([]float64, len(w))
	for i, row := range w {
		for c, v := range row {
			y[i] += v * x[c]
		}
		if bias != nil {
			y[i] += bias[0][i]
		}
	}
	return y
}

// norm is RMSNorm with the weights of a name, in portions as long as they are; without such weights x stays as it is.
func (r *reference) norm(name string, x []float64) []float64 {
	w := r.rows(name + ".weight")
	if w == nil {
		return x
	}
	y := make([]float64, len(x))
	n := len(w[0])
	for at := 0; at < len(x); at += n {
		sum := 0.0
		for _, v := range x[at : at+n] {
			sum += v * v
		}
		for c := range n {
			y[at+c] = x[at+c] / math.Sqrt(sum/float64(n)+r.number("attention.layer_norm_rms_epsilon", 0)) * w[0][c]
		}
	}
	return y
}

// turn turns a head at a position: neighbours in files of the architecture llama, columns half a head apart in others.
func (r *reference) turn(x []float64, position int) {
	n := int(r.number("rope.dimension_count", float64(len(x))))
	divisors := r.rows("rope_freqs.weight")
	for j := range n / 2 {
		a, b := j, j+n/2
		if r.arch == "llama" && !r.folder {
			a, b = 2*j, 2*j+1
		}
		angle := float64(position) / math.Pow(r.number("rope.freq_base", 10000), 2*float64(j)/float64(n)) /
			r.number("rope.scaling.factor", 1)
		if r.folder {
			angle = float64(position) * scaledAsLlama3(angle/float64(max(position, 1)), 8, 64, 1, 4)
		}
		if divisors != nil {
			angle /= divisors[0][j]
		}
		s, c := math.Sincos(angle)
		x[a], x[b] = c*x[a]-s*x[b], s*x[a]+c*x[b]
	}
}

// scaledAsLlama3 scales a frequency as Hugging Face's own code does: waves longer than length/low are made factor times longer, those
// shorter than length/high are left, and others are between.
func scaledAsLlama3(frequency, factor, length, low, high float64) float64 {
	wave := 2 * math.Pi / frequency
	switch smooth := (length/wave - low) / (high - low); {
	case wave < length/high:
		return frequency
	case wave > length/low:
		return frequency / factor
	default:
		return (1-smooth)*frequency/factor + smooth*frequency
	}
}

// logits are those of the token after each token of a text.
func (r *reference) logits(tokens []int) (all [][]float64) {
	embed := r.rows("token_embd.weight")
	var x [][]float64
	for _, id := range tokens {
		row := append([]float64(nil), embed[id]...)
		if r.arch == "gemma2" {
			for c := range row {
				row[c] *= math.Sqrt(float64(len(row)))
			}
		}
		x = append(x, row)
	}
	for i := range int(r.number("block_count", 0)) {
		r.layer(i, x)
	}
	out := "output"
	if !r.f.Has("output.weight") {
		out = "token_embd"
	}
	for _, row := range x {
		y := r.times(out, r.norm("output_norm", row))
		if most := r.number("final_logit_softcapping", 0); most > 0 {
			for i := range y {
				y[i] = most * math.Tanh(y[i]/most)
			}
		}
		all = append(all, y)
	}
	return all
}

func (r *reference) layer(i int, x [][]float64) {
	name := fmt.Sprintf("blk.%d.", i)
	keep := func(what byte, row []float64, dim int) [][]float64 {
		var heads [][]float64
		for at := 0; at < len(row); at += dim {
			heads = append(heads, row[at:at+dim])
			if r.round != nil {
				r.round(what, row[at:at+dim])
			}
		}
		return heads
	}
	dim, wide := int(r.number("attention.key_length", 0)), int(r.number("attention.value_length", 0))
	group := int(r.number("attention.head_count", 0) / r.number("attention.head_count_kv", 0))
	var q, k, v [][][]float64 // of each token and head
	for t, row := range x {
		y := r.norm(name+"attn_norm", row)
		turned := func(what byte, projection string) [][]float64 {
			heads := keep('0', r.norm(name+projection+"_norm", r.times(name+projection, y)), dim)
			for _, h := range heads {
				r.turn(h, t)
				if r.round != nil {
					r.round(what, h)
				}
			}
			return heads
		}
		q, k = append(q, turned('q', "attn_q")), append(k, turned('k', "attn_k"))
		v = append(v, keep('v', r.times(name+"attn_v", y), wide))
	}
	for t := range x {
		var o []float64
		for h := range q[t] {
			o = append(o, r.head(i, t, q[t][h], h/group, k, v, wide)...)
		}
		keep('o', o, wide)
		for c, d := range r.norm(name+"post_attention_norm", r.times(name+"attn_output", o)) {
			x[t][c] += d
		}
		y := r.norm(name+"ffn_norm", x[t])
		gate, up := r.times(name+"ffn_gate", y), r.times(name+"ffn_up", y)
		for c, g := range gate {
			if r.arch == "gemma2" {
				up[c] *= 0.5 * g * (1 + math.Tanh(0.7978845608028654*(g+0.044715*g*g*g)))
			} else {
				up[c] *= g / (1 + math.Exp(-g))
			}
		}
		for c, d := range r.norm(name+"post_ffw_norm", r.times(name+"ffn_down", up)) {
			x[t][c] += d
		}
	}
}

// head is attention of a query of token t over the keys that it sees.
func (r *reference) head(layer, t int, q []float64, keyHead int, k, v [][][]float64, wide int) []float64 {
	o, sum, most := make([]float64, wide), 0.0, r.number("attn_logit_softcapping", 0)
	window := int(r.number("attention.sliding_window", 0))
	if r.arch == "gemma2" && layer%2 == 1 {
		window = 0
	}
	for j := 0; j <= t; j++ {
		if window > 0 && t-j >= window {
			continue
		}
		s := 0.0
		for c := range q {
			s += q[c] * k[j][keyHead][c] / math.Sqrt(float64(len(q)))
		}
		if most > 0 {
			s = most * math.Tanh(s/most)
		}
		sum += math.Exp(s)
		for c := range o {
			o[c] += math.Exp(s) * v[j][keyHead][c]
		}
	}
	for c := range o {
		o[c] /= sum
	}
	return o
}
