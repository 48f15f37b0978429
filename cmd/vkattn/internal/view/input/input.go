// Package input makes subjects of the viewer from files of heads, or from random ones.
package input

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/heads"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// Random makes a layer of random heads; the same seed gives the same. The error says which size cannot be.
func Random(seed uint64, queryHeads, keyHeads, queries, keys, dim int) (*view.Subject, error) {
	h, err := heads.Random(flash.Problem{Batch: 1, Heads: queryHeads, KeyHeads: keyHeads, QueryLen: queries, KeyLen: keys, HeadDim: dim},
		seed)
	if err != nil {
		return nil, err
	}
	l, err := layer("", h)
	return &view.Subject{Name: "random", Layers: []view.Layer{l}}, err
}

// The ends of names of tensors, and of a layer's window in the metadata.
const (
	queriesName = "q"
	keysName    = "k"
	listsName   = "lists"
	windowName  = "window"
)

// Read reads a file of heads as heads.Read does, of several layers: tensors whose names end in q and k and are alike before that. A layer's
// name and window, as layer0.window, stands for window; its name and lists for lists of keys.
func Read(path string) (*view.Subject, error) {
	tensors, about, err := ref.ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	s, err := parse(tensors, about)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return s, nil
}

func parse(tensors map[string]ref.Stored, about map[string]string) (*view.Subject, error) {
	var names []string
	for name := range tensors {
		if before, ok := strings.CutSuffix(name, queriesName); ok {
			if _, ok := tensors[before+keysName]; ok {
				names = append(names, before)
			}
		}
	}
	if names == nil {
		return nil, fmt.Errorf("no tensors of queries and keys: their names must be alike but for q and k at the end, as layer0.q and " +
			"layer0.k")
	}
	slices.SortFunc(names, inOrder)
	s := &view.Subject{Name: about["title"], Text: []rune(about["text"])}
	for _, name := range names {
		own := maps.Clone(about)
		if window, ok := about[name+windowName]; ok {
			own[windowName] = window
		}
		names := heads.Names{Q: name + queriesName, K: name + keysName}
		if _, ok := tensors[name+listsName]; ok {
			names.Lists = name + listsName
		}
		h, err := heads.Parse(tensors, own, names)
		if err != nil {
			return nil, err
		}
		l, err := layer(strings.TrimRight(name, "._-/ "), h)
		if err != nil {
			return nil, err
		}
		s.Layers = append(s.Layers, l)
	}
	if len(s.Text) == 0 {
		s.Text = nil
	}
	return s, nil
}

// layer is heads as the viewer has them: in causal order, where they do not say.
func layer(name string, h *heads.Heads) (l view.Layer, err error) {
	p := h.Problem
	if name == "" {
		name = "layer"
	}
	l = view.Layer{Name: name, Heads: p.Heads, KeyHeads: p.KeyHeads, Queries: p.QueryLen, Keys: p.KeyLen, Dim: p.HeadDim, Q: h.Q, K: h.K,
		Lists: h.Lists, Causal: !h.Masked || p.Causal != flash.CausalNone, Temperature: 1 / (math.Sqrt(float64(p.HeadDim)) * p.Scale)}
	left, right := p.Window.Reach()
	switch {
	case p.Batch != 1:
		return l, fmt.Errorf("%s has %d batch entries, and the viewer shows one", name, p.Batch)
	case p.Causal == flash.CausalTopLeft && p.QueryLen != p.KeyLen:
		return l, fmt.Errorf("%s is causal from the top left, which the viewer shows of as many queries as keys alone: there are %d and %d",
			name, p.QueryLen, p.KeyLen)
	case !(p.Scale > 0):
		return l, fmt.Errorf("%s has scale %g, and the viewer shows positive ones", name, p.Scale)
	case p.Window == flash.Window{}:
	case left == 0 || !l.Causal && left != right:
		return l, fmt.Errorf("%s has a window of %d keys before and %d after a query's own: the viewer shows one or more, and as many on "+
			"both sides without causal order", name, left, right)
	default:
		l.Window = max(left, 0)
	}
	return l, nil
}

// inOrder compares names with numbers in them: layer2 comes before layer10.
func inOrder(a, b string) int {
	digits := func(s string) int {
		n := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
		if n < 0 {
			return len(s)
		}
		return n
	}
	for a != "" && b != "" {
		if n, m := digits(a), digits(b); n > 0 && m > 0 {
			x, _ := strconv.Atoi(a[:n])
			y, _ := strconv.Atoi(b[:m])
			if x != y {
				return x - y
			}
			a, b = a[n:], b[m:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}
