package conformance

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// builtIn is a part of testdata/vectors, small enough to carry along in the command.
//
//go:embed vectors/*.safetensors
var builtIn embed.FS

// golden adds a case for each golden vector: its inputs, and its o and lse instead of the oracle's.
func golden(s *suite, from fs.FS) error {
	if from == nil {
		var err error
		if from, err = fs.Sub(builtIn, "vectors"); err != nil {
			return err
		}
	}
	files, err := fs.Glob(from, "*.safetensors")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("conformance: no golden vectors in the folder given")
	}
	for _, file := range files {
		load := func() (*ref.Vector, error) {
			data, err := fs.ReadFile(from, file)
			if err != nil {
				return nil, err
			}
			return ref.ParseVector(data)
		}
		v, err := load()
		if err != nil {
			return fmt.Errorf("conformance: golden vector %s: %w", file, err)
		}
		c := &Case{Name: "golden/" + strings.TrimSuffix(path.Base(file), ".safetensors"), load: load}
		c.Problem, c.refuse = problemOf(v)
		c.Core = max(c.Problem.HeadDim, c.Problem.ValueDim) <= lightDim
		s.add(c)
	}
	return nil
}

// problemOf translates; refuse names an option that flash.Problem does not have.
func problemOf(v *ref.Vector) (p flash.Problem, refuse string) {
	in := v.Problem
	p = flash.Problem{
		Batch: in.Q.B, Heads: in.Q.H, KeyHeads: in.K.H, QueryLen: in.Q.N, KeyLen: in.K.N,
		HeadDim: in.Q.D, ValueDim: in.V.D, Scale: in.Scale,
	}
	p.DType = map[ref.DType]flash.DType{ref.F32: flash.F32, ref.F16: flash.F16, ref.BF16: flash.BF16}[v.DType]
	p.Causal = map[ref.Causal]flash.Causal{
		ref.NotCausal: flash.CausalNone, ref.BottomRight: flash.CausalBottomRight, ref.TopLeft: flash.CausalTopLeft}[in.Causal]
	if w := in.Window; w != nil {
		p.Window = flash.SlidingWindow(w.Left, w.Right)
	}
	if b := in.Blocks; b != nil {
		p.Blocks = flash.Blocks{Queries: b.BQ, Keys: b.BK, PerHead: b.H > 1}
	}
	var functions []score.Function
	if in.Softcap != 0 {
		functions = append(functions, score.Softcap(in.Softcap))
	}
	if in.Slopes != nil {
		functions = append(functions, score.ALiBi(in.Slopes))
	}
	var err error
	if p.Score, err = score.Compose(functions...); err != nil {
		return p, err.Error()
	}
	if b := in.Bias; b != nil {
		p.Bias = flash.PerScore{DType: p.DType, Batch: b.B, Heads: b.H, Queries: b.N, Keys: b.D}
	}
	if m := in.Mask; m != nil {
		p.Mask = flash.PerScore{DType: flash.Bool, Batch: m.B, Heads: m.H, Queries: m.N, Keys: m.M}
	}
	p.Sinks = in.Sinks != nil
	if in.Dropout != nil {
		return p, "the library does not have this option yet: dropout of a vector"
	}
	return p, ""
}
