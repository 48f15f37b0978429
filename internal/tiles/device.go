package tiles

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Device is the facts by which a device's family is found.
type Device struct {
	Vendor          uint32   // PCI's, or a VkVendorId
	ID              uint32   // the vendor's number of the device
	Type            string   // cpu, integrated, discrete, virtual, other
	Multiprocessors int      // 0 where the driver does not say
	Subgroups       int      // that a multiprocessor holds at most; 0 where the driver does not say
	SharedKiB       int      // that a workgroup may have
	Lanes           int      // of a subgroup
	LeastLanes      int      // of the smallest subgroups that the device can be made to have
	Fragments       [][3]int // M, N, K of matrices of fp16 that are multiplied into fp32; none without a matrix unit
}

// vendors are names for numbers.
var vendors = map[string]uint32{"nvidia": 0x10de, "amd": 0x1002, "intel": 0x8086, "apple": 0x106b, "arm": 0x13b5, "qualcomm": 0x5143,
	"mesa": 0x10005, "google": 0x1ae0}

// types are the kinds of device.
var types = []string{"cpu", "integrated", "discrete", "virtual", "other"}

// span is the numbers from least to most. Vendors number devices with 32 bits, which an int may not have.
type span struct{ least, most int64 }

const unbounded = 1<<32 - 1

func (s span) has(n int64) bool { return n >= s.least && n <= s.most }

func (s span) String() string {
	switch {
	case s.least == s.most:
		return strconv.FormatInt(s.least, 10)
	case s.most == unbounded:
		return fmt.Sprintf("%d..", s.least)
	case s.least == 0:
		return fmt.Sprintf("..%d", s.most)
	}
	return fmt.Sprintf("%d..%d", s.least, s.most)
}

// parseSpan reads 7, 7.., ..7 or 3..7, with numbers in decimal or, after 0x, in hexadecimal.
func parseSpan(text string) (span, error) {
	low, high, ranged := strings.Cut(text, "..")
	s := span{0, unbounded}
	var err error
	if low != "" || !ranged {
		if s.least, err = parseBits(low, 32); err != nil {
			return span{}, err
		}
	}
	if !ranged {
		s.most = s.least
		return s, nil
	}
	if high != "" {
		if s.most, err = parseBits(high, 32); err != nil {
			return span{}, err
		}
	}
	if low == "" && high == "" || s.least > s.most {
		return span{}, fmt.Errorf("%q is no range of numbers", text)
	}
	return s, nil
}

func parseNumber(text string) (int, error) {
	n, err := parseBits(text, 31)
	return int(n), err
}

// parseBits reads a number of so many bits.
func parseBits(text string, most int) (int64, error) {
	base := 10
	digits, hex := strings.CutPrefix(text, "0x")
	if hex {
		base = 16
	}
	n, err := strconv.ParseUint(digits, base, most)
	if err != nil {
		return 0, fmt.Errorf("%q is no number from 0 to %d", text, int64(1)<<most-1)
	}
	return int64(n), nil
}

// parseFragment reads 16x8x16.
func parseFragment(text string) (f [3]int, err error) {
	sides := strings.Split(text, "x")
	if len(sides) != len(f) {
		return f, fmt.Errorf("%q is no fragment, for example 16x8x16", text)
	}
	for i, side := range sides {
		if f[i], err = parseNumber(side); err != nil || f[i] < 1 || f[i] > 256 {
			return f, fmt.Errorf("%q is no fragment: sides are from 1 to 256", text)
		}
	}
	return f, nil
}

// fact is one thing that a selector asks of a device.
type fact struct {
	name string
	text string // its value, as written
	span span   // of numbers
	frag [3]int // of matrix; zero: none
}

// factNames lists what a selector can ask, in the order in which it is written.
var factNames = []string{"vendor", "id", "type", "multiprocessors", "subgroups", "shared", "lanes", "least_lanes", "matrix"}

func parseFact(name, value string) (f fact, err error) {
	f = fact{name: name, text: value}
	switch name {
	case "vendor":
		if n, named := vendors[value]; named {
			f.span = span{int64(n), int64(n)}
			return f, nil
		}
		f.span, err = parseSpan(value)
	case "type":
		if !slices.Contains(types, value) {
			err = fmt.Errorf("%q is no type of device: %s", value, strings.Join(types, ", "))
		}
	case "matrix":
		if value != "none" {
			f.frag, err = parseFragment(value)
		}
	case "id", "multiprocessors", "subgroups", "shared", "lanes", "least_lanes":
		f.span, err = parseSpan(value)
	default:
		err = fmt.Errorf("unknown fact %q of a device: %s", name, strings.Join(factNames, ", "))
	}
	return f, err
}

func (f *fact) holds(d *Device) bool {
	switch f.name {
	case "vendor":
		return f.span.has(int64(d.Vendor))
	case "id":
		return f.span.has(int64(d.ID))
	case "type":
		return d.Type == f.text
	case "multiprocessors":
		return f.span.has(int64(d.Multiprocessors))
	case "subgroups":
		return f.span.has(int64(d.Subgroups))
	case "shared":
		return f.span.has(int64(d.SharedKiB))
	case "lanes":
		return f.span.has(int64(d.Lanes))
	case "least_lanes":
		return f.span.has(int64(d.LeastLanes))
	}
	if f.frag == ([3]int{}) {
		return len(d.Fragments) == 0
	}
	return slices.Contains(d.Fragments, f.frag)
}

// Selector is facts that all hold of a device of a family. The empty one holds of every device.
type Selector []fact

// holds says whether a device is meant.
func (s Selector) holds(d *Device) bool {
	for i := range s {
		if !s[i].holds(d) {
			return false
		}
	}
	return true
}

// String is the selector as it is written.
func (s Selector) String() string {
	if len(s) == 0 {
		return "any"
	}
	var words []string
	for _, f := range s {
		words = append(words, f.name+"="+f.text)
	}
	return strings.Join(words, " ")
}

// Exactly is the selector of devices like this one and no others.
func Exactly(d Device) Selector {
	vendor := fmt.Sprintf("%#x", d.Vendor)
	for name, n := range vendors {
		if n == d.Vendor {
			vendor = name
		}
	}
	s := Selector{{name: "vendor", text: vendor, span: span{int64(d.Vendor), int64(d.Vendor)}},
		{name: "id", text: fmt.Sprintf("%#x", d.ID), span: span{int64(d.ID), int64(d.ID)}}}
	add := func(name string, n int) {
		s = append(s, fact{name: name, text: strconv.Itoa(n), span: span{int64(n), int64(n)}})
	}
	if slices.Contains(types, d.Type) {
		s = append(s, fact{name: "type", text: d.Type})
	}
	add("multiprocessors", d.Multiprocessors)
	add("shared", d.SharedKiB)
	add("lanes", d.Lanes)
	return s
}
