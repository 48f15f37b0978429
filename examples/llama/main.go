// Command llama runs a language model from a GGUF file, as llama.cpp has them, or a folder as Hugging Face has them: attention, its cache
// and rotary position embedding are this library's, on the GPU; all else is plain Go.
//
//	go run ./examples/llama -model tinyllama.Q8_0.gguf -prompt "The sea is" -tokens 100 -temperature 0.7 -seed 1
//	go run ./examples/llama -model tinyllama.Q8_0.gguf -prompt "The sea is" -cache q8_0
//	go run ./examples/llama -model Llama-3.2-1B -ids 128000,791,9581,374
//
// Without such a file, a tiny model of random numbers shows that all is in its place, not sense:
//
//	go run ./examples/llama -tiny tiny.gguf && go run ./examples/llama -model tiny.gguf
//
// What each head looks at while the model reads a prompt can be seen:
//
//	go run ./examples/llama -model tinyllama.Q8_0.gguf -prompt "…" -heads heads.safetensors && vkattn view heads.safetensors
//
// # What it takes
//
// Architectures llama (Llama 1 to 3, Mistral, TinyLlama), qwen2, qwen3 and gemma2; weights of F32, F16, BF16, Q8_0, Q6_K, Q5_K,
// Q4_K, Q5_1, Q5_0, Q4_1 and Q4_0. From the metadata it takes the numbers of heads and key heads, dimensions of keys and values, base,
// scale and factors of rotary embedding, a sliding window, caps of scores and logits. Tokens are pieces with scores (SentencePiece), or
// byte pairs as GPT-2, Llama 3 and Qwen2 cut them; tokens of other models can be given by number (-ids). Rows of queries' and keys'
// weights in files of the architecture llama are permuted, so that neighbouring columns are turned together; the others turn columns
// half a head apart. The window of a file of the architecture llama holds for all layers, of gemma2 for every other one.
//
// It refuses, with an error that says why: other types of weights, networks of experts, a model in several GGUF files, YaRN, layers that
// differ in their heads, files with tensors that it does not know, and files that are damaged.
//
// Folders have config.json and model.safetensors, or the files that model.safetensors.index.json names, of the types llama, mistral,
// qwen2 and qwen3, in F32, F16 and BF16, with frequencies scaled as Llama 3 does or linearly. Their tokens are not read: prompts are
// numbers (-ids), and so is what is said.
//
// # What is fast
//
// Products with weights are plain Go on all cores, without vector instructions, and take nearly all of the time: on two cores a model of a
// billion parameters in Q8_0 says about a token a second, and reads a prompt hardly faster. Attention grows with the text, they do not.
//
// model.go is the transformer, cache.go attention over pages, config.go what a file's metadata means, vocabulary.go tokens, heads.go the
// file for the viewer, tiny.go the tiny model; internal/gguf reads files, internal/folder folders.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/examples/llama/internal/folder"
	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
	"github.com/vkattn/vkattn/flash"
)

// options are the command's.
type options struct {
	model  string
	prompt string
	ids    string // tokens in place of a prompt
	tokens int
	by     draw.By
	seed   uint64
	cache  cacheOptions
	heads  string
}

func main() {
	var o options
	flag.StringVar(&o.model, "model", "", "a GGUF file, or a folder with config.json and model.safetensors")
	flag.StringVar(&o.prompt, "prompt", "Once upon a time", "a text to continue; special tokens may stand in it, and \\n for a new line")
	flag.StringVar(&o.ids, "ids", "", "numbers of tokens in place of -prompt, with commas")
	flag.IntVar(&o.tokens, "tokens", 64, "tokens to add at most; the model's end of text ends it sooner")
	o.by.TopK = 40
	o.by.Flags("tokens")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is drawn: the same seed gives the same text")
	flag.StringVar(&o.cache.as, "cache", "f16", "type of keys and values in the cache: "+storeNames())
	flag.IntVar(&o.cache.room, "room", 0, "tokens of the text, prompt and all, that there is room for; 0: those of prompt and -tokens")
	flag.IntVar(&o.cache.page, "page", 16, "tokens of a page of the cache, a power of two up to 512")
	flag.IntVar(&o.cache.chunk, "chunk", 128, "tokens of the prompt that are taken in at once")
	flag.StringVar(&o.heads, "heads", "", "a file for `vkattn view`: queries and keys of all heads over the prompt; nothing is generated")
	tiny := flag.String("tiny", "", "write a tiny model of random numbers to this file, and do nothing else")
	flag.Parse()
	o.prompt = strings.ReplaceAll(o.prompt, `\n`, "\n")
	do := func() error {
		return onDevice(func(dev *flash.Device) error { return run(context.Background(), os.Stdout, dev, o) })
	}
	if *tiny != "" {
		do = func() error { return writeTiny(*tiny) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "llama:", err)
		os.Exit(1)
	}
}

func writeTiny(file string) error {
	var b bytes.Buffer
	if err := tinyModel("llama").write(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func onDevice(do func(*flash.Device) error) (err error) {
	dev, err := flash.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return do(dev)
}

func (o *options) check() error {
	switch {
	case o.model == "":
		return errors.New("no -model: a GGUF file or a folder; -tiny writes one to try")
	case o.tokens < 0 || o.tokens > most:
		return fmt.Errorf("-tokens %d: must be from 0 to %d", o.tokens, most)
	case o.by.Check() != nil:
		return o.by.Check()
	case o.cache.room < 0:
		return fmt.Errorf("-room %d: must be at least 0", o.cache.room)
	case o.cache.page < 1:
		return fmt.Errorf("-page %d: must be at least 1", o.cache.page)
	case o.cache.chunk < 1:
		return fmt.Errorf("-chunk %d: must be at least 1", o.cache.chunk)
	}
	return nil
}

// run continues the prompt and prints it.
func run(ctx context.Context, out io.Writer, dev *flash.Device, o options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	f, closer, err := openFile(o.model)
	if err != nil {
		return fmt.Errorf("%s: %w", o.model, err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	m, err := readModel(f)
	if err != nil {
		return fmt.Errorf("%s: %w", o.model, err)
	}
	v, prompt, err := o.read(f)
	if err != nil {
		return err
	}
	if o.cache.room == 0 {
		o.cache.room = len(prompt) + o.tokens
	}
	if need := len(prompt) + o.tokens; need > o.cache.room {
		return fmt.Errorf("prompt and -tokens are %d tokens, and -room is %d", need, o.cache.room)
	}
	c, err := newCache(dev, &m.config, o.cache)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	s := &session{model: m, cache: c, vocabulary: v}
	s.describe(out, len(prompt)+o.tokens)
	if o.heads != "" {
		if err := s.writeHeads(ctx, dev, prompt, o.heads); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d layers over %d tokens; vkattn view shows them\n", o.heads, m.layers, len(prompt))
		if m.softcap > 0 {
			fmt.Fprintf(out, "scores of this model are capped at ±%g: the viewer has a slider for that\n", m.softcap)
		}
		return nil
	}
	return s.continued(ctx, out, prompt, o.tokens, draw.NewSampler(o.by, o.seed))
}

// openFile opens a GGUF file, or a folder of Hugging Face's.
func openFile(path string) (*gguf.File, io.Closer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		m, err := folder.Read(path)
		if err != nil {
			return nil, nil, err
		}
		return m.File, m, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := gguf.Read(file, info.Size())
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return f, file, nil
}

// read gives the file's tokens and the prompt's. A file whose tokens cannot be read is good for -ids.
func (o *options) read(f *gguf.File) (v *vocabulary, prompt []int, err error) {
	v, err = readVocabulary(f)
	if o.ids == "" {
		if err == nil {
			prompt, err = v.encode(o.prompt)
		}
		if err == nil && len(prompt) == 0 {
			err = errors.New("it has no token to go on from")
		}
		if errors.Is(err, gguf.ErrMissing) {
			err = fmt.Errorf("%w: give tokens by -ids", err)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("-prompt: %w", err)
		}
		return v, prompt, nil
	}
	if err != nil {
		v = nil // tokens are printed as numbers
	}
	for _, s := range strings.Split(o.ids, ",") {
		id, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return nil, nil, fmt.Errorf("-ids: %q is no number", s)
		}
		prompt = append(prompt, id)
	}
	return v, prompt, nil
}

// session is a text that is being written.
type session struct {
	*model
	cache      *cache
	vocabulary *vocabulary
}

// takeIn takes tokens in, a chunk at a time, and gives the logits after the last, or with all those after each.
func (s *session) takeIn(ctx context.Context, a attention, tokens []int, all bool) (logits []float32, err error) {
	for at := 0; at < len(tokens); at += s.cache.prefill.tokens {
		chunk := tokens[at:min(at+s.cache.prefill.tokens, len(tokens))]
		if err := s.cache.begin(len(chunk)); err != nil {
			return nil, err
		}
		some, err := s.forward(ctx, a, chunk, all)
		if err != nil {
			return nil, err
		}
		if !all {
			logits = logits[:0]
		}
		logits = append(logits, some...)
	}
	return logits, nil
}

// generate continues tokens, and says each new one.
func (s *session) generate(ctx context.Context, logits []float32, n int, by *draw.Sampler, say func(id int)) error {
	for range n {
		id := by.Token(logits)
		if s.vocabulary.last(id) {
			return nil
		}
		say(id)
		var err error
		if logits, err = s.takeIn(ctx, s.cache, []int{id}, false); err != nil {
			return err
		}
	}
	return nil
}

// continued prints a prompt, what follows, and how long it took.
func (s *session) continued(ctx context.Context, out io.Writer, prompt []int, n int, by *draw.Sampler) error {
	start := time.Now()
	logits, err := s.takeIn(ctx, s.cache, prompt, false)
	if err != nil {
		return err
	}
	took := time.Since(start)
	for _, id := range prompt {
		io.WriteString(out, s.vocabulary.decode(id))
	}
	said := 0
	start = time.Now()
	err = s.generate(ctx, logits, n, by, func(id int) {
		said++
		io.WriteString(out, s.vocabulary.decode(id))
	})
	rate := func(n int, t time.Duration) float64 { return float64(n) / t.Seconds() }
	fmt.Fprintf(out, "\n── prompt: %d tokens, %.1f a second\n", len(prompt), rate(len(prompt), took))
	if said > 0 {
		fmt.Fprintf(out, "── generated: %d tokens, %.1f a second\n", said, rate(said, time.Since(start)))
	}
	return err
}

// describe says what the model is.
func (s *session) describe(out io.Writer, tokens int) {
	fmt.Fprintf(out, "── %s: %d layers of width %d, %d heads of %d on %d key heads, %d tokens to choose from\n", s.arch, s.layers, s.width,
		s.heads, s.dim, s.keyHeads, s.model.vocabulary)
	if s.window > 0 {
		fmt.Fprintf(out, "   a window of %d tokens in layers 0, %d and so on\n", s.window, s.every)
	}
	if s.softcap > 0 {
		fmt.Fprintf(out, "   scores are capped at ±%g\n", s.softcap)
	}
	fmt.Fprintf(out, "   cache of %s: %d bytes a token\n", s.cache.as, s.cache.bytes())
	if tokens > s.context {
		fmt.Fprintf(out, "   the model was trained with texts of up to %d tokens, and this one may get %d\n", s.context, tokens)
	}
}
