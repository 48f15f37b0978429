package flash

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// MaxCaptured is the largest number of tensors that a problem's functions capture, tables included.
const MaxCaptured = kernel.MostCaptured

// Captured are the tensors that a problem's functions capture by name, in the order of Problem.Captures. Each is dense, of type F32 or
// Int32, and of the declared shape with leading ones: a [H] is a tensor of shape [1, 1, 1, H].
type Captured [MaxCaptured]*Tensor

// Captures lists the tensors that the problem's functions capture by name, in the order in which Forward.Captured and Backward.Captured
// take them.
func (p Problem) Captures() []score.Tensor {
	all, err := score.Code{Score: p.ScoreFunction, Mask: p.MaskFunction}.Captures()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, score.Tensor.Table)
}

// captured is a tensor that functions capture, as a plan knows it.
type captured struct {
	name  string
	dtype DType
	shape [4]int
	table *Tensor // the plan's own, of a table; nil: the caller's
	why   error   // it has no gradient
}

// captured lists what the problem's functions capture, with tables in device memory.
func (d *Device) captured(ctx context.Context, p *Problem) (out []captured, err error) {
	all, err := score.Code{Score: p.ScoreFunction, Mask: p.MaskFunction}.Captures()
	defer func() {
		if err != nil {
			err = errors.Join(err, closeTables(out))
		}
	}()
	for _, t := range all {
		c := captured{name: t.Name, dtype: F32, shape: [4]int{1, 1, 1, 1}}
		copy(c.shape[4-len(t.Shape):], t.Shape)
		if t.Type == score.Int32 {
			c.dtype = Int32
		}
		if t.Table() {
			if c.table, err = d.allocate("table of a function", c.dtype, c.shape, attn.Contiguous); err != nil {
				return out, err
			}
			out = append(out, c)
			if err = c.table.UploadBytes(ctx, kernel.TableBytes(t)); err != nil {
				return out, err
			}
			continue
		}
		_, c.why = p.ScoreFunction.Gradient(t.Name)
		out = append(out, c)
	}
	return out, nil
}

// checkCaptures says that its functions capture more than kernels bind, or two tensors of one name.
func (p *Problem) checkCaptures() error {
	captures, err := score.Code{Score: p.ScoreFunction, Mask: p.MaskFunction}.Captures()
	if err != nil {
		return badArgument("Problem.MaskFunction", p.MaskFunction, "%v", err)
	}
	if len(captures) > MaxCaptured {
		return badArgument("Problem.ScoreFunction", p.ScoreFunction, "functions capture %d tensors, at most %d", len(captures), MaxCaptured)
	}
	return nil
}

// withTables puts those that the plan owns behind the tensors that a recording of it keeps.
func (p *Plan) withTables(tensors []*Tensor) []*Tensor {
	for _, c := range p.captured {
		if c.table != nil {
			tensors = append(tensors, c.table)
		}
	}
	return tensors
}

// closeTables frees those that the plan owns.
func closeTables(all []captured) (err error) {
	for _, c := range all {
		err = errors.Join(err, c.table.Close())
	}
	return err
}

// place checks captured tensors and puts them where kernels find them; in the field DCaptured the gradients with respect to them, of which
// each may be left out, and tables have none. It does not allocate unless it fails.
func (given *Captured) place(pass, field string, p *Plan, to *[MaxCaptured]pipeline.Binding) error {
	n, gradients := 0, field == "DCaptured"
	bad := func(t *Tensor, rule string, a ...any) error { return badArgument(pass+"."+field, t, rule, a...) }
	*to = [MaxCaptured]pipeline.Binding{}
	for i := range p.captured {
		c := &p.captured[i]
		if c.table != nil {
			if !gradients {
				to[i] = c.table.bound.Binding
			}
			continue
		}
		t := given[n]
		n++
		if t == nil && gradients {
			continue
		}
		if t == nil || t.mem == nil || t.mem.closed.Load() || t.dev.usable() != nil {
			return t.usable(pass + "." + field)
		}
		switch {
		case gradients && c.why != nil:
			return bad(t, "%s has no gradient: %v", c.name, c.why)
		case t.dev != p.dev:
			return bad(t, "%s must be a tensor of the plan's device", c.name)
		case t.dtype != c.dtype || t.layout.Shape != c.shape:
			return bad(t, "%s must be %v of shape %v", c.name, c.dtype, c.shape)
		case !t.layout.Dense():
			return bad(t, "%s must be in row-major order", c.name)
		case t.bound.Offset != 0:
			return bad(t, "%s must begin where the device can bind it: at a multiple of %d bytes", c.name,
				p.dev.env.Caps.Facts.Limits.MinStorageBufferAlignment)
		}
		to[i] = t.bound.Binding
	}
	for _, t := range given[n:] {
		if t != nil {
			return bad(t, "the functions capture %d tensors by name", n)
		}
	}
	return nil
}

// apart checks that no output of a pass shares memory with a captured tensor.
func (c *Captured) apart(pass string, table []attn.Operand, given []*Tensor) error {
	for i, t := range given {
		if !table[i].Output || t == nil {
			continue
		}
		for _, captured := range c {
			if t.overlaps(captured) {
				return badArgument(pass+"."+table[i].Name, t,
					"an output must not overlap another tensor of the pass: one of Captured is %v", captured)
			}
		}
	}
	return nil
}

// PerScore describes a tensor that goes with a problem's scores, of shape [Batch, Heads, Queries, Keys]. Each length is the problem's own
// (Batch, Heads, QueryLen, KeyLen) or 1, which stands for all; a bias's Keys are the problem's. The zero value is no such tensor. Any
// strides will do whose last is 1.
type PerScore struct {
	DType                       DType // of a bias: F32 or the problem's; of a mask: Bool, a byte for each pair, or Bit
	Batch, Heads, Queries, Keys int
}

// shape is [Batch, Heads, Queries, Keys].
func (s PerScore) shape() [4]int { return [4]int{s.Batch, s.Heads, s.Queries, s.Keys} }

// check gives the error of a description that does not go with the problem, whose field it is.
func (s PerScore) check(field string, p *Problem, types ...DType) error {
	if s == (PerScore{}) {
		return nil
	}
	for i, own := range [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen} {
		if n := s.shape()[i]; n != 1 && n != own {
			return badArgument("Problem."+field, s.shape(), "length %d must be 1 or the problem's, %d", i, own)
		}
	}
	for _, t := range types {
		if s.DType == t {
			return nil
		}
	}
	return badArgument("Problem."+field, s.DType, "must be one of %v", types)
}

// attn is the description without a device. A length of 1 is the problem's own where that is 1 too: what tries kernels on problems of other
// sizes has to give them as many elements as those have.
func (s PerScore) attn(p *Problem) attn.PerScore {
	if s == (PerScore{}) {
		return attn.PerScore{}
	}
	out := attn.PerScore{In: true, DType: attn.DType(s.DType)}
	for i, own := range [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen} {
		n := s.shape()[i]
		out.Own[i] = n > 1 || n == own
	}
	return out
}

// checkScores checks what goes with the scores.
func (p *Problem) checkScores() error {
	if err := p.ScoreFunction.Err(); err != nil {
		return badArgument("Problem.ScoreFunction", p.ScoreFunction, "%v", err)
	}
	if err := p.MaskFunction.Err(); err != nil {
		return badArgument("Problem.MaskFunction", p.MaskFunction, "%v", err)
	}
	if err := p.checkCaptures(); err != nil {
		return err
	}
	for _, t := range p.byScore() {
		if t.added && t.of.Keys == 1 && p.KeyLen > 1 {
			return badArgument("Problem."+t.field, t.of.shape(), "no kernel adds one number to the scores of all keys of a row: Keys "+
				"must be %d", p.KeyLen)
		}
		if err := t.of.check(t.field, p, t.types...); err != nil {
			return err
		}
	}
	for _, t := range p.byScore() {
		if n, ok := attn.Elements(t.of.shape()); !ok || n > math.MaxUint32 {
			return badArgument("Problem", p.attn().Dims(), "%s would have more than 2³²−1 elements", strings.ToLower(t.field))
		}
	}
	return nil
}

// byScore is a field of a problem that describes a tensor by score.
type byScore struct {
	field string
	of    *PerScore
	types []DType // of its elements
	added bool    // to scores
}
