package tiles

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Problem is what rows look at.
type Problem struct {
	HeadDim, ValueDim int // D and Dv
	Queries, Keys     int
	Rows              int    // of a key head: queries of all query heads that read it
	DType             string // f32, f16, bf16
	Causal            bool   // or any other mask by positions
	Window            bool
	Dropout           bool
	Scored            bool   // functions of scores
	Bias              bool   // a tensor that is added to scores
	Blocks            bool   // a block mask
	Bare              bool   // scores are products of queries and keys alone, of tensors, without a window
	Near              bool   // a row's largest scores may be anywhere, or near its own position, as functions and windows have them
	Page              int    // rows of a page of keys and values; 0: tensors
	KeyType           string // of quantised keys, by its name; "": DType
	ValueType         string // likewise
	Packed            bool   // sequences one behind the other
	Lanes             int
	Fragment          [3]int // M, N, K; zero for kernels without
}

// Source says where rows are from.
type Source string

// Where rows are from.
const (
	Measured  Source = "measured"  // on a device of the family
	Derived   Source = "derived"   // from limits and the prediction; not measured
	Candidate Source = "candidate" // only for tune to measure
	Tuned     Source = "tuned"     // measured on one device by tune; tuning parameters, taken as they are
)

var sources = []Source{Measured, Derived, Candidate, Tuned}

// Row is numbers for a kernel, and the problems that they are for.
type Row struct {
	Kernel string
	When   Conditions
	Values map[string]int // by name; not to be changed
	Source Source
	Family string // where it is written
	File   string
	Line   int    // from 1
	Note   string // a comment to write behind it; not read back
}

// Get is a number of the row, 0 where it names none.
func (r *Row) Get(name string) int { return r.Values[name] }

// On says whether the row sets a switch.
func (r *Row) On(name string) bool { return r.Values[name] != 0 }

// Place is the file and the line where the row is.
func (r *Row) Place() string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

// String is the row as it is written.
func (r *Row) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(r.Values)) {
		words = append(words, fmt.Sprintf("%s=%d", name, r.Values[name]))
	}
	return r.When.String() + " : " + strings.Join(words, " ")
}

// Suits says whether the row is for a problem.
func (r *Row) Suits(p *Problem) bool {
	c := &r.When
	switch {
	case c.MaxDim != 0 && max(p.HeadDim, p.ValueDim) > c.MaxDim, c.HeadDim != 0 && p.HeadDim != c.HeadDim, c.ValueDim != 0 &&
		p.ValueDim != c.ValueDim:
		return false
	case p.Queries < c.LeastQueries, c.MostQueries != 0 && p.Queries > c.MostQueries,
		p.Keys < c.LeastKeys, c.MostKeys != 0 && p.Keys > c.MostKeys, c.MostRows != 0 && p.Rows > c.MostRows:
		return false
	case c.Mask == "causal" && !p.Causal, c.Mask == "none" && p.Causal, c.Mask == "window" && !p.Window, c.DType != "" &&
		p.DType != c.DType:
		return false
	case c.Dropout && !p.Dropout, c.Scored && !p.Scored, c.Bias && !p.Bias, c.Bare && !p.Bare, c.Near && !p.Near,
		c.Plain && (p.Dropout || p.Blocks),
		c.Whole && (r.Get("bc") == 0 || p.Keys%r.Get("bc") != 0):
		return false
	case c.Fragment != [3]int{} && p.Fragment != c.Fragment:
		return false
	}
	// Tune measures windows by themselves; other rows of causal masks are for windows too.
	if r.Source == Tuned && c.Mask != "" && (c.Mask == "window") != p.Window {
		return false
	}
	// What tune measured is for where keys lay when it was measured; other rows are for any place unless they name one.
	if cache := (Conditions{Page: p.Page, KeyType: p.KeyType, ValueType: p.ValueType, Packed: p.Packed}); r.Source == Tuned &&
		c.cache() != cache {
		return false
	}
	if c.Page != 0 && p.Page != c.Page || c.Packed && !p.Packed || !suitsType(c.KeyType, p.KeyType) ||
		!suitsType(c.ValueType, p.ValueType) {
		return false
	}
	return r.SuitsLanes(p.Lanes)
}

// SuitsLanes says whether the row is for subgroups of this number of lanes.
func (r *Row) SuitsLanes(lanes int) bool { return r.When.Lanes == 0 || r.When.Lanes == lanes }

// Conditions are what must hold of a problem. Zeros say any.
type Conditions struct {
	MaxDim                    int // the larger of D and Dv
	HeadDim, ValueDim         int
	LeastQueries, MostQueries int
	LeastKeys, MostKeys       int
	MostRows                  int    // of a key head: queries of all query heads that read it
	Mask                      string // causal (a window too, but of what tune measured), none, window
	DType                     string
	Dropout                   bool // there is some
	Plain                     bool // neither dropout nor a block mask
	Scored                    bool // there are functions of scores
	Bias                      bool // there is a bias
	Bare                      bool // neither functions, biases, masks nor maxima of scores, windows, lists nor caches
	Near                      bool // neither biases, masks nor maxima of scores, lists nor caches; no lengths but with a mask by position
	Whole                     bool // keys are whole tiles of the row's bc
	Page                      int
	KeyType, ValueType        string
	Packed                    bool
	Lanes                     int
	Fragment                  [3]int
}

// cache is what the conditions say of where keys lie, alone.
func (c *Conditions) cache() Conditions {
	return Conditions{Page: c.Page, KeyType: c.KeyType, ValueType: c.ValueType, Packed: c.Packed}
}

// condition is one that a row may have: numbers, or words, or nothing behind the name.
type condition struct {
	name string // with what stands between it and its value
	to   func(c *Conditions) any
	of   []string // words
}

// quantised are the types of caches' elements that rows may name.
var quantised = []string{"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "fp8_e4m3", "fp8_e5m2"}

// alike are types that kernels read as they read another, in rows nearly as long: its tiles are theirs where no row before names them.
var alike = map[string]string{"q4_1": "q4_0", "q5_0": "q4_0", "q5_1": "q4_0", "iq4_nl": "q4_0", "fp8_e5m2": "fp8_e4m3"}

// suitsType says whether a row's type of keys or values, "" for any, is for a problem's.
func suitsType(row, problem string) bool { return row == "" || row == problem || row == alike[problem] }

// conditions are those, in the order in which they are written.
var conditions = []condition{
	{"dim<=", func(c *Conditions) any { return &c.MaxDim }, nil},
	{"head_dim=", func(c *Conditions) any { return &c.HeadDim }, nil},
	{"value_dim=", func(c *Conditions) any { return &c.ValueDim }, nil},
	{"queries>=", func(c *Conditions) any { return &c.LeastQueries }, nil},
	{"queries<=", func(c *Conditions) any { return &c.MostQueries }, nil},
	{"keys>=", func(c *Conditions) any { return &c.LeastKeys }, nil},
	{"keys<=", func(c *Conditions) any { return &c.MostKeys }, nil},
	{"rows<=", func(c *Conditions) any { return &c.MostRows }, nil},
	{"mask=", func(c *Conditions) any { return &c.Mask }, []string{"causal", "none", "window"}},
	{"dtype=", func(c *Conditions) any { return &c.DType }, []string{"f32", "f16", "bf16"}},
	{"dropout", func(c *Conditions) any { return &c.Dropout }, nil},
	{"plain", func(c *Conditions) any { return &c.Plain }, nil},
	{"scored", func(c *Conditions) any { return &c.Scored }, nil},
	{"bias", func(c *Conditions) any { return &c.Bias }, nil},
	{"bare", func(c *Conditions) any { return &c.Bare }, nil},
	{"near", func(c *Conditions) any { return &c.Near }, nil},
	{"whole", func(c *Conditions) any { return &c.Whole }, nil},
	{"page=", func(c *Conditions) any { return &c.Page }, nil},
	{"key_type=", func(c *Conditions) any { return &c.KeyType }, quantised},
	{"value_type=", func(c *Conditions) any { return &c.ValueType }, quantised},
	{"packed", func(c *Conditions) any { return &c.Packed }, nil},
	{"lanes=", func(c *Conditions) any { return &c.Lanes }, nil},
	{"fragment=", func(c *Conditions) any { return &c.Fragment }, nil},
}

// set reads a word of a row.
func (c *Conditions) set(word string) error {
	for _, k := range conditions {
		value, ok := strings.CutPrefix(word, k.name)
		if !ok {
			continue
		}
		again := fmt.Errorf("%s stands there twice", k.name)
		switch to := k.to(c).(type) {
		case *bool:
			if value != "" {
				continue
			}
			if *to {
				return again
			}
			*to = true
		case *int:
			n, err := parseNumber(value)
			if err != nil {
				return err
			}
			if n < 1 {
				return fmt.Errorf("%s must be at least 1", word)
			}
			if *to != 0 {
				return again
			}
			*to = n
		case *string:
			if !slices.Contains(k.of, value) {
				return fmt.Errorf("%s: must be %s", word, strings.Join(k.of, " or "))
			}
			if *to != "" {
				return again
			}
			*to = value
		case *[3]int:
			f, err := parseFragment(value)
			if err != nil {
				return err
			}
			if *to != ([3]int{}) {
				return again
			}
			*to = f
		}
		return nil
	}
	var names []string
	for _, k := range conditions {
		names = append(names, k.name)
	}
	return fmt.Errorf("unknown condition %q: %s", word, strings.Join(names, " "))
}

// String is the conditions as they are written.
func (c Conditions) String() string {
	var words []string
	for _, k := range conditions {
		switch to := k.to(&c).(type) {
		case *bool:
			if *to {
				words = append(words, k.name)
			}
		case *int:
			if *to != 0 {
				words = append(words, fmt.Sprint(k.name, *to))
			}
		case *string:
			if *to != "" {
				words = append(words, k.name+*to)
			}
		case *[3]int:
			if f := *to; f != ([3]int{}) {
				words = append(words, fmt.Sprintf("%s%dx%dx%d", k.name, f[0], f[1], f[2]))
			}
		}
	}
	if len(words) == 0 {
		return "any"
	}
	return strings.Join(words, " ")
}
