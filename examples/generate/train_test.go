package main

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
)

// TestTrain: some steps lower the loss, and the file that is written holds the model.
func TestTrain(t *testing.T) {
	dev, ctx := open(t), context.Background()
	short := training{batch: 2, length: 64, steps: 30, rate: 4e-3, dropout: 0.1, held: 255}
	if testing.Short() {
		short.steps = 12
	}
	var out bytes.Buffer
	m, losses, err := train(ctx, &out, dev, short)
	require.NoError(t, err)
	require.Contains(t, out.String(), "held out")
	t.Logf("loss from %.3f to %.3f", losses[0], losses[len(losses)-1])
	require.Greater(t, losses[0], 3.7)
	require.Less(t, losses[len(losses)-1], 3.2)

	file, err := m.marshal()
	require.NoError(t, err)
	read, err := unmarshal(file)
	require.NoError(t, err)
	require.Equal(t, m.config, read.config)
	require.Equal(t, m.alphabet, read.alphabet)
	for i, p := range m.params() {
		q := read.params()[i]
		require.Equal(t, p.name, q.name)
		for j, x := range p.x {
			require.InDelta(t, x, q.x[j], math.Abs(float64(x))/256)
		}
	}
	again, err := read.marshal()
	require.NoError(t, err)
	require.Equal(t, file, again)
}

// TestHeldOut: the model that comes with the example knows something of text that it was not trained on.
func TestHeldOut(t *testing.T) {
	dev, ctx := open(t), context.Background()
	loss, err := saved(t).heldOut(ctx, dev, usualTraining.held)
	require.NoError(t, err)
	t.Logf("loss %.3f", loss)
	require.Less(t, loss, 3.1)
	untrained := newModel(usual, alphabetOf(sonnets.Text), rand.New(rand.NewPCG(5, 6)))
	nothing, err := untrained.heldOut(ctx, dev, usualTraining.held)
	require.NoError(t, err)
	require.Greater(t, nothing, 3.8) // ln 46 = 3.83: all characters alike
}

// TestGradients: along the gradient with respect to a matrix, the loss grows as fast as the gradient is long. Windows of 6 keys cut the
// texts of 20.
func TestGradients(t *testing.T) {
	dev, ctx := open(t), context.Background()
	c := config{width: 16, layers: 2, heads: 4, keyHeads: 2, dim: 8, hidden: 24, window: 6}
	rng := rand.New(rand.NewPCG(7, 8))
	m := newModel(c, alphabetOf(sonnets.Text), rng)
	tokens, err := m.encode(sonnets.Text)
	require.NoError(t, err)
	s := training{batch: 2, length: 20}
	a, err := newWholeAttention(dev, c, s.batch, s.length, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.close()) }()
	in, want := sample(tokens, s, rng)
	_, err = m.step(ctx, a, in, want)
	require.NoError(t, err)
	for _, p := range m.params() {
		length := 0.0
		for _, g := range p.grad {
			length += float64(g) * float64(g)
		}
		length = math.Sqrt(length)
		require.Greater(t, length, 1e-3, p.name)
		was, loss := append([]float32(nil), p.x...), [2]float64{}
		const h = 3e-2
		for side, step := range [2]float64{h, -h} {
			for i, g := range p.grad {
				p.x[i] = was[i] + float32(step/length)*g
			}
			after, err := m.forward(ctx, a, in)
			require.NoError(t, err)
			loss[side] = m.loss(after, want)
		}
		copy(p.x, was)
		require.InEpsilon(t, length, (loss[0]-loss[1])/(2*h), 1e-2, p.name)
	}
}

// TestBadWeights: a file that is damaged is an error that says where.
func TestBadWeights(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"BF16"`, `"BF17"`, "BF17"}, {`"shape":[`, `"shape":[1`, "must be BF16"}, {`"out"`, `"oot"`, "tensor out"},
		{`\"Heads\":4`, `\"Heads\":0`, "from 1 to 4096"},
		{`__metadata__`, `__metaphor__`, "metadata"}, {`{"__`, `["__`, "header"}, {`"data_offsets":[`, `"data_offsets":[9`, "bytes 9"},
		{`[57984,70272]`, `[45696,57984]`, "tensor layer0.down: bytes 45696"}, // those of another
	} {
		n := bytes.IndexByte(weights[8:], 0)
		require.Greater(t, n, 0)
		file := bytes.Replace(weights, []byte(c.old), []byte(c.new), 1)
		require.NotEqual(t, weights, file, c.old)
		file[0] += byte(len(c.new) - len(c.old))
		_, err := unmarshal(file)
		require.ErrorContains(t, err, c.want)
	}
	_, err := unmarshal(weights[:7])
	require.ErrorContains(t, err, "too few")
}
