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

type sampler struct {
	sampling
	rng *rand.Rand
}

func newSampler(by sampling, seed uint64) *sampler {
	return &sampler{by, rand.New(rand.NewPCG(seed, 0))}
}

func (s *sampler) token(logits []float32) int {
	if s.temperature == 0 {
		return likeliest(logits)
	}
	order := make([]int, len(logits))
	for id := range order {
		order[id] = id
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	if s.topK > 0 && s.topK < len(order) {
		order = order[:s.topK]
	}
	weights, total := make([]float64, len(order)), 0.0
	for i, id := range order {
		weights[i] = math.Exp(float64(logits[id]-logits[order[0]]) / s.temperature)
		total += weights[i]
	}
	at := s.rng.Float64() * total
	for i, w := range weights {
		if at -= w; at < 0 {
			return order[i]
		}
	}
	return order[0] // rounding
}

// likeliest is the token of the largest logit, the first of equals.
func likeliest(logits []float32) int {
	best := 0
	for id, x := range logits {
		if x > logits[best] {
			best = id
		}
	}
	return best
}
