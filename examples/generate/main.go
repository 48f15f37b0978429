// Command generate writes verse with a small character-level transformer, the way language models are served: keys and values of what was said stay in
// a cache on the device, and all texts that are being written go forward together, one character of each in a pass.
//
//	go run ./examples/generate -prompt "Shall I compare" -prompt "My mistress' eyes" -tokens 200 -seed 1 -temperature 0.8
//
// The model has rotary position embedding, grouped queries, and a sliding window in every other layer. It was trained by this program too:
//
//	go run ./examples/generate -train
//
// Attention, forward and backward, rotation and cache are this library's, on the GPU: whole.go has whole sequences with gradients, for training,
// cache.go the cache. The rest is plain Go: model.go the transformer, train.go its training, generate.go what runs when.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// weights are those that -train made.
//
//go:embed testdata/model.safetensors
var weights []byte

const trained = "examples/generate/testdata/model.safetensors"

// options are the command's.
type options struct {
	prompts []string
	tokens  int
	seed    uint64
	by      sampling
	batch   int // texts at a time
	room    int // characters of the longest text
	cache   string
	file    string
}

func main() {
	var o options
	flag.Func("prompt", "a text to continue; may be given several times", func(s string) error {
		o.prompts = append(o.prompts, strings.ReplaceAll(s, `\n`, "\n"))
		return nil
	})
	flag.IntVar(&o.tokens, "tokens", 200, "characters to add to each prompt, at most; a blank line ends a text sooner")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is drawn: the same seed gives the same texts")
	flag.Float64Var(&o.by.temperature, "temperature", 0.8, "how far from the likeliest character it strays; 0: not at all")
	flag.IntVar(&o.by.topK, "top-k", 0, "draw from the likeliest k characters only; 0: from all")
	flag.IntVar(&o.batch, "batch", 4, "texts that are written at the same time; the others wait in a queue")
	flag.IntVar(&o.room, "room", 512, "characters that a text has room for in the cache")
	flag.StringVar(&o.cache, "cache", "f16", "type of the cache: f16, bf16 or f32")
	flag.StringVar(&o.file, "model", "", "a file of weights; none: those that come with the example")
	learn := flag.Bool("train", false, "train the model, and write its weights to -model, or to "+trained)
	flag.Parse()

	do := func(dev *flash.Device) error { return run(context.Background(), os.Stdout, dev, o) }
	if *learn {
		do = func(dev *flash.Device) error { return learnWeights(context.Background(), os.Stdout, dev, o.file) }
	}
	if err := onDevice(do); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func onDevice(do func(*flash.Device) error) (err error) {
	dev, err := flash.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return do(dev)
}

// run continues the prompts and prints them.
func run(ctx context.Context, out io.Writer, dev *flash.Device, o options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	m, err := o.model()
	if err != nil {
		return err
	}
	kind, err := flash.ParseDType(o.cache)
	if err != nil {
		return err
	}
	// All plans are made here, before the first token: sequences come, grow and go without another.
	cache, err := newSlots(dev, m.config, kind, o.batch, o.room)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.close()) }()

	var queue []request
	for i, prompt := range o.prompts {
		queue = append(queue, request{prompt: prompt, tokens: o.tokens, seed: o.seed + uint64(i)})
	}
	start := time.Now()
	texts, steps, err := m.generate(ctx, cache, o.batch, o.by, queue)
	if err != nil {
		return err
	}
	took, said := time.Since(start), 0
	for i, text := range texts {
		fmt.Fprintf(out, "── %d\n%s\n", i+1, text)
		said += len([]rune(text)) - len([]rune(o.prompts[i]))
	}
	fmt.Fprintf(out, "── %d characters in %d passes, %.0f a second\n", said, steps, float64(said)/took.Seconds())
	return nil
}

func (o *options) check() error {
	switch {
	case len(o.prompts) == 0:
		return errors.New("no -prompt")
	case o.tokens < 0:
		return fmt.Errorf("-tokens %d: must be at least 0", o.tokens)
	case !(o.by.temperature >= 0):
		return fmt.Errorf("-temperature %g: must be at least 0", o.by.temperature)
	case o.by.topK < 0:
		return fmt.Errorf("-top-k %d: must be at least 0", o.by.topK)
	case o.batch < 1:
		return fmt.Errorf("-batch %d: must be at least 1", o.batch)
	case o.room < 1:
		return fmt.Errorf("-room %d: must be at least 1", o.room)
	}
	for i, prompt := range o.prompts {
		if n := len([]rune(prompt)) + o.tokens; n > o.room {
			return fmt.Errorf("prompt %d and -tokens are %d characters: -room %d is too little", i+1, n, o.room)
		}
	}
	return nil
}

// model reads the weights.
func (o *options) model() (*model, error) {
	if o.file == "" {
		return unmarshal(weights)
	}
	file, err := os.ReadFile(o.file)
	if err != nil {
		return nil, err
	}
	return unmarshal(file)
}

// learnWeights trains the model and writes its file.
func learnWeights(ctx context.Context, out io.Writer, dev *flash.Device, file string) error {
	if file == "" {
		file = trained
	}
	m, _, err := train(ctx, out, dev, usualTraining)
	if err != nil {
		return err
	}
	bytes, err := m.marshal()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d bytes\n", file, len(bytes))
	return os.WriteFile(file, bytes, 0o644)
}
