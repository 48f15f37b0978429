package tiles

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a file may hold at most: it may come from anybody.
const (
	MostBytes   = 1 << 20
	mostRows    = 1 << 12
	mostDevices = 1 << 8
	MostName    = 64 // bytes of a family's name
)

// Error is what is wrong with a file, and where.
type Error struct {
	File string
	Line int // from 1; 0 for the whole file
	What string
}

// Error begins with file and line.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.What
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// parser reads one file.
type parser struct {
	file   string
	line   int
	family *Family
	kernel string // whose rows follow
	source Source
	seen   map[string]int // what may be given once, and the line where it was
}

// Parse reads a file; its name is for errors. What it inherits is not looked at.
func Parse(file, text string) (*Family, error) {
	p := &parser{file: file, family: &Family{File: file, given: map[string]float64{}}, seen: map[string]int{}}
	if len(text) > MostBytes {
		return nil, p.bad("%d bytes are more than the %d of a file of tiles", len(text), MostBytes)
	}
	for line := range strings.SplitSeq(text, "\n") {
		p.line++
		line, _, _ = strings.Cut(line, "#")
		if err := p.read(strings.Fields(line)); err != nil {
			return nil, err
		}
	}
	p.line = 0
	switch {
	case p.family.Name == "":
		return nil, p.bad("no line says what family it is for: family NAME")
	case len(p.family.Devices) == 0:
		return nil, p.bad("no line says which devices it is for: device FACT=VALUE, or device any")
	}
	return p.family, nil
}

func (p *parser) bad(format string, a ...any) error {
	return &Error{p.file, p.line, fmt.Sprintf(format, a...)}
}

// once refuses what was given before.
func (p *parser) once(what string) error {
	if at, ok := p.seen[what]; ok {
		return p.bad("%s was given in line %d", what, at)
	}
	p.seen[what] = p.line
	return nil
}

func (p *parser) read(words []string) error {
	if len(words) == 0 {
		return nil
	}
	if p.family.Name == "" && words[0] != "family" {
		return p.bad("a file begins with: family NAME")
	}
	switch words[0] {
	case "family", "inherits":
		return p.name(words)
	case "device":
		return p.device(words[1:])
	case "constants":
		return p.constants(words[1:])
	case "kernel":
		return p.section(words[1:])
	case "numbers":
		if p.file != folder+genericFile {
			return p.bad("numbers of kernels stand in the library's own %s alone", genericFile)
		}
		return nil // readNumbers has them
	}
	return p.row(words)
}

func (p *parser) name(words []string) error {
	if err := p.once(words[0]); err != nil {
		return err
	}
	if len(words) != 2 || len(words[1]) > MostName || strings.ContainsFunc(words[1], func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) {
		return p.bad("%s needs one name of small letters, digits, _ and -, of %d at most", words[0], MostName)
	}
	if words[0] == "family" {
		p.family.Name = words[1]
	} else {
		p.family.Inherits = words[1]
	}
	return nil
}

func (p *parser) device(words []string) error {
	if len(p.family.Devices) == mostDevices {
		return p.bad("more than %d lines of devices", mostDevices)
	}
	if len(words) == 1 && words[0] == "any" {
		p.family.Devices = append(p.family.Devices, Selector{})
		return nil
	}
	if len(words) == 0 {
		return p.bad("device needs facts, or any")
	}
	var s Selector
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return p.bad("%q is not FACT=VALUE", word)
		}
		if slices.ContainsFunc(s, func(f fact) bool { return f.name == name }) {
			return p.bad("%s stands there twice", name)
		}
		f, err := parseFact(name, value)
		if err != nil {
			return p.bad("%v", err)
		}
		s = append(s, f)
	}
	p.family.Devices = append(p.family.Devices, s)
	return nil
}

func (p *parser) constants(words []string) error {
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		c, known := constants[name]
		if !ok || !known {
			return p.bad("unknown constant %q", word)
		}
		if err := p.once("constant " + name); err != nil {
			return err
		}
		v, err := strconv.ParseFloat(value, 64)
		_, fraction := c.to(new(Constants)).(*float64)
		if err != nil || !(v >= c.least && v <= c.most) || !fraction && v != math.Trunc(v) { // NaN is in no range
			return p.bad("%s must be a number from %v to %v, whole unless a pace or of pairs", word, c.least, c.most)
		}
		p.family.given[name] = v
	}
	return nil
}

func (p *parser) section(words []string) error {
	if len(words) != 2 || !slices.Contains(sources, Source(words[1])) {
		return p.bad("kernel needs a name, and measured, derived, candidate or tuned")
	}
	if _, known := kernels[words[0]]; !known {
		return p.bad("unknown kernel %q", words[0])
	}
	p.kernel, p.source = words[0], Source(words[1])
	return nil
}

func (p *parser) row(words []string) error {
	at := slices.Index(words, ":")
	switch {
	case at < 0:
		return p.bad("%q is neither a row, CONDITIONS : NAME=NUMBER, nor one of family, inherits, device, constants, kernel", words[0])
	case p.kernel == "":
		return p.bad("a row before any line says of which kernel: kernel NAME SOURCE")
	case len(p.family.rows) == mostRows:
		return p.bad("more than %d rows", mostRows)
	case at == 0:
		return p.bad("a row needs conditions, or any")
	case at == len(words)-1:
		return p.bad("a row needs numbers")
	}
	r := &Row{Kernel: p.kernel, Source: p.source, Family: p.family.Name, File: p.file, Line: p.line, Values: map[string]int{}}
	if conditions := words[:at]; !slices.Equal(conditions, []string{"any"}) {
		for _, word := range conditions {
			if err := r.When.set(word); err != nil {
				return p.bad("%v", err)
			}
		}
	}
	for _, word := range words[at+1:] {
		name, text, ok := strings.Cut(word, "=")
		if !ok {
			return p.bad("%q is not NAME=NUMBER", word)
		}
		if _, twice := r.Values[name]; twice {
			return p.bad("%s stands there twice", name)
		}
		l, known := kernels[p.kernel][name]
		if p.source == Tuned { // parameters of the kernel's, of which it knows more than rows have
			l, known = limit{0, mostTuned, true}, name != ""
		}
		if !known {
			return p.bad("%s has no number %q", p.kernel, name)
		}
		n, err := parseNumber(text)
		if err != nil || n < l.least || n > l.most {
			return p.bad("%s must be from %d to %d", word, l.least, l.most)
		}
		r.Values[name] = n
	}
	for _, name := range slices.Sorted(maps.Keys(kernels[p.kernel])) {
		if _, given := r.Values[name]; !given && !kernels[p.kernel][name].open && p.source != Tuned {
			return p.bad("a row of %s needs %s", p.kernel, name)
		}
	}
	if r.When.Whole && r.Values["bc"] == 0 { // of a kernel without, or of tuning parameters without
		return p.bad("whole is of a row's own bc, and it has none")
	}
	p.family.rows = append(p.family.rows, r)
	return nil
}
