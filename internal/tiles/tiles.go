package tiles

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Family is devices that want the same tiles.
type Family struct {
	Name     string
	Inherits string // the family whose rows follow its own; "": none
	File     string
	Devices  []Selector // one of which holds
	Constants

	given map[string]float64 // constants of the file's own
	rows  []*Row             // of the file's own
	all   []*Row             // with those inherited behind
	from  *Family            // inherited from; nil: none
}

// Names are the family's name and those of the families whose rows follow, in that order.
func (f *Family) Names() []string {
	var out []string
	for ; f != nil; f = f.from {
		out = append(out, f.Name)
	}
	return out
}

// Rows are the rows of a kernel in the order in which they are tried.
func (f *Family) Rows(kernel string) []*Row { return f.pick(kernel, Measured, Derived) }

// Candidates are rows of a kernel that only tune looks at.
func (f *Family) Candidates(kernel string) []*Row { return f.pick(kernel, Candidate) }

// Tuned are rows of a kernel that tune measured on one device.
func (f *Family) Tuned(kernel string) []*Row { return f.pick(kernel, Tuned) }

// Own are all rows of the family's own file, in its order.
func (f *Family) Own() []*Row { return f.rows }

func (f *Family) pick(kernel string, from ...Source) []*Row {
	var out []*Row
	for _, r := range f.all {
		if r.Kernel == kernel && slices.Contains(from, r.Source) {
			out = append(out, r)
		}
	}
	return out
}

// Groups is the number of workgroups below which a device with so many multiprocessors is not full.
func (c *Constants) Groups(multiprocessors int) int {
	if c.FewGroups > 0 {
		return c.FewGroups
	}
	return multiprocessors
}

// suits is the number of facts that a selector of the family asks, of those that hold of the device the most; -1 where none does.
func (f *Family) suits(d *Device) int {
	most := -1
	for _, s := range f.Devices {
		if s.holds(d) {
			most = max(most, len(s))
		}
	}
	return most
}

// Suits says whether a device is of the family.
func (f *Family) Suits(d Device) bool { return f.suits(&d) >= 0 }

// inherit puts the rows and constants of another family behind the family's own.
func (f *Family) inherit(from *Family) {
	f.all, f.from = slices.Clone(f.rows), from
	if from != nil {
		f.all = append(f.all, from.all...)
		f.Constants = from.Constants
	}
	for name, v := range f.given {
		f.Constants.set(name, v)
	}
}

//go:embed *.tiles
var files embed.FS

// builtIn reads the files once.
var builtIn = sync.OnceValue(func() []*Family {
	all, err := load()
	if err != nil {
		panic(err) // a file of ours: TestFiles finds it
	}
	return all
})

// load reads the files and links them; by name.
func load() ([]*Family, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	byName := map[string]*Family{}
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		f, err := Parse(folder+e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		if f.Name+".tiles" != e.Name() {
			return nil, fmt.Errorf("%s is of the family %s: the two have one name", e.Name(), f.Name)
		}
		byName[f.Name] = f
	}
	linked := map[string]bool{}
	var link func(f *Family, depth int) error
	link = func(f *Family, depth int) error {
		if linked[f.Name] {
			return nil
		}
		from := byName[f.Inherits]
		switch {
		case depth > len(byName):
			return fmt.Errorf("%s: it inherits from itself", f.File)
		case f.Inherits != "" && from == nil:
			return fmt.Errorf("%s: there is no family %q to inherit from", f.File, f.Inherits)
		case from == nil && len(f.given) != len(constants):
			return fmt.Errorf("%s: a family that inherits from none gives every constant: %s", f.File,
				strings.Join(slices.Sorted(maps.Keys(constants)), " "))
		case from != nil:
			if err := link(from, depth+1); err != nil {
				return err
			}
		}
		f.inherit(from)
		linked[f.Name] = true
		return nil
	}
	out := slices.SortedFunc(maps.Values(byName), func(a, b *Family) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range out {
		if err := link(f, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Families are the families of the files, by name.
func Families() []*Family { return slices.Clone(builtIn()) }

// For is the family of a device: of those that it suits, the one that asks the most of it.
func For(d Device) *Family {
	var best *Family
	most := -1
	for _, f := range builtIn() {
		if n := f.suits(&d); n > most {
			best, most = f, n
		}
	}
	return best
}

// Over gives the family with the rows and constants of another behind its own: those of the built-in family that it names, else those of
// the device's own. The error says that a device is not meant, or that there is no family of that name.
func (f *Family) Over(d Device) (*Family, error) {
	if !f.Suits(d) {
		var wanted []string
		for _, s := range f.Devices {
			wanted = append(wanted, s.String())
		}
		return nil, &Error{File: f.File, What: fmt.Sprintf("these tiles are for other devices: for %s, and this one is %v",
			strings.Join(wanted, ", or "), Exactly(d))}
	}
	from := For(d)
	if f.Inherits != "" {
		from = nil
		for _, b := range builtIn() {
			if b.Name == f.Inherits {
				from = b
			}
		}
		if from == nil {
			return nil, &Error{File: f.File, What: fmt.Sprintf("there is no built-in family %q to inherit from", f.Inherits)}
		}
	}
	out := *f
	out.inherit(from)
	return &out, nil
}

// Text is the family's own file, without comments: Parse reads it back.
func (f *Family) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "family %s\n", f.Name)
	if f.Inherits != "" {
		fmt.Fprintf(&b, "inherits %s\n", f.Inherits)
	}
	for _, s := range f.Devices {
		fmt.Fprintf(&b, "device %v\n", s)
	}
	for _, name := range slices.Sorted(maps.Keys(f.given)) {
		fmt.Fprintf(&b, "constants %s=%s\n", name, strconv.FormatFloat(f.given[name], 'g', -1, 64))
	}
	kernel, source := "", Source("")
	for _, r := range f.rows {
		if r.Kernel != kernel || r.Source != source {
			kernel, source = r.Kernel, r.Source
			fmt.Fprintf(&b, "\nkernel %s %s\n", kernel, source)
		}
		fmt.Fprintf(&b, "%v", r)
		if r.Note != "" {
			fmt.Fprintf(&b, " # %s", strings.Join(strings.Fields(r.Note), " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// New makes a family of rows that were measured on devices that a selector holds of.
func New(name string, devices Selector, rows []*Row) *Family {
	return &Family{Name: name, Devices: []Selector{devices}, rows: rows, given: map[string]float64{}}
}
