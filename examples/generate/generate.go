package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/flash/kvcache"
)

// request is a text to be continued.
type request struct {
	prompt string
	tokens int    // how many more at the most; a blank line, which ends a sonnet, ends it sooner
	seed   uint64 // the same request gives the same text, whatever runs beside it
}

// text is a request that waits or is being worked on.
type text struct {
	request
	index  int   // of the request
	given  []int // the prompt
	said   []int // that, and what came after it
	draw   *draw.Sampler
	cached sequence
	had    int // characters in the cache when it gave way to others, and began to wait again
}

// prompt is a prompt in the cache. The texts that go on from it are forks: it is taken in once, and its pages are there once.
type prompt struct {
	tokens []int
	taken  int
	cached sequence
	logits []float32 // of the character after it
}

// generator continues texts.
//
// This is continuous batching: a text that ends makes room at once for the next one in the queue, which goes on with the others, one
// character of each in every pass, as soon as its prompt is taken in (Yu et al., "Orca: A Distributed Serving System for Transformer-Based
// Generative Models", 2022). A prompt is taken in a chunk at a time between those passes, so that a long one does not hold the others up
// (Agrawal et al., "SARATHI: Efficient LLM Inference by Piggybacking Decodes with Chunked Prefills", 2023).
//
// Nobody knows how long a text gets. So the next one begins when there are pages for its prompt, not for all that it could become, and
// where pages run out the one that began last gives its own back and waits again (Kwon et al., "Efficient Memory Management for Large
// Language Model Serving with PagedAttention", 2023, section 4.5). It begins anew then, and says the same: what it draws depends on its
// seed and its prompt alone.
type generator struct {
	*model
	cache   *cache
	by      draw.By
	queue   []*text
	running []*text // the one that began first comes first
	prompt  *prompt // the latest
	texts   []string
	passes  int // over all that run
	chunks  int // of prompts
	gaveWay int // how often a text gave way
}

// generate continues all texts and gives them in the order of the requests.
func (m *model) generate(ctx context.Context, c *cache, by draw.By, requests []request) (*generator, error) {
	g := &generator{model: m, cache: c, by: by, texts: make([]string, len(requests))}
	for i, r := range requests {
		tokens, err := m.encode(r.prompt)
		if err == nil {
			err = c.check(len(tokens), r.tokens)
		}
		if err != nil {
			return nil, fmt.Errorf("prompt %q: %w", r.prompt, err)
		}
		g.queue = append(g.queue, &text{request: r, index: i, given: tokens})
	}
	for len(g.queue)+len(g.running) > 0 {
		if err := g.step(ctx); err != nil {
			return nil, errors.Join(err, g.end())
		}
	}
	return g, nil
}

// step brings all on by one character, or one chunk of a prompt.
func (g *generator) step(ctx context.Context) error {
	if err := g.admit(); err != nil {
		return err
	}
	if err := g.takeIn(ctx); err != nil {
		return err
	}
	return g.advance(ctx)
}

// check says why a text can never be worked on, even alone.
func (c *cache) check(prompt, tokens int) error {
	n := prompt + tokens
	switch need := c.pagesFor(n); {
	case prompt == 0:
		return errors.New("it is empty: there must be a character to go on from")
	case n > c.room:
		return fmt.Errorf("with -tokens it is %d characters, and -room is %d", n, c.room)
	case c.groups[0].window == 0 && need > c.pages:
		return fmt.Errorf("with -tokens it is %d characters, which take %d pages of %d, and -pages is %d", n, need, c.page, c.pages)
	}
	return nil
}

// admit begins the texts at the head of the queue, as far as there is room for them.
func (g *generator) admit() error {
	for len(g.queue) > 0 && len(g.running) < g.cache.batch {
		next := g.queue[0]
		if g.prompt == nil || !slices.Equal(g.prompt.tokens, next.given) {
			if err := g.forget(); err != nil {
				return err
			}
			if len(g.running) > 0 && !g.cache.fits(max(len(next.given), next.had), len(g.running)) {
				return nil // it waits until others end
			}
			cached, err := g.cache.add()
			if err != nil {
				return err
			}
			g.prompt = &prompt{tokens: next.given, cached: cached}
		}
		if g.prompt.logits == nil {
			return nil // it has to be taken in first
		}
		if err := g.begin(next); err != nil {
			return err
		}
		g.queue = g.queue[1:]
	}
	if g.prompt != nil && (len(g.queue) == 0 || !slices.Equal(g.prompt.tokens, g.queue[0].given)) {
		return g.forget()
	}
	return nil
}

// begin makes a text go on from the prompt.
func (g *generator) begin(t *text) (err error) {
	if t.cached, err = g.cache.fork(g.prompt.cached); err != nil {
		return err
	}
	t.said, t.draw = slices.Clone(t.given), draw.NewSampler(g.by, t.seed)
	g.running = append(g.running, t)
	return g.say(t, g.prompt.logits)
}

// say draws the next character of a text, and ends it where that was the last.
func (g *generator) say(t *text, logits []float32) error {
	if len(t.said) < len(t.given)+t.tokens {
		t.said = append(t.said, t.draw.Token(logits))
	}
	if len(t.said) < len(t.given)+t.tokens && !strings.HasSuffix(g.decode(t.said[max(len(t.said)-2, 0):]), "\n\n") {
		return nil
	}
	g.texts[t.index] = g.decode(t.said)
	g.running = slices.DeleteFunc(g.running, func(r *text) bool { return r == t })
	return g.cache.free(t.cached)
}

// takeIn takes the next chunk of the prompt into the cache.
//
// It does so by itself, not in one pass with what runs, so that prompts are cut into the same chunks, and go through the same kernels, in
// any company: then the same numbers come out to the last bit, and the same text.
func (g *generator) takeIn(ctx context.Context) error {
	p := g.prompt
	if p == nil || p.logits != nil {
		return nil
	}
	tokens := p.tokens[p.taken:min(p.taken+g.cache.prefill.tokens, len(p.tokens))]
	err := g.cache.begin(g.cache.prefill, []part{{p.cached, len(tokens)}})
	if errors.Is(err, kvcache.ErrOutOfPages) && len(g.running) > 0 {
		return nil // it goes on when one of those that run ends; if they need more pages themselves, it gives them its own
	}
	if err != nil {
		return err
	}
	pass, err := g.forward(ctx, g.cache, tokens)
	if err != nil {
		return err
	}
	g.chunks++
	if p.taken += len(tokens); p.taken == len(p.tokens) {
		p.logits = g.row(pass, len(tokens)-1)
	}
	return nil
}

// forget gives the prompt's pages back, but for those that texts share which went on from it.
func (g *generator) forget() error {
	if g.prompt == nil {
		return nil
	}
	p := g.prompt
	g.prompt = nil
	return g.cache.free(p.cached)
}

// advance adds a character to each text that runs: one pass for all of them.
func (g *generator) advance(ctx context.Context) error {
	for len(g.running) > 0 {
		var parts []part
		var latest []int
		for _, t := range g.running {
			parts, latest = append(parts, part{t.cached, 1}), append(latest, t.said[len(t.said)-1])
		}
		err := g.cache.begin(g.cache.decode, parts)
		if errors.Is(err, kvcache.ErrOutOfPages) {
			if err = g.giveWay(err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		p, err := g.forward(ctx, g.cache, latest)
		if err != nil {
			return err
		}
		g.passes++
		for i, t := range slices.Clone(g.running) {
			if err := g.say(t, g.row(p, i)); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// giveWay gives pages back that others need: the prompt's, or all of the text that began last, which waits again.
func (g *generator) giveWay(outOfPages error) error {
	if g.prompt != nil {
		return g.forget()
	}
	last := len(g.running) - 1
	if last == 0 {
		return outOfPages // check has seen that there are enough pages for one
	}
	t := g.running[last]
	g.running, g.queue = g.running[:last], slices.Insert(g.queue, 0, t)
	g.gaveWay++
	t.had = len(t.said)
	return g.cache.free(t.cached)
}

// end leaves the cache empty after an error.
func (g *generator) end() error {
	err := g.forget()
	for _, t := range g.running {
		err = errors.Join(err, g.cache.free(t.cached))
	}
	g.running = nil
	return err
}
