package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
)

func open(t *testing.T) *flash.Device {
	t.Helper()
	dev, err := flash.Open(flash.WithoutDiskCache())
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// TestLossFalls trains, without and with dropout.
func TestLossFalls(t *testing.T) {
	dev := open(t)
	for _, c := range []struct {
		dropout, below float64
		steps          int
	}{{0, 2.1, 400}, {0.1, 2.7, 100}} {
		var out bytes.Buffer
		file := filepath.Join(t.TempDir(), "heads.safetensors")
		losses, err := train(context.Background(), &out, dev, c.steps, c.dropout, file)
		require.NoError(t, err)
		require.FileExists(t, file)
		require.Contains(t, out.String(), "loss")
		mean := func(x []float64) (m float64) {
			for _, v := range x {
				m += v / float64(len(x))
			}
			return m
		}
		require.Greater(t, losses[0], 3.0, "it knows nothing at first")
		last := mean(losses[len(losses)-10:])
		t.Logf("dropout %g: loss from %.3f to %.3f", c.dropout, losses[0], last)
		require.Less(t, last, c.below)
	}
}

// TestGradients compares the gradients with respect to attention's inputs, and by the matrices before it, with finite differences of the
// loss.
func TestGradients(t *testing.T) {
	dev, ctx := open(t), context.Background()
	s := shape{batch: 2, length: 12, heads: 2, dim: 8, hidden: 16}
	for _, dropout := range []float64{0, 0.25} {
		rng := rand.New(rand.NewPCG(3, 4))
		ids, alphabet := encode(sonnets.Text)
		m := newModel(s, len(alphabet), rng)
		a, err := newAttention(dev, s, dropout)
		require.NoError(t, err)
		in, want := sample(ids, s, rng)
		_, err = m.step(ctx, a, in, want)
		require.NoError(t, err)

		// The loss as a function of one number, everything else as it is.
		near := func(x *float64, h float64) float64 {
			was := *x
			defer func() { *x = was }()
			var loss [2]float64
			for i, step := range [2]float64{h, -h} {
				*x = was + step
				require.NoError(t, m.forward(ctx, a, in))
				loss[i] = m.loss(want)
			}
			return (loss[0] - loss[1]) / (2 * h)
		}
		for name, p := range map[string]*param{"wq": m.wq, "wk": m.wk, "wv": m.wv, "wo": m.wo, "w1": m.w1, "char": m.char} {
			for range 4 {
				i := rng.IntN(len(p.x))
				require.InDelta(t, near(&p.x[i], 1e-2), p.grad[i], 1e-4+2e-2*math.Abs(p.grad[i]), "%s[%d], dropout %g", name, i, dropout)
			}
		}

		// Attention alone: L = Σ do·o, whose gradients with respect to q, k and v are what it was asked for.
		q, k, v, do := append([]float64(nil), m.q...), append([]float64(nil), m.k...), append([]float64(nil), m.v...),
			make([]float64, len(m.o))
		for i := range do {
			do[i] = rng.NormFloat64()
		}
		o := make([]float64, len(q))
		require.NoError(t, a.run(ctx, q, k, v, o))
		grads := [3][]float64{make([]float64, len(q)), make([]float64, len(q)), make([]float64, len(q))}
		require.NoError(t, a.differentiate(ctx, do, grads[0], grads[1], grads[2]))
		for n, x := range [3][]float64{q, k, v} {
			for range 6 {
				i := rng.IntN(len(x))
				was, loss := x[i], [2]float64{}
				const h = 1e-2
				for side, step := range [2]float64{h, -h} {
					x[i] = was + step
					require.NoError(t, a.run(ctx, q, k, v, o))
					for j := range o {
						loss[side] += do[j] * o[j]
					}
				}
				x[i] = was
				want := (loss[0] - loss[1]) / (2 * h)
				require.InDelta(t, want, grads[n][i], 2e-3*math.Max(1, math.Abs(want)), "input %d, element %d, dropout %g", n, i, dropout)
			}
		}
		require.NoError(t, a.close())
	}
}
