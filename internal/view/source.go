package view

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/internal/ref"
)

// Random makes queries and keys that wander at random from position to position, over longer ways from head to head, so that there is something to see: what
// is near is alike. The same seed gives the same numbers.
func Random(seed uint64, heads, keyHeads, queries, keys, dim int) *Subject {
	l := Layer{Heads: heads, KeyHeads: keyHeads, Queries: queries, Keys: keys, Dim: dim, Causal: true}
	if heads < 1 || keyHeads < 1 || queries < 1 || keys < 1 || dim < 1 || heads%keyHeads != 0 {
		return &Subject{Name: "random", Layers: []Layer{l}} // New says what is wrong
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	way := make([]float64, dim)
	sharp := math.Sqrt(6 / math.Sqrt(float64(dim))) // a query's own key has a score of about 6
	l.K, l.Q = make([]float32, keyHeads*keys*dim), make([]float32, heads*queries*dim)
	for h := range keyHeads {
		for c := range way {
			way[c] = rng.NormFloat64()
		}
		keep := 1 - math.Exp2(-1.5-float64(6*h)/float64(max(keyHeads-1, 1))) // of a step's number
		for j := range keys {
			for c := range way {
				way[c] = keep*way[c] + math.Sqrt(1-keep*keep)*rng.NormFloat64()
				l.K[(h*keys+j)*dim+c] = float32(sharp * way[c])
			}
		}
	}
	for h := range heads {
		from := h / (heads / keyHeads) * keys
		for i := range queries {
			j := min(max(i+keys-queries, 0), keys-1) // the key at the query's own position
			for c := range dim {
				l.Q[(h*queries+i)*dim+c] = l.K[(from+j)*dim+c] + float32(0.5*rng.NormFloat64())
			}
		}
	}
	return &Subject{Name: "random", Layers: []Layer{l}}
}

// The names of queries and keys in a file, and of what it may say besides.
const (
	queriesName = "q"
	keysName    = "k"
	textName    = "text"
	causalName  = "causal"
	windowName  = "window"
)

// Read reads queries and keys from a file of safetensors: tensors whose names end in q and k, the same before that for both, of shape
// [Heads, Queries, Dim] or [1, Heads, Queries, Dim] and fp32, fp16 or bf16. Each pair is a layer. Metadata may hold text, of which each character
// is a query's and key's, causal (none, bottom-right or top-left), and window, or a layer's name and window: how many keys before and after its own a query
// sees, left,right, -1 for all.
func Read(path string) (*Subject, error) {
	tensors, about, err := ref.ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	s, err := fromTensors(tensors, about)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	return s, nil
}

func fromTensors(tensors map[string]ref.Stored, about map[string]string) (*Subject, error) {
	var names []string
	for name := range tensors {
		if before, ok := strings.CutSuffix(name, queriesName); ok {
			if _, ok := tensors[before+keysName]; ok {
				names = append(names, before)
			}
		}
	}
	if names == nil {
		return nil, fmt.Errorf("no tensors of queries and keys: their names must be alike but for q and k at the end, as layer0.q and layer0.k")
	}
	slices.SortFunc(names, inOrder)
	s := &Subject{}
	for _, name := range names {
		l, err := readLayer(name, tensors)
		if err != nil {
			return nil, err
		}
		if err := l.readMask(name, about); err != nil {
			return nil, err
		}
		s.Layers = append(s.Layers, l)
	}
	if text := []rune(about[textName]); len(text) > 0 {
		for _, l := range s.Layers {
			if l.Queries != len(text) || l.Keys != len(text) {
				return nil, fmt.Errorf("metadata %s has %d characters, and %s %d queries and %d keys", textName, len(text), l.Name, l.Queries, l.Keys)
			}
		}
		s.Text = text
	}
	return s, nil
}

// readMask takes which keys queries see from a file's metadata: causal order, where it does not say.
func (l *Layer) readMask(name string, about map[string]string) error {
	order, given := about[causalName]
	switch {
	case !given, order == "bottom-right", order == "top-left" && l.Queries == l.Keys:
		l.Causal = true
	case order == "top-left":
		return fmt.Errorf("metadata %s is %q, which the viewer shows of as many queries as keys, and %s has %d and %d", causalName, order, l.Name, l.Queries, l.Keys)
	case order != "none":
		return fmt.Errorf("metadata %s is %q: it must be none, bottom-right or top-left", causalName, order)
	}
	key := name + windowName
	text, given := about[key]
	if !given {
		key = windowName
		if text, given = about[key]; !given {
			return nil
		}
	}
	var left, right int
	if n, err := fmt.Sscanf(text, "%d,%d", &left, &right); err != nil || n != 2 || left < -1 || right < -1 {
		return fmt.Errorf("metadata %s is %q: it must be two numbers of keys, left,right; -1 for all", key, text)
	}
	if left == 0 || !l.Causal && left != right {
		return fmt.Errorf("metadata %s is %q: the viewer shows windows of one key or more, as many after a query's own as before it or, in causal order, none", key, text)
	}
	l.Window = max(left, 0)
	return nil
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

func readLayer(name string, tensors map[string]ref.Stored) (l Layer, err error) {
	read := func(full string) (heads, length, dim int, x []float32, err error) {
		t := tensors[full]
		shape := t.Shape
		if len(shape) == 4 && shape[0] == 1 {
			shape = shape[1:]
		}
		if len(shape) != 3 {
			return 0, 0, 0, nil, fmt.Errorf("tensor %s has shape %v: it must be [heads, length, dimension], or that with 1 before it", full, t.Shape)
		}
		if x, err = t.Floats(); err != nil {
			return 0, 0, 0, nil, fmt.Errorf("tensor %s: %w", full, err)
		}
		return shape[0], shape[1], shape[2], x, nil
	}
	var dim int
	if l.Heads, l.Queries, l.Dim, l.Q, err = read(name + queriesName); err != nil {
		return l, err
	}
	if l.KeyHeads, l.Keys, dim, l.K, err = read(name + keysName); err != nil {
		return l, err
	}
	if dim != l.Dim {
		return l, fmt.Errorf("tensor %s has head dimension %d, and %s %d", name+queriesName, l.Dim, name+keysName, dim)
	}
	if l.Name = strings.TrimRight(name, "._-/ "); l.Name == "" {
		l.Name = "layer"
	}
	return l, nil
}
