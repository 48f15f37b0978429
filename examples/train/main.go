// Command train trains a character-level transformer block on a few sonnets. Attention, forward and backward, is this
// library's on the GPU; everything else is plain Go on the CPU, derivatives written out by hand:
//
//	x  = embedding of the character + embedding of its place
//	y  = x + attention(norm(x)·Wq, norm(x)·Wk, norm(x)·Wv)·Wo        causal, several heads
//	z  = y + silu(norm(y)·W1)·W2
//	p(next character) = softmax(norm(z)·Wout)
//
//	go run ./examples/train -steps 600
//	go run ./examples/train -heads heads.safetensors && go run ./cmd/vkattn map heads.safetensors --out map.png
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/examples/internal/sonnets"
	"github.com/vkattn/vkattn/flash"
)

// shape is the sizes of a model and of the batches it is trained on.
type shape struct {
	batch, length int // sequences of a step, characters of each
	heads, dim    int
	hidden        int // of the two layers after attention
}

func (s shape) width() int  { return s.heads * s.dim }
func (s shape) tokens() int { return s.batch * s.length }

var usual = shape{batch: 4, length: 48, heads: 2, dim: 16, hidden: 64}

func main() {
	steps := flag.Int("steps", 600, "training steps")
	dropout := flag.Float64("dropout", 0, "probability of dropping an attention weight")
	heads := flag.String("heads", "", "`file` to write queries and keys of the trained heads to, for vkattn map")
	flag.Parse()
	if err := run(os.Stdout, *steps, *dropout, *heads); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, steps int, dropout float64, heads string) error {
	dev, err := flash.Open()
	if err != nil {
		return err
	}
	defer dev.Close()
	_, err = train(context.Background(), out, dev, steps, dropout, heads)
	return err
}

// train gives the loss of each step, and writes the heads to a file, unless that is "".
func train(ctx context.Context, out io.Writer, dev *flash.Device, steps int, dropout float64, heads string) ([]float64, error) {
	ids, alphabet := encode(sonnets.Text)
	rng := rand.New(rand.NewPCG(1, 2))
	m := newModel(usual, len(alphabet), rng)
	attention, err := newAttention(dev, usual, dropout)
	if err != nil {
		return nil, err
	}
	defer attention.close()
	fmt.Fprintln(out, attention.plan)
	opt := newAdam(m.params())
	var losses []float64
	for step := range steps {
		in, want := sample(ids, usual, rng)
		attention.offset = uint32(step) // other weights are dropped in every step
		loss, err := m.step(ctx, attention, in, want)
		if err != nil {
			return nil, err
		}
		opt.update(m.params(), 1e-2)
		losses = append(losses, loss)
		if step%50 == 0 || step == steps-1 {
			fmt.Fprintf(out, "step %4d  loss %.3f\n", step, loss)
		}
	}
	said, err := m.continueText(ctx, attention, ids[:usual.length], 120)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%s", decode(said, alphabet))
	fmt.Fprintln(out)
	if heads != "" {
		err = writeHeads(ctx, heads, m, attention, ids, alphabet)
	}
	return losses, err
}

// encode numbers the characters of a text.
func encode(text string) (ids []int, alphabet []rune) {
	for _, r := range text {
		if !slices.Contains(alphabet, r) {
			alphabet = append(alphabet, r)
		}
	}
	slices.Sort(alphabet)
	for _, r := range text {
		at, _ := slices.BinarySearch(alphabet, r)
		ids = append(ids, at)
	}
	return ids, alphabet
}

func decode(ids []int, alphabet []rune) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune(alphabet[id])
	}
	return b.String()
}

// sample draws pieces of the text, and what follows each of their characters.
func sample(ids []int, s shape, rng *rand.Rand) (in, want []int) {
	for range s.batch {
		at := rng.IntN(len(ids) - s.length)
		in = append(in, ids[at:at+s.length]...)
		want = append(want, ids[at+1:at+s.length+1]...)
	}
	return in, want
}
