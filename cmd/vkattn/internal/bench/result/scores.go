package result

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// What cases do with their scores. Files spell it as the flags do: a name, or a name with a number, "softcap=30".

// T5's relative positions, as the model has them.
const (
	t5Buckets  = 32
	t5Distance = 128
)

// ParseScore reads a score function: alibi, t5, softcap=NUMBER, or none, which is "" in files.
func ParseScore(s string) (string, error) {
	name, number, given := strings.Cut(strings.ToLower(strings.TrimSpace(s)), "=")
	switch name {
	case "", "none":
		if !given {
			return "", nil
		}
	case "alibi", "t5":
		if !given {
			return name, nil
		}
	case "softcap":
		if v, err := strconv.ParseFloat(number, 64); err == nil && float32(v) > 0 && !math.IsInf(float64(float32(v)), 0) {
			return fmt.Sprintf("softcap=%g", v), nil
		}
	}
	return "", fmt.Errorf("score %q: it must be none, alibi, t5 or softcap=C with a cap above 0, such as softcap=30", s)
}

// ScoreOf is the score function of heads first, first+1, … up to n of them: all for kernels, one for a reference of a single head.
func (c Case) ScoreOf(first, n int) score.Function {
	name, number, _ := strings.Cut(c.Score, "=")
	switch name {
	case "alibi":
		return score.ALiBi(alibiSlopes(c.H)[first : first+n])
	case "softcap":
		limit, _ := strconv.ParseFloat(number, 64) // ParseScore has read it
		return score.Softcap(limit)
	case "t5":
		all := NewStream(ref.F32, InputSeed).Floats(0, t5Buckets*c.H) // [buckets, H]
		own := make([]float32, 0, t5Buckets*n)
		for b := range t5Buckets {
			own = append(own, all[b*c.H+first:b*c.H+first+n]...)
		}
		return score.RelativeBias(score.Table(own, t5Buckets, n), score.T5Bucket(!c.Causal, t5Buckets, t5Distance))
	}
	return score.Function{}
}

// alibiSlopes are those of the paper (Press, Smith and Lewis, 2022, section 3) for any number of heads, as its authors' program has
// them: 2^(−8·(h+1)/n) for a power of two n, and for other numbers those of the power of two below, followed by every second one
// of twice that power.
func alibiSlopes(heads int) []float32 {
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	out := make([]float32, 0, heads)
	for h := range n {
		out = append(out, float32(math.Exp2(-8*float64(h+1)/float64(n))))
	}
	for h := 0; len(out) < heads; h += 2 {
		out = append(out, float32(math.Exp2(-8*float64(h+1)/float64(2*n))))
	}
	return out
}

// biases are the shapes of biases by name: which of [B, H, Nq, Nk] are the problem's own. Over the others it is broadcast.
var biases = []struct {
	name  string
	own   [4]bool
	about string
}{
	{"full", [4]bool{true, true, true, true}, "[B,H,Nq,Nk]"},
	{"heads", [4]bool{false, true, true, true}, "[1,H,Nq,Nk]"},
	{"batch", [4]bool{true, false, true, true}, "[B,1,Nq,Nk]"},
	{"pairs", [4]bool{false, false, true, true}, "[1,1,Nq,Nk]"},
	{"keys", [4]bool{true, false, false, true}, "[B,1,1,Nk]"},
}

// biasUsage lists them for help.
func biasUsage() string {
	text := "`list` of biases that are added to scores, of the problem's type, by the shape that is broadcast: none"
	for _, b := range biases {
		text += fmt.Sprintf(", %s %s", b.name, b.about)
	}
	return text
}

// ParseBias reads the shape of a bias, or none, which is "" in files.
func ParseBias(s string) (string, error) {
	var names []string
	for _, b := range biases {
		names = append(names, b.name)
	}
	return parseName("bias", s, names)
}

// BiasShape is [Batch, Heads, Queries, Keys] of a bias; zeros where there is none.
func (c Case) BiasShape() (shape [4]int) {
	for _, b := range biases {
		if b.name != c.Bias {
			continue
		}
		for i, n := range [4]int{c.B, c.H, c.Nq, c.N} {
			if shape[i] = 1; b.own[i] {
				shape[i] = n
			}
		}
	}
	return shape
}

// bias describes it for the library.
func (c Case) bias(dtype flash.DType) flash.PerScore {
	if c.Bias == "" {
		return flash.PerScore{}
	}
	s := c.BiasShape()
	return flash.PerScore{DType: dtype, Batch: s[0], Heads: s[1], Queries: s[2], Keys: s[3]}
}

// plain is the case without what it does with its scores, and of where rows lie and how, which is what the cost of either is told against.
// The causal order stays.
func (c Case) plain() Case {
	c.Score, c.Bias, c.Mask, c.Sinks, c.MaxLogit, c.Window = "", "", "", false, false, 0
	c.Listed, c.Packed, c.Used, c.Page, c.Cache, c.Latent = 0, "", "", 0, "", false
	return c
}

// Plain is the same case with plain scores, as a batch of tensors of one type; false: it is that itself.
func (c Case) Plain() (Case, bool) { return c.plain(), c.plain() != c }
