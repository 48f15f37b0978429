package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// model is the transformer:
//
//	x = embedding of the token
//	x = x + attention(norm(x)·Wqᵀ, norm(x)·Wkᵀ, norm(x)·Wvᵀ)·Woᵀ      in each layer
//	x = x + (silu(norm(x)·Wgateᵀ) ⊙ norm(x)·Wupᵀ)·Wdownᵀ
//	logits = norm(x)·Woutᵀ
//
// and what its kind adds to that.
type model struct {
	config
	vocabulary int
	embed, out *matrix
	norm       []float32
	blocks     []block
}

// block is a layer. Vectors that its kind does not have are nil.
type block struct {
	attnNorm, ffnNorm, afterAttn, afterFFN []float32
	qNorm, kNorm                           []float32
	q, k, v, o, gate, up, down             *matrix
	qBias, kBias, vBias, oBias             []float32
}

// readModel reads all of a file. A tensor of the file that has no part in the model is an error: the model has something then that this
// program would leave out.
func readModel(f *gguf.File) (*model, error) {
	c, err := readConfig(f)
	if err != nil {
		return nil, err
	}
	r := &weights{f: f, left: map[string]bool{}}
	for _, t := range f.Tensors {
		r.left[t.Name] = true
	}
	embed, err := f.Tensor("token_embd.weight")
	if err != nil {
		return nil, err
	}
	if len(embed.Dims) != 2 {
		return nil, fmt.Errorf("tensor %s: dimensions %v: it must have two", embed.Name, embed.Dims)
	}
	m := &model{config: c, vocabulary: embed.Dims[1]}
	m.embed = r.matrix("token_embd", m.vocabulary, c.width)
	m.out = m.embed
	if f.Has("output.weight") {
		m.out = r.matrix("output", m.vocabulary, c.width)
	}
	m.norm = r.vector("output_norm.weight", c.width)
	if f.Has("rope_freqs.weight") {
		if m.rotary.Frequencies != nil {
			return nil, fmt.Errorf("tensor rope_freqs.weight: %w: the metadata scales frequencies too", errUnsupported)
		}
		m.rotary.Frequencies = frequencies(m.rotary.Base, m.rotary.Scale, r.vector("rope_freqs.weight", m.rotary.Columns/2))
		m.rotary.Base, m.rotary.Scale = 0, 0
	}
	for i := 0; i < c.layers && r.err == nil; i++ {
		m.blocks = append(m.blocks, r.block(&m.config, fmt.Sprintf("blk.%d.", i)))
	}
	if r.err == nil && len(r.left) > 0 {
		return nil, fmt.Errorf("tensor %s: %w: models of the architecture %s have none here", slices.Min(slices.Collect(maps.Keys(r.left))),
			errUnsupported, c.arch)
	}
	return m, r.err
}

// frequencies are those of pairs of columns with a divisor for each (Llama 3.1's rope scaling, as files have it).
func frequencies(base, scale float64, divisors []float32) []float64 {
	all := make([]float64, len(divisors))
	for j, d := range divisors {
		all[j] = scale * math.Pow(base, -float64(j)/float64(len(divisors))) / float64(d)
	}
	return all
}

func (r *weights) block(c *config, name string) block {
	keys, out := c.keyHeads*c.dim, c.heads*c.valueDim
	b := block{
		attnNorm: r.vector(name+"attn_norm.weight", c.width), ffnNorm: r.vector(name+"ffn_norm.weight", c.width),
		q: r.matrix(name+"attn_q", c.heads*c.dim, c.width), k: r.matrix(name+"attn_k", keys, c.width),
		v: r.matrix(name+"attn_v", c.keyHeads*c.valueDim, c.width), o: r.matrix(name+"attn_output", c.width, out),
		gate: r.matrix(name+"ffn_gate", c.hidden, c.width), up: r.matrix(name+"ffn_up", c.hidden, c.width),
		down: r.matrix(name+"ffn_down", c.width, c.hidden),
	}
	if c.biased || r.f.Has(name+"attn_q.bias") {
		b.qBias, b.kBias = r.vector(name+"attn_q.bias", c.heads*c.dim), r.vector(name+"attn_k.bias", keys)
		b.vBias = r.vector(name+"attn_v.bias", c.keyHeads*c.valueDim)
	}
	if r.f.Has(name + "attn_output.bias") {
		b.oBias = r.vector(name+"attn_output.bias", c.width)
	}
	if c.headNorms {
		b.qNorm, b.kNorm = r.vector(name+"attn_q_norm.weight", c.dim), r.vector(name+"attn_k_norm.weight", c.dim)
	}
	if c.afterNorms {
		b.afterAttn = r.vector(name+"post_attention_norm.weight", c.width)
		b.afterFFN = r.vector(name+"post_ffw_norm.weight", c.width)
	}
	return b
}

// weights reads tensors, and keeps the first error.
type weights struct {
	f    *gguf.File
	left map[string]bool // names that nothing has read
	err  error
}

func (r *weights) read(name string, dims ...int) (*gguf.Tensor, []byte) {
	if r.err != nil {
		return nil, nil
	}
	delete(r.left, name)
	t, err := r.f.Tensor(name)
	if err == nil && !t.Is(dims...) {
		err = fmt.Errorf("tensor %s: dimensions %v: they must be %v by the metadata", name, t.Dims, dims)
	}
	var raw []byte
	if err == nil {
		raw, err = t.Data()
	}
	r.err = err
	return t, raw
}

func (r *weights) matrix(name string, rows, cols int) *matrix {
	t, raw := r.read(name+".weight", cols, rows)
	if r.err != nil {
		return nil
	}
	return newMatrix(t.Type, rows, cols, raw)
}

func (r *weights) vector(name string, n int) []float32 {
	t, raw := r.read(name, n)
	if r.err != nil {
		return nil
	}
	x := make([]float32, n)
	t.Type.Floats(x, raw)
	return x
}

// attention is what a pass over new tokens leaves to the device: rows o [tokens, heads·valueDim] from rows of q, k and v, which are not
// turned yet, over all tokens up to each.
type attention interface {
	attend(ctx context.Context, layer int, q, k, v []float32) (o []float32, err error)
}

// forward takes new tokens in and gives the logits of the token after the last of them, or with all those after each.
func (m *model) forward(ctx context.Context, a attention, tokens []int, all bool) ([]float32, error) {
	x := make([]float32, len(tokens)*m.width)
	for i, id := range tokens {
		if id < 0 || id >= m.vocabulary {
			return nil, fmt.Errorf("token %d: the model has %d", id, m.vocabulary)
		}
		m.embed.row(x[i*m.width:], id)
	}
	if m.scaledInput {
		scale := float32(math.Sqrt(float64(m.width)))
		for i := range x {
			x[i] *= scale
		}
	}
	for i := range m.blocks {
		if err := m.blocks[i].forward(ctx, m, a, i, x); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	if !all {
		x = x[(len(tokens)-1)*m.width:]
	}
	logits := m.out.multiply(normalize(x, m.norm, m.epsilon), nil)
	if m.finalCap > 0 {
		for i, v := range logits {
			logits[i] = float32(m.finalCap * math.Tanh(float64(v)/m.finalCap))
		}
	}
	return logits, nil
}

// forward takes x through a layer.
func (b *block) forward(ctx context.Context, m *model, a attention, layer int, x []float32) error {
	y := normalize(x, b.attnNorm, m.epsilon)
	q, k, v := b.q.multiply(y, b.qBias), b.k.multiply(y, b.kBias), b.v.multiply(y, b.vBias)
	if b.qNorm != nil {
		q, k = normalize(q, b.qNorm, m.epsilon), normalize(k, b.kNorm, m.epsilon)
	}
	o, err := a.attend(ctx, layer, q, k, v)
	if err != nil {
		return err
	}
	y = b.o.multiply(o, b.oBias)
	if b.afterAttn != nil {
		y = normalize(y, b.afterAttn, m.epsilon)
	}
	add(x, y)
	y = normalize(x, b.ffnNorm, m.epsilon)
	f := silu
	if m.gelu {
		f = gelu
	}
	y = b.down.multiply(gated(f, b.gate.multiply(y, nil), b.up.multiply(y, nil)), nil)
	if b.afterFFN != nil {
		y = normalize(y, b.afterFFN, m.epsilon)
	}
	add(x, y)
	return nil
}
