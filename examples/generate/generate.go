package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// request is a text to be continued.
type request struct {
	prompt string
	tokens int    // how many more at the most; a blank line, which ends a sonnet, ends it sooner
	seed   uint64 // the same request gives the same text, whatever runs beside it
}

// sequence is a request that is being worked on.
type sequence struct {
	index  int // of its request
	cached int // its number in the cache
	said   []int
	left   int
	draw   *sampler
}

// generate continues all texts, as many at a time as the batch takes, and gives them in the order of the requests; steps are the passes over all
// running sequences that it took.
//
// This is continuous batching: a sequence that ends makes room at once for the next one in the queue, whose prompt is taken in while the others wait,
// and which then goes on with them, one token of each in every pass. (Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative
// Models", 2022.)
func (m *model) generate(ctx context.Context, cache kvCache, batch int, by sampling, queue []request) (texts []string, steps int, err error) {
	texts = make([]string, len(queue))
	var running []*sequence
	for next := 0; next < len(queue) || len(running) > 0; {
		for len(running) < batch && next < len(queue) {
			s, err := m.start(ctx, cache, by, queue[next], next)
			if err != nil {
				return nil, 0, fmt.Errorf("prompt %d: %w", next, err)
			}
			running = append(running, s)
			next++
		}
		running = slices.DeleteFunc(running, func(s *sequence) bool {
			if s.left > 0 && !strings.HasSuffix(m.decode(s.said[max(len(s.said)-2, 0):]), "\n\n") {
				return false
			}
			texts[s.index] = m.decode(s.said)
			cache.remove(s.cached)
			return true
		})
		if len(running) == 0 {
			continue
		}
		if err := m.advance(ctx, cache, running); err != nil {
			return nil, 0, err
		}
		steps++
	}
	return texts, steps, nil
}

// start takes a prompt into the cache, a chunk at a time, and draws the first character after it.
//
// A prompt is taken in by itself, so that it is cut into the same chunks, and goes through the same kernels, in any company: then the same numbers come
// out to the last bit, and the same text. A server would rather take in prompts beside the tokens of those that run.
func (m *model) start(ctx context.Context, cache kvCache, by sampling, r request, index int) (*sequence, error) {
	prompt, err := m.encode(r.prompt)
	if err != nil {
		return nil, err
	}
	if len(prompt) == 0 {
		return nil, fmt.Errorf("it is empty: there must be a character to go on from")
	}
	s := &sequence{index: index, left: r.tokens, draw: newSampler(by, r.seed)}
	if s.cached, err = cache.add(); err != nil {
		return nil, err
	}
	for tokens := range slices.Chunk(prompt, chunk) {
		if err := cache.begin(ctx, []part{{s.cached, len(tokens)}}); err != nil {
			return nil, err
		}
		p, err := m.forward(ctx, cache, tokens)
		if err != nil {
			return nil, err
		}
		if s.said = append(s.said, tokens...); len(s.said) == len(prompt) {
			s.take(m.row(p, len(tokens)-1))
		}
	}
	return s, nil
}

// advance adds a character to each sequence: one pass for all of them.
func (m *model) advance(ctx context.Context, cache kvCache, running []*sequence) error {
	var batch []part
	var latest []int
	for _, s := range running {
		batch, latest = append(batch, part{s.cached, 1}), append(latest, s.said[len(s.said)-1])
	}
	if err := cache.begin(ctx, batch); err != nil {
		return err
	}
	p, err := m.forward(ctx, cache, latest)
	if err != nil {
		return err
	}
	for i, s := range running {
		s.take(m.row(p, i))
	}
	return nil
}

// take draws the next character.
func (s *sequence) take(logits []float32) {
	if s.left > 0 {
		s.said = append(s.said, s.draw.token(logits))
		s.left--
	}
}
