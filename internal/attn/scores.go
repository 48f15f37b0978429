package attn

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/flash/score"
)

// PerScore describes a tensor [batch, heads, queries, keys] that goes with the scores of a problem: each of its lengths is the problem's
// own or 1, which stands for all. The zero value is no such tensor.
type PerScore struct {
	In    bool
	DType DType
	Own   [4]bool // which lengths are the problem's
}

// None says that there is no such tensor.
func (s PerScore) None() bool { return !s.In }

// Shape is its shape beside a problem; zero where there is none.
func (s PerScore) Shape(p *Problem) (shape [4]int) {
	if !s.In {
		return shape
	}
	for i, n := range [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen} {
		shape[i] = 1
		if s.Own[i] {
			shape[i] = n
		}
	}
	return shape
}

// BiasShape and BoolMaskShape are the shapes of the bias and the mask of scores; SinksShape is that of the sinks, [1, 1, 1, Heads].
func (p *Problem) BiasShape() [4]int     { return p.Bias.Shape(p) }
func (p *Problem) BoolMaskShape() [4]int { return p.BoolMask.Shape(p) }
func (p *Problem) SinksShape() [4]int    { return [4]int{1, 1, 1, p.Heads} }

// MaxLogitShape is the shape of the largest scores of heads, [1, 1, Batch, Heads].
func (p *Problem) MaxLogitShape() [4]int { return [4]int{1, 1, p.Batch, p.Heads} }

// LengthsShape is the shape of lengths of keys and of queries, [1, 1, 1, Batch].
func (p *Problem) LengthsShape() [4]int { return [4]int{1, 1, 1, p.Batch} }

func (p *Problem) hasSinks() bool        { return p.Sinks }
func (p *Problem) hasMaxLogit() bool     { return p.MaxLogit }
func (p *Problem) hasKeyLengths() bool   { return p.KeyLengths }
func (p *Problem) hasQueryLengths() bool { return p.QueryLengths }

// Code is the problem's functions as kernels take them; FirstBinding is the kernel's to set.
func (p *Problem) Code() score.Code { return score.Code{Score: p.Score, Mask: p.Sees} }

// ofScores describes what goes with the scores, for people.
func (p *Problem) ofScores() (text string) {
	add := func(in bool, format string, a ...any) {
		if in {
			text += " " + fmt.Sprintf(format, a...)
		}
	}
	add(!p.Score.Identity(), "scores %v", p.Score)
	add(!p.Sees.Everything(), "seen %v", p.Sees)
	for i := range ForwardOperands {
		if o := &ForwardOperands[i]; o.PerScore != nil {
			add(o.In(p), "%s %v %v", strings.ToLower(o.Name), o.Shape(p), o.DType(p))
		}
	}
	add(p.Sinks, "sinks")
	add(p.MaxLogit, "max logit")
	add(p.KeyLengths, "key lengths")
	add(p.QueryLengths, "query lengths")
	return text
}
