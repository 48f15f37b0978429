package conformance

import (
	"embed"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strings"

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
		s.add(goldenCase("golden/"+strings.TrimSuffix(path.Base(file), ".safetensors"), v, load))
	}
	return nil
}

// goldenCase is the case of a vector, which is read again when the case runs.
func goldenCase(name string, v *ref.Vector, load func() (*ref.Vector, error)) *Case {
	c := &Case{Name: name, load: load}
	c.Problem, c.lacks, _ = translate(&v.Problem, v.DType)
	c.Problem.MaxLogit = v.Answers[maxLogitAnswer] != nil
	c.Core = max(c.Problem.HeadDim, c.Problem.ValueDim) <= lightDim
	return c
}

// agree wants an answer of a file to be the oracle's, as far as fp32 holds it. Bounds are multiples of how far plain attention is from what
// is right: an answer that is wrong would widen its own.
func agree(name string, v *ref.Vector, right []float64) error {
	answer := v.Answers[name]
	if len(answer) != len(right) {
		return fmt.Errorf("%s of the file has %d elements: it must have %d", name, len(answer), len(right))
	}
	for i, w := range right {
		if got := float64(answer[i]); got != w && !(math.Abs(got-w) <= 1e-6*(1+math.Abs(w))) {
			return fmt.Errorf("%s of the file is %g at element %d, where the float64 reference is %g", name, got, i, w)
		}
	}
	return nil
}
