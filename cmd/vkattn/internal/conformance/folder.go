package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/onnx"
	"github.com/vkattn/vkattn/internal/ref"
)

// Folder is cases that others have computed: golden vectors, and cases of operators of ONNX.
type Folder struct {
	from    fs.FS
	Files   int     // .safetensors files in it, those that are damaged among them
	Damaged []error // what is wrong with files that are no cases, and folders that cannot be read: each begins with its path
}

// ReadFolder reads every .safetensors file of a folder and of the folders in it, and checks them. One that is no case is left out, and
// noted. The error is a folder that cannot be read, or says that there is no case in it.
func ReadFolder(from fs.FS) (*Folder, error) {
	f := &Folder{from: from}
	_, err := f.cases()
	return f, err
}

// cases lists the cases by their paths, in order. They are read again when they run.
func (f *Folder) cases() (out []*Case, err error) {
	f.Files, f.Damaged = 0, nil
	err = fs.WalkDir(f.from, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && file == ".":
			return err
		case err != nil:
			f.Damaged = append(f.Damaged, fmt.Errorf("%s: %w", file, err))
			return nil
		case entry.IsDir() || path.Ext(file) != ".safetensors":
			return nil
		}
		f.Files++
		c, err := f.read(file)
		if err != nil {
			f.Damaged = append(f.Damaged, fmt.Errorf("%s: %w", file, err))
			return nil
		}
		out = append(out, c)
		return nil
	})
	switch {
	case err != nil || len(out) > 0:
	case len(f.Damaged) > 0:
		err = fmt.Errorf("there is no case in it: %w", errors.Join(f.Damaged...))
	default:
		err = errors.New("there is no .safetensors file in it")
	}
	return out, err
}

// read makes the case of a file.
func (f *Folder) read(file string) (*Case, error) {
	data, err := fs.ReadFile(f.from, file)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(file, ".safetensors")
	stored, metadata, err := ref.ParseSafetensors(data)
	if err != nil {
		return nil, err
	}
	if onnx.IsCase(metadata) {
		op, err := onnx.New(stored, metadata)
		if err != nil {
			return nil, err
		}
		return operatorCase(name, op)
	}
	v, err := ref.ParseVector(data)
	if err != nil {
		return nil, err
	}
	return vectorCase(name, v, func() (*ref.Vector, error) {
		data, err := fs.ReadFile(f.from, file)
		if err != nil {
			return nil, err
		}
		return ref.ParseVector(data)
	})
}

// vectorCase is the case of a golden vector of which everything is to be compared.
func vectorCase(name string, v *ref.Vector, load func() (*ref.Vector, error)) (*Case, error) {
	c := goldenCase(name, v, load)
	q, k, val := v.Problem.Q, v.Problem.K, v.Problem.V
	sizes := map[string]int{"o": q.B * q.H * q.N * val.D, "lse": q.B * q.H * q.N, "dq": len(q.Data), "dk": len(k.Data), "dv": len(val.Data)}
	if b := v.Problem.Bias; b != nil {
		sizes["dbias"] = len(b.Data)
	}
	if v.Problem.Sinks != nil {
		sizes["dsinks"] = q.H
	}
	_, c.Gradients = v.Answers["dq"]
	c.every = true
	for name, size := range sizes {
		answer, ok := v.Answers[name]
		switch needed := name == "o" || name == "lse" || c.Gradients; {
		case !ok && needed:
			return nil, fmt.Errorf("there is no tensor %s", name)
		case ok && !needed:
			return nil, fmt.Errorf("there is a tensor %s and no dq", name)
		case ok && len(answer) != size:
			return nil, fmt.Errorf("tensor %s has %d elements: it must have %d", name, len(answer), size)
		}
	}
	if largest := v.Answers[maxLogitAnswer]; largest != nil && len(largest) != q.B*q.H {
		return nil, fmt.Errorf("tensor %s has %d elements: it must have %d", maxLogitAnswer, len(largest), q.B*q.H)
	}
	moves := v.Tangents != (ref.Tangents{})
	for i, size := range [2]int{sizes["o"], sizes["lse"]} {
		switch name := tangentAnswers[i]; {
		case moves != (v.Answers[name] != nil):
			return nil, fmt.Errorf("tangents of inputs and a tensor %s must go together", name)
		case moves && !c.Gradients:
			return nil, errors.New("there are tangents and no dq")
		case moves && len(v.Answers[name]) != size:
			return nil, fmt.Errorf("tensor %s has %d elements: it must have %d", name, len(v.Answers[name]), size)
		}
	}
	if do := v.DO; c.Gradients && (do.B != q.B || do.H != q.H || do.N != q.N || do.D != val.D || len(do.Data) != sizes["o"]) {
		return nil, fmt.Errorf("tensor do is [%d %d %d %d]: it must be [%d %d %d %d]", do.B, do.H, do.N, do.D, q.B, q.H, q.N, val.D)
	}
	if c.Gradients {
		_, _, c.partly = translate(&v.Problem, v.DType)
		for i, feature := range c.partly {
			c.partly[i] = "gradients with a " + feature
		}
	}
	for name := range v.Answers {
		if _, ok := sizes[name]; !ok && !slices.Contains(tangentAnswers[:], name) && name != maxLogitAnswer {
			c.partly = append(c.partly, "the output "+name)
		}
	}
	slices.Sort(c.partly)
	return c, nil
}
