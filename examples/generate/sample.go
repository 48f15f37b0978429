package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// sampling is how a token is drawn from the logits x: one of the topK likeliest, with probability in proportion to exp(x/temperature).
type sampling struct {
	temperature float64 // 0: the likeliest token, always
	topK        int     // 0: all of them
}

// sampler draws the tokens of one sequence. It has a generator of its own, so that what it draws depends on its seed and its logits alone.
type sampler struct {
	sampling
	rng   *rand.Rand
	order []int
}

func newSampler(by sampling, seed uint64) *sampler {
	return &sampler{sampling: by, rng: rand.New(rand.NewPCG(seed, 0))}
}

func (s *sampler) token(logits []float32) int {
	s.order = s.order[:0]
	for id := range logits {
		s.order = append(s.order, id)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	if s.temperature == 0 {
		return s.order[0]
	}
	if s.topK > 0 && s.topK < len(s.order) {
		s.order = s.order[:s.topK]
	}
	weights, total := make([]float64, len(s.order)), 0.0
	for i, id := range s.order {
		weights[i] = math.Exp(float64(logits[id]-logits[s.order[0]]) / s.temperature)
		total += weights[i]
	}
	at := s.rng.Float64() * total
	for i, w := range weights {
		if at -= w; at < 0 {
			return s.order[i]
		}
	}
	return s.order[0] // rounding
}
