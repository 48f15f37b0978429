package onnx

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/plainjson"
	"github.com/vkattn/vkattn/internal/ref"
)

// Case is one operator with inputs, right outputs and how close to them is right.
type Case struct {
	Op         string
	Opset      int // 0 where the case does not say
	RTol, ATol float64

	attrs   attributes
	in, out map[string]Tensor // by the operator's own names
}

// signature is an operator's inputs and outputs in order; the first so many of each are required.
type signature struct {
	inputs, outputs []string
	required        int
}

var operators = map[string]signature{
	"Attention": {[]string{"Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"},
		[]string{"Y", "present_key", "present_value", "qk_matmul_output"}, 3},
	"RotaryEmbedding": {[]string{"X", "cos_cache", "sin_cache", "position_ids"}, []string{"Y"}, 3},
	"TensorScatter":   {[]string{"past_cache", "update", "write_indices"}, []string{"present_cache"}, 2},
}

// IsCase says whether the metadata of a safetensors file are those of an operator's case.
func IsCase(metadata map[string]string) bool {
	var c struct{ Op *string }
	return json.Unmarshal([]byte(metadata["case"]), &c) == nil && c.Op != nil
}

// Parse reads the bytes of a safetensors file: tensors in.NAME and out.NAME, and under the metadata key case as JSON op, attrs, opset, the
// NAMEs of inputs and outputs in the operator's order ("" for one that is left out), rtol and atol.
func Parse(file []byte) (*Case, error) {
	stored, metadata, err := ref.ParseSafetensors(file)
	if err != nil {
		return nil, err
	}
	return New(stored, metadata)
}

// New is Parse of a file that is read already.
func New(stored map[string]ref.Stored, metadata map[string]string) (*Case, error) {
	var m struct {
		Op              string
		Attrs           map[string]any
		Opset           [][2]any
		Inputs, Outputs []string
		RTol, ATol      *float64
	}
	if err := plainjson.Unmarshal([]byte(metadata["case"]), &m); err != nil {
		return nil, fmt.Errorf("onnx: metadata case: %w", err)
	}
	if m.RTol == nil || m.ATol == nil || !(*m.RTol >= 0) || !(*m.ATol >= 0) {
		return nil, fmt.Errorf("onnx: metadata case: rtol and atol must be given, and not negative")
	}
	c := &Case{Op: m.Op, RTol: *m.RTol, ATol: *m.ATol, attrs: m.Attrs}
	for _, o := range m.Opset {
		if version, ok := o[1].(float64); o[0] == "" && ok {
			c.Opset = int(version)
		}
	}
	op, ok := operators[c.Op]
	if !ok {
		return c, nil // which only its name is asked of
	}
	tensors := map[string]Tensor{}
	for name, s := range stored {
		t, err := newTensor(s)
		if err != nil {
			return nil, fmt.Errorf("onnx: tensor %s: %w", name, err)
		}
		tensors[name] = t
	}
	var err error
	if c.in, err = take(tensors, "in.", "input", m.Inputs, op.inputs); err != nil {
		return nil, err
	}
	if c.out, err = take(tensors, "out.", "output", m.Outputs, op.outputs); err != nil {
		return nil, err
	}
	for name := range tensors {
		return nil, fmt.Errorf("onnx: tensor %s is neither input nor output of the case", name)
	}
	for _, name := range op.inputs[:op.required] {
		if _, ok := c.in[name]; !ok {
			return nil, fmt.Errorf("onnx: %s has no input %s", c.Op, name)
		}
	}
	if len(c.out) == 0 {
		return nil, fmt.Errorf("onnx: the case has no output")
	}
	return c, nil
}

// take moves the tensors that a case names, by their places, to the names of the operator.
func take(tensors map[string]Tensor, prefix, kind string, names, formal []string) (map[string]Tensor, error) {
	if len(names) > len(formal) {
		return nil, fmt.Errorf("onnx: %d %ss: the operator has %d", len(names), kind, len(formal))
	}
	out := map[string]Tensor{}
	for i, name := range names {
		if name == "" {
			continue
		}
		t, ok := tensors[prefix+name]
		if !ok {
			return nil, fmt.Errorf("onnx: there is no tensor %s%s", prefix, name)
		}
		delete(tensors, prefix+name)
		out[formal[i]] = t
	}
	return out, nil
}

// Known says whether the operator is one of this package's.
func (c *Case) Known() bool {
	_, ok := operators[c.Op]
	return ok
}

// Outputs lists the outputs of the case by the operator's names, in its order.
func (c *Case) Outputs() (names []string) {
	for _, name := range operators[c.Op].outputs {
		if _, ok := c.out[name]; ok {
			names = append(names, name)
		}
	}
	return names
}

// Compare judges an output: |got − want| ≤ atol + rtol·|want| + one ulp of the output's type element by element, equal infinities, no NaN.
// The verdict is of the element nearest its bound, or farthest beyond.
//
// The ulp matters in 16 bits, where the program that made the cases rounds scores and weights on its way, as kernels do elsewhere: an rtol
// of 1e-3 is an ulp of float16, and in bfloat16 a fraction of one, so that of two right results one may be beyond it.
func (c *Case) Compare(output string, got []float64) ref.Verdict {
	return c.within(output, got, ref.Widen(c.out[output].Floats))
}

// Judge is Compare, but for outputs in bfloat16: the program that made the cases computes these in bfloat16 throughout, so that its own
// values are some ulps off what is right. There what is right is float64 of the inputs, and theirs is the largest distance to the file's
// values; of other outputs it is
// 0. The error is a file whose values no such rounding explains.
func (c *Case) Judge(output string, got []float64) (v ref.Verdict, theirs float64, err error) {
	if t, ok := c.out[output].dtype(); !ok || t != ref.BF16 {
		return c.Compare(output, got), 0, nil
	}
	all, err := c.Compute()
	if err != nil {
		return v, 0, err
	}
	right, file := all[output], ref.Widen(c.out[output].Floats)
	if len(file) != len(right) {
		return v, 0, fmt.Errorf("onnx: %s has %d elements: it must have %d", output, len(file), len(right))
	}
	largest := 0.0
	for _, x := range right {
		if !math.IsInf(x, 0) {
			largest = max(largest, math.Abs(x))
		}
	}
	for i, x := range file {
		const roundings = 8
		if off := math.Abs(x - right[i]); x != right[i] && !(off <= c.ATol+c.RTol*math.Abs(right[i])+roundings*ref.BF16.Ulp(largest)) {
			return v, 0, fmt.Errorf("onnx: element %d of the file's %s is %g, and float64 of its inputs %g: more than roundings to "+
				"bfloat16 explain",
				i, output, x, right[i])
		}
	}
	return c.within(output, got, right), ref.MaxDistance(got, file), nil
}

// within judges an output that should have these values.
func (c *Case) within(output string, got, want []float64) ref.Verdict {
	t := ref.F32
	if stored, ok := c.out[output].dtype(); ok {
		t = stored
	}
	if len(got) != len(want) {
		return ref.Verdict{Err: math.NaN(), At: -1}
	}
	v, worst := ref.Verdict{OK: true, At: -1}, -1.0
	for i, w := range want {
		bound, err := c.ATol, math.Abs(got[i]-w)
		if !math.IsInf(w, 0) {
			bound += c.RTol*math.Abs(w) + t.Ulp(w)
		}
		if got[i] == w {
			err = 0
		}
		ratio := err / bound
		switch {
		case err == 0:
			ratio = 0
		case math.IsNaN(ratio):
			ratio = math.Inf(1)
		}
		if ratio > worst {
			worst, v = ratio, ref.Verdict{Err: err, Bound: bound, At: i, OK: ratio <= 1}
		}
	}
	return v
}

// check wants no attribute besides those of the operator.
func (c *Case) check(op string, attributes ...string) error {
	if c.Op != op {
		return fmt.Errorf("onnx: the operator is %s, not %s", c.Op, op)
	}
	for name := range c.attrs {
		if !slices.Contains(attributes, name) {
			return fmt.Errorf("onnx: %s has no attribute %s: there are %s", op, name, strings.Join(attributes, ", "))
		}
	}
	return nil
}
