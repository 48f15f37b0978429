package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
)

// Layout is how lanes hold a fragment, and what is made of that.
type Layout struct {
	Name  string
	Shape kernel.Fragment
	Acc   kernel.HeldElements
	A     kernel.HeldElements
	Form  int
	Why   string // part of the reason why the form is no better
	Slots []int
	Table []int // AOfComp
}

// Layouts are some. The first two were probed; others are what the vendors' matrix instructions suggest, and what no rule describes.
var Layouts = []Layout{
	{
		Name: "lavapipe", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormRegisters,
		Acc:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		A:     kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		Slots: []int{0, 1, 2, 3, 4, 5, 6, 7}, Table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		Name: "NVIDIA 16x16x16", Shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, Form: kernel.FormRegisters,
		Acc:   kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		A:     kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		Slots: []int{0, 8}, Table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{ // the operand as mma.m16n8k16 takes it: rows alternate before columns do
		Name: "NVIDIA 16x8x16", Shape: kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, Form: kernel.FormRegisters,
		Acc:   kernel.Held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		A:     kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2%2*8, Col: 2*(l%4) + e%2 + e/4*8} }),
		Slots: []int{0, 8}, Table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{ // two accumulators side by side, the operand in another order
		Name: "NVIDIA 16x8x16, columns first", Shape: kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, Form: kernel.FormRegisters,
		Acc:   kernel.Held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		A:     kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		Slots: []int{0, 8}, Table: []int{0, 1, 4, 5, 2, 3, 6, 7},
	},
	{
		Name: "NVIDIA 16x8x8", Shape: kernel.Fragment{M: 16, N: 8, K: 8, Lanes: 32}, Form: kernel.FormRegisters,
		Acc:   kernel.Held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		A:     kernel.Held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		Slots: []int{0, 8}, Table: []int{0, 1, 2, 3},
	},
	{
		Name: "RDNA3, wave 32", Shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, Form: kernel.FormRows,
		Why:   "operand's element (0, 0) is held 2 times",
		Acc:   kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 2*e + l/16, Col: l % 16} }),
		A:     kernel.Held(32, 16, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e} }),
		Slots: []int{0, 2, 4, 6, 8, 10, 12, 14},
	},
	{
		Name: "RDNA3, wave 64", Shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 64}, Form: kernel.FormRows,
		Why:   "operand's element (0, 0) is held 4 times",
		Acc:   kernel.Held(64, 4, func(l, e int) kernel.Element { return kernel.Element{Row: 4*e + l/16, Col: l % 16} }),
		A:     kernel.Held(64, 16, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e} }),
		Slots: []int{0, 4, 8, 12},
	},
	{
		Name: "RDNA4, wave 32", Shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, Form: kernel.FormRows, Why: "in another order",
		Acc:   kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e + l/16*8, Col: l % 16} }),
		A:     kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e + l/16*8} }),
		Slots: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{ // lanes 16 to 31 have the rows that lanes 32 to 47 would have in order
		Name: "RDNA4, wave 64", Shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 64}, Form: kernel.FormRows, Why: "in another order",
		Acc:   kernel.Held(64, 4, func(l, e int) kernel.Element { return kernel.Element{Row: e + l>>4&1*8 + l>>5*4, Col: l % 16} }),
		A:     kernel.Held(64, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e + l>>4&1*8 + l>>5*4} }),
		Slots: []int{0, 1, 2, 3},
	},
	{
		Name: "Intel 8x8x16", Shape: kernel.Fragment{M: 8, N: 8, K: 16, Lanes: 8}, Form: kernel.FormRows, Why: "in another order",
		Acc:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		A:     kernel.Held(8, 16, func(l, e int) kernel.Element { return kernel.Element{Row: e / 2, Col: 2*l + e%2} }),
		Slots: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		Name: "Intel 8x16x16", Shape: kernel.Fragment{M: 8, N: 16, K: 16, Lanes: 16}, Form: kernel.FormRegisters,
		Acc:   kernel.Held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		A:     kernel.Held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		Slots: []int{0, 1, 2, 3, 4, 5, 6, 7}, Table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		Name: "K shorter than N", Shape: kernel.Fragment{M: 16, N: 16, K: 8, Lanes: 32}, Form: kernel.FormRows,
		Why:   "K = 8 is no multiple of N = 16",
		Acc:   kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		A:     kernel.Held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		Slots: []int{0, 8},
	},
	{
		Name: "one component", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 64}, Form: kernel.FormRows, Why: "converted in pairs",
		Acc:   kernel.Held(64, 1, func(l, e int) kernel.Element { return kernel.Element{Row: l / 8, Col: l % 8} }),
		A:     kernel.Held(64, 1, func(l, e int) kernel.Element { return kernel.Element{Row: l / 8, Col: l % 8} }),
		Slots: []int{0},
	},
	{
		Name: "accumulator held twice", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 16}, Form: kernel.FormShared, Why: "held 2 times",
		Acc: kernel.Held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l % 8} }),
		A:   kernel.Held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l % 8} }),
	},
	{
		Name: "a missing element", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared, Why: "held by no lane",
		Acc: kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: max(l, 1)} }),
		A:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		Name: "beyond the matrix", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared,
		Why: "is element (65535, 65535)",
		Acc: kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 65535, Col: 65535} }),
	},
	{
		Name: "diagonals", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared, Why: "moves both row and column",
		Acc: kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: (e + l) % 8, Col: l} }),
		A:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		Name: "lanes of a row by threes", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared,
		Why: "no power of two",
		Acc: kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: 3 * l % 8} }),
		A:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		Name: "Gray code", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared, Why: "moves",
		Acc: kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l ^ l>>1} }),
		A:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		Name: "one lane off", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared, Why: "off the rule",
		Acc: kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: []int{0, 1, 2, 3, 4, 5, 7, 6}[l]} }),
		A:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		Name: "too many components", Shape: kernel.Fragment{M: 32, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared,
		Why: "hold 32 components",
		Acc: kernel.Held(8, 32, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		A:   kernel.Held(8, 32, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		Name: "far components", Shape: kernel.Fragment{M: 32, N: 8, K: 8, Lanes: 32}, Form: kernel.FormShared, Why: "passes the tables' 15",
		Acc: kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 4*e + l/8, Col: l % 8} }),
		A:   kernel.Held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 4*e + l/8, Col: l % 8} }),
	},
	{
		Name: "an operand that is not probed", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormRows, Why: "not probed",
		Acc:   kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		Slots: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		Name: "lanes of unequal size", Shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, Form: kernel.FormShared,
		Why: "lane 7 has 7 components",
		Acc: func() kernel.HeldElements {
			h := kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} })
			h[7] = h[7][:7]
			return h
		}(),
	},
}

// LayoutOf gives a layout by its name.
func LayoutOf(t testing.TB, name string) *kernel.FragmentLayout {
	for _, k := range Layouts {
		if k.Name == name {
			l := kernel.DecodeLayout(k.Shape, k.Acc, k.A)
			return &l
		}
	}
	require.Fail(t, "no layout "+name)
	return nil
}
