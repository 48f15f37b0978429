// Package heads reads queries and keys of attention heads from files, or makes random ones, for pictures of what attends to what.
package heads

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/lists"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/plainjson"
	"github.com/vkattn/vkattn/internal/ref"
)

// Heads are queries and keys, and the problem that they are of.
type Heads struct {
	Title   string
	Problem flash.Problem
	Q, K    []float32 // of Problem.QShape and KShape
	Text    []string  // of each token, where the file says it: of keys, and of queries where there are as many
	Masked  bool      // the file says which keys queries see
	Lists   *lists.Lists
}

// Names are the tensors of a file; Lists may be "", for none.
type Names struct{ Q, K, Lists string }

// Read reads a safetensors file with queries and keys of F32, F16 or BF16, both [batch, heads, tokens, dim], or fewer dimensions, which are
// the last, and lists of keys as lists.Parse takes them. Its metadata may say more: "causal" (none, bottom-right, top-left), "window"
// (left,right), "scale", "text" (a character for each key), "title"; or "case", as files of test vectors have it.
func Read(path string, names Names) (*Heads, error) {
	tensors, metadata, err := ref.ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	h, err := Parse(tensors, metadata, names)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// alters are tensors of test vectors that change scores.
var alters = []string{"bias", "mask", "block_mask", "alibi_slopes", "sinks"}

// Parse is Read of what a file holds.
func Parse(tensors map[string]ref.Stored, metadata map[string]string, names Names) (*Heads, error) {
	h := &Heads{Title: metadata["title"]}
	q, qShape, qType, err := tensor(tensors, names.Q, "--q")
	if err != nil {
		return nil, err
	}
	k, kShape, _, err := tensor(tensors, names.K, "--k")
	if err != nil {
		return nil, err
	}
	if qShape[0] != kShape[0] || kShape[1] < 1 || qShape[1]%kShape[1] != 0 || qShape[3] != kShape[3] {
		return nil, fmt.Errorf("%s is %v and %s is %v: both must be [batch, heads, tokens, dim], with one batch and dim, and heads of %s "+
			"a multiple of those of %s",
			names.Q, qShape, names.K, kShape, names.Q, names.K)
	}
	h.Q, h.K = q, k
	h.Problem = flash.Problem{Batch: qShape[0], Heads: qShape[1], KeyHeads: kShape[1], QueryLen: qShape[2], KeyLen: kShape[2],
		HeadDim: qShape[3], DType: qType}
	if text, ok := metadata["case"]; ok {
		for _, name := range alters {
			if _, has := tensors[name]; has {
				return nil, fmt.Errorf("it has a tensor %s, which changes the weights, and which maps of files do not take: "+
					"flash.Plan.Map does", name)
			}
		}
		if err := h.takeCase(text); err != nil {
			return nil, err
		}
	}
	if err := h.takeMetadata(metadata); err != nil {
		return nil, err
	}
	if h.Problem, err = h.Problem.Normalize(); err != nil {
		return nil, err
	}
	if names.Lists != "" {
		return h, h.takeLists(tensors, names.Lists)
	}
	return h, nil
}

// takeLists takes the lists of keys that are in a file.
func (h *Heads) takeLists(tensors map[string]ref.Stored, name string) (err error) {
	of, ok := tensors[name]
	if !ok {
		return fmt.Errorf("it has no tensor %q of lists: it has %s", name, strings.Join(slices.Sorted(maps.Keys(tensors)), ", "))
	}
	if h.Problem.Batch != 1 {
		return fmt.Errorf("tensor %q: lists are of one batch entry, and there are %d", name, h.Problem.Batch)
	}
	h.Lists, err = lists.Parse(name, of, h.Problem.KeyHeads, h.Problem.QueryLen, h.Problem.KeyLen)
	return err
}

// tensor is one of a file's, in four dimensions; flag names it.
func tensor(all map[string]ref.Stored, name, flag string) (values []float32, shape [4]int, t flash.DType, err error) {
	x, ok := all[name]
	if !ok {
		return nil, shape, t, fmt.Errorf("it has no tensor %q: name another with %s; it has %s", name, flag,
			strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	types := map[string]flash.DType{"F32": flash.F32, "F16": flash.F16, "BF16": flash.BF16}
	t, ok = types[x.DType]
	if !ok || len(x.Shape) < 2 || len(x.Shape) > 4 {
		return nil, shape, t, fmt.Errorf("tensor %q is %s %v: it must be F32, F16 or BF16, of [batch, heads, tokens, dim] or the last "+
			"two or three of these",
			name, x.DType, x.Shape)
	}
	shape = [4]int{1, 1, 1, 1}
	copy(shape[4-len(x.Shape):], x.Shape)
	values, err = x.Floats()
	return values, shape, t, err
}

// takeCase takes what test vectors say of theirs.
func (h *Heads) takeCase(text string) error {
	var c struct {
		Name, Align    string
		Causal         bool
		Scale, Softcap float64
		Window         []int
	}
	if err := plainjson.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("metadata case: %w", err)
	}
	if c.Softcap != 0 {
		return fmt.Errorf("its scores have a softcap, which maps of files do not take: flash.Plan.Map does")
	}
	if h.Title == "" {
		h.Title = c.Name
	}
	h.Masked, h.Problem.Scale = true, c.Scale
	if c.Causal {
		h.Problem.Causal = flash.CausalBottomRight
		if c.Align == "top_left" {
			h.Problem.Causal = flash.CausalTopLeft
		}
	}
	if len(c.Window) == 2 {
		h.Problem.Window = flash.SlidingWindow(c.Window[0], c.Window[1])
	}
	return nil
}

// takeMetadata takes what a file says in plain words.
func (h *Heads) takeMetadata(m map[string]string) error {
	if text, ok := m["causal"]; ok {
		causal, known := map[string]flash.Causal{"none": flash.CausalNone, "bottom-right": flash.CausalBottomRight,
			"top-left": flash.CausalTopLeft}[text]
		if !known {
			return fmt.Errorf("metadata causal is %q: it must be none, bottom-right or top-left", text)
		}
		h.Problem.Causal, h.Masked = causal, true
	}
	if text, ok := m["window"]; ok {
		var left, right int
		if n, err := fmt.Sscanf(text, "%d,%d", &left, &right); err != nil || n != 2 {
			return fmt.Errorf("metadata window is %q: it must be two numbers of keys, left,right; -1 for no bound", text)
		}
		h.Problem.Window, h.Masked = flash.SlidingWindow(left, right), true
	}
	if text, ok := m["scale"]; ok {
		var err error
		if h.Problem.Scale, err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("metadata scale is %q: it must be a number", text)
		}
	}
	if text, ok := m["text"]; ok {
		for _, r := range text {
			h.Text = append(h.Text, string(r))
		}
		if len(h.Text) != h.Problem.KeyLen {
			return fmt.Errorf("metadata text has %d characters, and there are %d keys: it must have one for each", len(h.Text),
				h.Problem.KeyLen)
		}
	}
	return nil
}

// Random makes heads of normally distributed queries and keys. So that there is something to see, a key is in part a query's direction that
// lasts for some tokens, in each head for others.
func Random(p flash.Problem, seed uint64) (*Heads, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	h := &Heads{Title: "random heads", Problem: p}
	rng := rand.New(rand.NewPCG(seed, 1))
	fill := func(shape [4]int) []float32 {
		out := make([]float32, 0, shape[0]*shape[1]*shape[2]*shape[3])
		for n := range shape[0] * shape[1] {
			topics := make([][]float32, 4)
			same := rand.New(rand.NewPCG(seed, uint64(n%p.KeyHeads)+2)) // of queries and keys of a head
			for i := range topics {
				topics[i] = make([]float32, shape[3])
				for d := range topics[i] {
					topics[i][d] = float32(same.NormFloat64())
				}
			}
			last := 8 << (n % p.KeyHeads % 6)
			for i := range shape[2] {
				topic := topics[i/last*2654435761%len(topics)]
				for d := range shape[3] {
					out = append(out, 0.7*topic[d]+0.7*float32(rng.NormFloat64()))
				}
			}
		}
		return out
	}
	h.Q, h.K = fill(p.QShape()), fill(p.KShape())
	return h, nil
}
