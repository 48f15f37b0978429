package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
)

// config is the sizes of a model.
type config struct {
	width, layers        int
	heads, keyHeads, dim int // query heads share key heads: the cache is heads/keyHeads times smaller than with keys of their own
	hidden               int
	window               int // keys that a token sees in the layers that have a window: itself and those before it
}

var usual = config{width: 48, layers: 3, heads: 4, keyHeads: 2, dim: 32, hidden: 128, window: 32}

// columns is the width of a row that holds a token's queries, keys and values, one head after the other.
func (c config) columns() int { return (c.heads + 2*c.keyHeads) * c.dim }

// seen is the keys that a token sees in a layer, itself among them: window, or 0 for all. Every other layer sees all tokens before, so that
// what is far away is not lost.
func (c config) seen(layer int) int {
	if layer%2 == 1 {
		return 0
	}
	return c.window
}

func windowOf(seen int) flash.Window {
	if seen == 0 {
		return flash.Window{}
	}
	return flash.SlidingWindow(seen-1, 0)
}

// model is the transformer, with weights of fp32 on the host:
//
//	x0 = embedding of the character
//	y  = x + attention(norm(x)·Wqkv)·Wo        in each layer: rotary, grouped queries, causal
//	x  = y + silu(norm(y)·Wup)·Wdown
//	p(next character) = softmax(norm(x)·Wout)
type model struct {
	config
	alphabet   []rune // in order; token i is alphabet[i]
	embed, out *param
	layers     []layer
}

type layer struct{ qkv, o, up, down *param }

func newModel(c config, alphabet []rune, rng *rand.Rand) *model {
	in := func(n int) float64 { return 1 / math.Sqrt(float64(n)) }
	back := 1 / math.Sqrt(float64(2*c.layers)) // what is added to x is smaller, as there are that many of them
	e, n := c.width, len(alphabet)
	m := &model{config: c, alphabet: alphabet, embed: newParam("embed", n, e, 1, rng), out: newParam("out", e, n, 0.5*in(e), rng)}
	for i := range c.layers {
		name := func(what string) string { return fmt.Sprintf("layer%d.%s", i, what) }
		m.layers = append(m.layers, layer{
			qkv: newParam(name("qkv"), e, c.columns(), in(e), rng), o: newParam(name("o"), c.heads*c.dim, e, back*in(c.heads*c.dim), rng),
			up: newParam(name("up"), e, c.hidden, in(e), rng), down: newParam(name("down"), c.hidden, e, back*in(c.hidden), rng),
		})
	}
	return m
}

func (m *model) params() []*param {
	all := []*param{m.embed, m.out}
	for _, l := range m.layers {
		all = append(all, l.qkv, l.o, l.up, l.down)
	}
	return all
}

// attention is what the forward pass leaves to the device: rows of o, one for each token of the batch, from rows of q, k and v, layer after
// layer. Over whole sequences it is a wholeAttention, which can go back; over what was there before as well, a cache.
type attention interface {
	attend(ctx context.Context, layer int, qkv, o []float32) error
}

// pass is what a forward pass computed: the logits of the character after each token, and what a backward pass needs.
type pass struct {
	tokens  []int
	layers  []activations
	nx, inv []float32
	logits  []float32 // tokens × alphabet
}

type activations struct {
	nx, invX, qkv, o, ny, invY, u, h []float32
}

func (m *model) forward(ctx context.Context, a attention, tokens []int) (*pass, error) {
	p := &pass{tokens: tokens, layers: make([]activations, len(m.layers))}
	e := m.width
	var x []float32
	for _, id := range tokens {
		x = append(x, m.embed.x[id*e:(id+1)*e]...)
	}
	for i, l := range m.layers {
		c := &p.layers[i]
		c.nx, c.invX = normalize(x, e)
		c.qkv, c.o = multiply(c.nx, l.qkv), make([]float32, len(tokens)*m.heads*m.dim)
		if err := a.attend(ctx, i, c.qkv, c.o); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		y := sum(x, multiply(c.o, l.o))
		c.ny, c.invY = normalize(y, e)
		c.u = multiply(c.ny, l.up)
		c.h = silu(c.u)
		x = sum(y, multiply(c.h, l.down))
	}
	p.nx, p.inv = normalize(x, e)
	p.logits = multiply(p.nx, m.out)
	return p, nil
}

// row is the logits of the character after token i.
func (m *model) row(p *pass, i int) []float32 {
	n := len(m.alphabet)
	return p.logits[i*n : (i+1)*n]
}
