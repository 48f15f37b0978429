package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
)

// training is how a model is trained. The text is short, and soon known by heart: decay, dropout and noise put that off, so that what was
// held out is still predicted better than by an untrained model when training ends.
type training struct {
	batch, length, steps int
	rate                 float64 // of the first step; it falls to a tenth of that along a half cosine
	decay                float64 // of weights, a step and rate (AdamW)
	dropout              float64 // of attention's weights
	noise                float64 // part of the characters read that are drawn at random
	held                 int     // characters at the end of the text that are not trained on
}

var usualTraining = training{batch: 8, length: 64, steps: 450, rate: 5e-3, decay: 0.5, dropout: 0.1, noise: 0.1, held: 255}

// train trains a model on the sonnets, and gives the loss of each step.
func train(ctx context.Context, out io.Writer, dev *flash.Device, t training) (*model, []float64, error) {
	alphabet := alphabetOf(sonnets.Text)
	rng := rand.New(rand.NewPCG(1, 2))
	m := newModel(usual, alphabet, rng)
	tokens, err := m.encode(sonnets.Text)
	if err != nil {
		return nil, nil, err
	}
	tokens = tokens[:len(tokens)-t.held]
	a, err := newWholeAttention(dev, m.config, t.batch, t.length, t.dropout)
	if err != nil {
		return nil, nil, err
	}
	defer a.close()
	opt := newAdam(m.params())
	var losses []float64
	for step := range t.steps {
		in, want := sample(tokens, t, rng)
		for i := range in { // what is to follow stays as it is
			if rng.Float64() < t.noise {
				in[i] = rng.IntN(len(alphabet))
			}
		}
		a.drop = uint32(step)
		loss, err := m.step(ctx, a, in, want)
		if err != nil {
			return nil, nil, err
		}
		cosine := (1 + math.Cos(math.Pi*float64(step)/float64(t.steps))) / 2
		opt.update(m.params(), t.rate*(0.1+0.9*cosine), t.decay)
		losses = append(losses, loss)
		if step%20 == 0 || step == t.steps-1 {
			held, err := m.heldOut(ctx, dev, t.held)
			if err != nil {
				return nil, nil, err
			}
			fmt.Fprintf(out, "step %4d  loss %.3f  on the text held out %.3f\n", step, loss, held)
		}
	}
	return m, losses, nil
}

// heldOut is the loss on the end of the text, n characters that training left out.
func (m *model) heldOut(ctx context.Context, dev *flash.Device, n int) (float64, error) {
	tokens, err := m.encode(sonnets.Text)
	if err != nil {
		return 0, err
	}
	tokens = tokens[len(tokens)-n-1:]
	a, err := newWholeAttention(dev, m.config, 1, n, 0)
	if err != nil {
		return 0, err
	}
	defer a.close()
	p, err := m.forward(ctx, a, tokens[:n])
	if err != nil {
		return 0, err
	}
	return m.loss(p, tokens[1:]), nil
}

// sample draws pieces of the text, and what follows each of their characters.
func sample(tokens []int, t training, rng *rand.Rand) (in, want []int) {
	for range t.batch {
		at := rng.IntN(len(tokens) - t.length)
		in = append(in, tokens[at:at+t.length]...)
		want = append(want, tokens[at+1:at+t.length+1]...)
	}
	return in, want
}

// loss is the mean cross-entropy of the characters that follow; its gradient with respect to the logits takes their place.
func (m *model) loss(p *pass, want []int) float64 {
	total := 0.0
	for i, id := range want {
		row := m.row(p, i)
		top, z := slices.Max(row), 0.0
		for _, x := range row {
			z += math.Exp(float64(x - top))
		}
		total += float64(top) + math.Log(z) - float64(row[id])
		for c, x := range row {
			row[c] = float32(math.Exp(float64(x-top)) / z / float64(len(want)))
		}
		row[id] -= 1 / float32(len(want))
	}
	return total / float64(len(want))
}

// step computes the loss of a batch and its gradients with respect to all parameters: the forward pass's steps in the opposite order.
func (m *model) step(ctx context.Context, a *wholeAttention, in, want []int) (float64, error) {
	p, err := m.forward(ctx, a, in)
	if err != nil {
		return 0, err
	}
	loss := m.loss(p, want)
	for _, w := range m.params() {
		w.grad = make([]float32, len(w.x))
	}
	e := m.width
	dx := normalizeBackward(p.nx, p.inv, multiplyBackward(p.nx, m.out, p.logits), e)
	for i, l := range slices.Backward(m.layers) {
		c := &p.layers[i]
		du := siluBackward(c.u, multiplyBackward(c.h, l.down, dx))
		dy := sum(dx, normalizeBackward(c.ny, c.invY, multiplyBackward(c.ny, l.up, du), e))
		dqkv := make([]float32, len(c.qkv))
		if err := a.differentiate(ctx, i, multiplyBackward(c.o, l.o, dy), dqkv); err != nil {
			return 0, err
		}
		dx = sum(dy, normalizeBackward(c.nx, c.invX, multiplyBackward(c.nx, l.qkv, dqkv), e))
	}
	for i, id := range p.tokens {
		for c, g := range dx[i*e : (i+1)*e] {
			m.embed.grad[id*e+c] += g
		}
	}
	return loss, nil
}

// adam is AdamW: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, with the decay of weights of Loshchilov and Hutter,
// "Decoupled Weight Decay Regularization", 2019.
type adam struct {
	steps int
	m, v  [][]float32
}

func newAdam(params []*param) *adam {
	a := &adam{}
	for _, p := range params {
		a.m, a.v = append(a.m, make([]float32, len(p.x))), append(a.v, make([]float32, len(p.x)))
	}
	return a
}

func (a *adam) update(params []*param, rate, decay float64) {
	const b1, b2 = 0.9, 0.99
	a.steps++
	c1, c2 := 1-math.Pow(b1, float64(a.steps)), 1-math.Pow(b2, float64(a.steps))
	for n, p := range params {
		for i, g := range p.grad {
			a.m[n][i] = b1*a.m[n][i] + (1-b1)*g
			a.v[n][i] = b2*a.v[n][i] + (1-b2)*g*g
			step := float64(a.m[n][i])/c1/(math.Sqrt(float64(a.v[n][i])/c2)+1e-8) + decay*float64(p.x[i])
			p.x[i] -= float32(rate * step)
		}
	}
}
