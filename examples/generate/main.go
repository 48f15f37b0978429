// Command generate writes verse with a small character-level transformer, the way language models are served: keys and values of what was
// said stay on the device, in pages that texts take when they reach them, and all texts that are being written go forward together, one
// character of each in a pass.
//
//	go run ./examples/generate -prompt "Shall I compare" -prompt "My mistress' eyes" -tokens 200 -seed 1 -temperature 0.8
//
// With -samples each prompt is continued several times from one copy of its keys and values, with -cache q8_0 those take about half the
// memory, and with too few -pages texts wait for each other:
//
//	go run ./examples/generate -prompt "Love is not" -samples 8 -batch 8 -cache q8_0 -pages 24
//
// With -keep a new character attends to that many keys only in layers that see all: the latest ones, and others that an index finds:
//
//	go run ./examples/generate -tokens 400 -keep 32
//
// The model has rotary position embedding, grouped queries, and a sliding window in every other layer. It was trained by this program too:
//
//	go run ./examples/generate -train
//
// What each head looks at can be seen:
//
//	go run ./examples/generate -heads heads.safetensors -keep 32 && vkattn view heads.safetensors
//
// Attention, forward and backward, rotation and cache are this library's, on the GPU: whole.go has whole sequences with gradients, for
// training, cache.go those in pages, lists.go which keys of them count. The rest is plain Go: model.go the transformer, train.go its
// training, generate.go what runs when.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/flash"
)

// weights are those that -train made.
//
//go:embed testdata/model.safetensors
var weights []byte

const usualPrompt = "Shall I compare thee to a summer's day?\n"

const trained = "examples/generate/testdata/model.safetensors"

// options are the command's.
type options struct {
	prompts []string
	samples int // texts that go on from each prompt
	tokens  int
	seed    uint64
	by      draw.By
	cache   cacheOptions // but for types
	kind    string
	file    string
	heads   string // a file to write heads to, in place of verse
}

// kinds are the types of caches by name: two that keys and values are computed in, and those that they are quantised to.
var kinds = func() map[string]cacheOptions {
	all := map[string]cacheOptions{"f32": {dtype: flash.F32}, "f16": {dtype: flash.F16}}
	for _, t := range []flash.DType{flash.Q8_0, flash.Q4_0, flash.Q4_1, flash.Q5_0, flash.Q5_1, flash.IQ4_NL, flash.F8E4M3, flash.F8E5M2} {
		all[t.String()] = cacheOptions{dtype: flash.F16, stored: t}
	}
	return all
}()

// kindNames lists them.
func kindNames() string { return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") }

func main() {
	var o options
	flag.Func("prompt", fmt.Sprintf("a text to continue; may be given several times; none: %q", usualPrompt), func(s string) error {
		o.prompts = append(o.prompts, strings.ReplaceAll(s, `\n`, "\n"))
		return nil
	})
	flag.IntVar(&o.samples, "samples", 1, "texts that go on from each prompt, which is taken in once and whose pages they share")
	flag.IntVar(&o.tokens, "tokens", 200, "characters to add to each prompt, at most; a blank line ends a text sooner")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is drawn: the same seed gives the same texts")
	o.by.Temperature = 0.8
	o.by.Flags("characters")
	flag.IntVar(&o.cache.batch, "batch", 4, "texts that are written at the same time; the others wait in a queue")
	flag.IntVar(&o.cache.room, "room", 512, "characters of the longest text that there can be, prompt and all; takes next to no memory "+
		"by itself")
	flag.IntVar(&o.cache.page, "page", 16, "characters of a page of the cache, a power of two up to 512")
	flag.IntVar(&o.cache.pages, "pages", 64, "pages that all texts share in layers that see all before; where they run out, texts wait "+
		"for each other")
	flag.IntVar(&o.cache.keep, "keep", 0, "keys that a new character attends to in layers that see all before: the latest quarter, "+
		"and what an index finds; 0: all")
	flag.StringVar(&o.kind, "cache", "f16", "type of keys and values in the cache: "+kindNames()+"; all but f16 and f32 are quantised")
	flag.StringVar(&o.file, "model", "", "a file of weights; none: those that come with the example")
	flag.StringVar(&o.heads, "heads", "", "a file for `vkattn view`: queries and keys of all heads over the first prompt, or a sonnet; "+
		"nothing is generated")
	learn := flag.Bool("train", false, "train the model, and write its weights to -model, or to "+trained)
	flag.Parse()
	if len(o.prompts) == 0 && o.heads != "" {
		o.prompts = []string{firstSonnet()}
	} else if len(o.prompts) == 0 {
		o.prompts = []string{usualPrompt}
	}

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
	o.cache.dtype, o.cache.stored = kinds[o.kind].dtype, kinds[o.kind].stored
	if o.heads != "" {
		return writeHeads(ctx, out, dev, m, o.prompts[0], o.heads, o.cache.keep)
	}
	// All plans are made here, before the first character: texts come, grow and go without another.
	c, err := newCache(dev, m.config, o.cache)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()

	var requests []request
	for _, prompt := range o.prompts {
		for range o.samples {
			requests = append(requests, request{prompt: prompt, tokens: o.tokens, seed: o.seed + uint64(len(requests))})
		}
	}
	start := time.Now()
	g, err := m.generate(ctx, c, o.by, requests)
	if err != nil {
		return err
	}
	took, said := time.Since(start), 0
	for i, text := range g.texts {
		title := fmt.Sprint(i/o.samples + 1)
		if o.samples > 1 {
			title += fmt.Sprint(".", i%o.samples+1)
		}
		fmt.Fprintf(out, "── %s\n%s\n", title, text)
		said += len([]rune(text)) - len([]rune(requests[i].prompt))
	}
	fmt.Fprintf(out, "── %d characters in %d passes, %.0f a second\n", said, g.passes, float64(said)/took.Seconds())
	c.report(out, o.kind)
	if g.gaveWay > 0 {
		fmt.Fprintf(out, "   pages ran out: texts gave way to others %d times and began anew\n", g.gaveWay)
	}
	return nil
}

// report says what keys and values of the type took.
func (c *cache) report(out io.Writer, kind string) {
	bytes := 0
	for _, g := range c.groups {
		bytes += c.bytes(g)
	}
	fmt.Fprintf(out, "   cache of %s: %d bytes a character in %d layers\n", kind, bytes, c.layers)
	for _, g := range c.groups {
		see := "all"
		if g.window > 0 {
			see = fmt.Sprintf("%d characters", g.window)
		} else if c.keep > 0 {
			see = fmt.Sprintf("all, and attend to %d of them", c.keep)
		}
		fmt.Fprintf(out, "   layers that see %s, %d: at most %d of %d pages in use, %d bytes\n",
			see, g.layers, g.most, c.pagesOf(g), g.most*c.page*c.bytes(g))
	}
}

func (o *options) check() error {
	switch {
	case len(o.prompts) == 0:
		return errors.New("no -prompt")
	case o.tokens < 0:
		return fmt.Errorf("-tokens %d: must be at least 0", o.tokens)
	case o.by.Check() != nil:
		return o.by.Check()
	case o.cache.keep < 0:
		return fmt.Errorf("-keep %d: must be at least 0", o.cache.keep)
	}
	if _, known := kinds[o.kind]; !known {
		return fmt.Errorf("-cache %q: must be one of %s", o.kind, kindNames())
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"samples", o.samples}, {"batch", o.cache.batch}, {"room", o.cache.room}, {"page", o.cache.page}, {"pages", o.cache.pages}} {
		if f.value < 1 {
			return fmt.Errorf("-%s %d: must be at least 1", f.name, f.value)
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
