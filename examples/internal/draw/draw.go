// Package draw draws tokens from the logits of a language model, for the examples that write text.
package draw

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// By is how a token is drawn from the logits x: one of the TopK likeliest, with probability in proportion to exp(x/Temperature).
type By struct {
	Temperature float64 // 0: the likeliest token, always
	TopK        int     // 0: all of them
}

// Flags makes flags of it, whose defaults are what it is, for tokens that the example calls so.
func (by *By) Flags(tokens string) {
	flag.Float64Var(&by.Temperature, "temperature", by.Temperature,
		fmt.Sprintf("how far from the likeliest of the %s it strays; 0: not at all", tokens))
	flag.IntVar(&by.TopK, "top-k", by.TopK, fmt.Sprintf("draw from the likeliest k %s only; 0: from all", tokens))
}

// Check says which of its flags breaks a rule: the temperature and k must be at least 0.
func (by By) Check() error {
	switch {
	case !(by.Temperature >= 0): // nor NaN
		return fmt.Errorf("-temperature %g: must be at least 0", by.Temperature)
	case by.TopK < 0:
		return fmt.Errorf("-top-k %d: must be at least 0", by.TopK)
	}
	return nil
}

// Sampler draws the tokens of one sequence. It has a generator of its own, so that what it draws depends on its seed and on the logits
// alone.
type Sampler struct {
	by    By
	rng   *rand.Rand
	order []int
}

// NewSampler makes the sampler of a sequence.
func NewSampler(by By, seed uint64) *Sampler {
	return &Sampler{by: by, rng: rand.New(rand.NewPCG(seed, 0))}
}

// Token draws one from the logits of all tokens, of which there is at least one.
func (s *Sampler) Token(logits []float32) int {
	if s.by.Temperature == 0 {
		return Likeliest(logits)
	}
	s.order = s.order[:0]
	for id := range logits {
		s.order = append(s.order, id)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	if s.by.TopK > 0 && s.by.TopK < len(s.order) {
		s.order = s.order[:s.by.TopK]
	}
	weights, total := make([]float64, len(s.order)), 0.0
	for i, id := range s.order {
		weights[i] = math.Exp(float64(logits[id]-logits[s.order[0]]) / s.by.Temperature)
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

// Likeliest is the token of the largest logit, the first of equals.
func Likeliest(logits []float32) int {
	best := 0
	for id, x := range logits {
		if x > logits[best] {
			best = id
		}
	}
	return best
}
