package flash

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/kernel"
)

// held makes a layout from a rule.
func held(lanes, components int, at func(lane, e int) kernel.Element) kernel.HeldElements {
	out := make(kernel.HeldElements, lanes)
	for lane := range out {
		for e := range components {
			out[lane] = append(out[lane], at(lane, e))
		}
	}
	return out
}

// The first two layouts were probed; others are what the vendors' matrix instructions suggest, and what no rule describes.
var knownLayouts = []struct {
	name  string
	shape kernel.Fragment
	acc   kernel.HeldElements
	a     kernel.HeldElements
	form  int
	why   string // part of the reason why the form is no better
	slots []int
	table []int // AOfComp
}{
	{
		name: "lavapipe", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormRegisters,
		acc:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		a:     held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		slots: []int{0, 1, 2, 3, 4, 5, 6, 7}, table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		name: "NVIDIA 16x16x16", shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, form: kernel.FormRegisters,
		acc:   held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		a:     held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		slots: []int{0, 8}, table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{ // the operand as mma.m16n8k16 takes it: rows alternate before columns do
		name: "NVIDIA 16x8x16", shape: kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, form: kernel.FormRegisters,
		acc:   held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		a:     held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2%2*8, Col: 2*(l%4) + e%2 + e/4*8} }),
		slots: []int{0, 8}, table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{ // two accumulators side by side, the operand in another order
		name: "NVIDIA 16x8x16, columns first", shape: kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, form: kernel.FormRegisters,
		acc:   held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		a:     held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		slots: []int{0, 8}, table: []int{0, 1, 4, 5, 2, 3, 6, 7},
	},
	{
		name: "NVIDIA 16x8x8", shape: kernel.Fragment{M: 16, N: 8, K: 8, Lanes: 32}, form: kernel.FormRegisters,
		acc:   held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		a:     held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		slots: []int{0, 8}, table: []int{0, 1, 2, 3},
	},
	{
		name: "RDNA3, wave 32", shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, form: kernel.FormRows,
		why:   "operand's element (0, 0) is held 2 times",
		acc:   held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 2*e + l/16, Col: l % 16} }),
		a:     held(32, 16, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e} }),
		slots: []int{0, 2, 4, 6, 8, 10, 12, 14},
	},
	{
		name: "RDNA3, wave 64", shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 64}, form: kernel.FormRows,
		why:   "operand's element (0, 0) is held 4 times",
		acc:   held(64, 4, func(l, e int) kernel.Element { return kernel.Element{Row: 4*e + l/16, Col: l % 16} }),
		a:     held(64, 16, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e} }),
		slots: []int{0, 4, 8, 12},
	},
	{
		name: "RDNA4, wave 32", shape: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, form: kernel.FormRows, why: "in another order",
		acc:   held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e + l/16*8, Col: l % 16} }),
		a:     held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l % 16, Col: e + l/16*8} }),
		slots: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		name: "Intel 8x8x16", shape: kernel.Fragment{M: 8, N: 8, K: 16, Lanes: 8}, form: kernel.FormRows, why: "in another order",
		acc:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		a:     held(8, 16, func(l, e int) kernel.Element { return kernel.Element{Row: e / 2, Col: 2*l + e%2} }),
		slots: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		name: "Intel 8x16x16", shape: kernel.Fragment{M: 8, N: 16, K: 16, Lanes: 16}, form: kernel.FormRegisters,
		acc:   held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		a:     held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		slots: []int{0, 1, 2, 3, 4, 5, 6, 7}, table: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		name: "K shorter than N", shape: kernel.Fragment{M: 16, N: 16, K: 8, Lanes: 32}, form: kernel.FormRows,
		why:   "K = 8 is no multiple of N = 16",
		acc:   held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} }),
		a:     held(32, 4, func(l, e int) kernel.Element { return kernel.Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} }),
		slots: []int{0, 8},
	},
	{
		name: "one component", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 64}, form: kernel.FormRows, why: "converted in pairs",
		acc:   held(64, 1, func(l, e int) kernel.Element { return kernel.Element{Row: l / 8, Col: l % 8} }),
		a:     held(64, 1, func(l, e int) kernel.Element { return kernel.Element{Row: l / 8, Col: l % 8} }),
		slots: []int{0},
	},
	{
		name: "accumulator held twice", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 16}, form: kernel.FormShared, why: "held 2 times",
		acc: held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l % 8} }),
		a:   held(16, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l % 8} }),
	},
	{
		name: "a missing element", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared, why: "held by no lane",
		acc: held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: max(l, 1)} }),
		a:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		name: "beyond the matrix", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared,
		why: "is element (65535, 65535)",
		acc: held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 65535, Col: 65535} }),
	},
	{
		name: "diagonals", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared, why: "moves both row and column",
		acc: held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: (e + l) % 8, Col: l} }),
		a:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		name: "lanes of a row by threes", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared,
		why: "no power of two",
		acc: held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: 3 * l % 8} }),
		a:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		name: "Gray code", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared, why: "moves",
		acc: held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l ^ l>>1} }),
		a:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		name: "one lane off", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared, why: "off the rule",
		acc: held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: []int{0, 1, 2, 3, 4, 5, 7, 6}[l]} }),
		a:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		name: "too many components", shape: kernel.Fragment{M: 32, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared,
		why: "hold 32 components",
		acc: held(8, 32, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		a:   held(8, 32, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
	},
	{
		name: "far components", shape: kernel.Fragment{M: 32, N: 8, K: 8, Lanes: 32}, form: kernel.FormShared, why: "passes the tables' 15",
		acc: held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 4*e + l/8, Col: l % 8} }),
		a:   held(32, 8, func(l, e int) kernel.Element { return kernel.Element{Row: 4*e + l/8, Col: l % 8} }),
	},
	{
		name: "an operand that is not probed", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormRows, why: "not probed",
		acc:   held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }),
		slots: []int{0, 1, 2, 3, 4, 5, 6, 7},
	},
	{
		name: "lanes of unequal size", shape: kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, form: kernel.FormShared,
		why: "lane 7 has 7 components",
		acc: func() kernel.HeldElements {
			h := held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} })
			h[7] = h[7][:7]
			return h
		}(),
	},
}

func TestDecodeLayout(t *testing.T) {
	for _, test := range knownLayouts {
		t.Run(test.name, func(t *testing.T) {
			l := kernel.DecodeLayout(test.shape, test.acc, test.a)
			require.Equal(t, test.form, l.Form, l.Why)
			require.Contains(t, l.Why, test.why)
			require.Equal(t, test.slots, l.RowOfSlot)
			require.Equal(t, test.table, l.AOfComp)
			if l.Form != kernel.FormShared {
				requireRule(t, test.shape, l, test.acc)
			}
			// Lanes shuffled at random follow no rule, and a form that needs none is always left.
			rng := rand.New(rand.NewPCG(1, 2))
			mixed := slices.Clone(test.acc)
			rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			if m := kernel.DecodeLayout(test.shape, mixed, test.a); m.Form != kernel.FormShared {
				requireRule(t, test.shape, m, mixed)
			}
		})
	}
}

// requireRule reads the tables as the shader does, and wants every element where it was found.
func requireRule(t require.TestingT, s kernel.Fragment, l kernel.FragmentLayout, acc kernel.HeldElements) {
	weight := func(nib, b int) int {
		if n := nib >> (4 * b) & 15; n != 0 {
			return 1 << (n - 1)
		}
		return 0
	}
	table := func(values []int, e int) int {
		lo, hi := kernel.Nibbles(values)
		if e < 8 {
			return lo >> (4 * e) & 15
		}
		return hi >> (4 * (e - 8)) & 15
	}
	part := func(nib, lane int) (sum int) {
		for b := range kernel.MaxLaneBits {
			sum += lane >> b & 1 * weight(nib, b)
		}
		return sum
	}
	rowLane, colLane := kernel.LaneNibbles(l.RowLane), kernel.LaneNibbles(l.ColLane)
	sharing := map[int]int{} // row → lanes that hold some of it
	for lane := range s.Lanes {
		rows := map[int]bool{}
		for e, x := range acc[lane] {
			require.Equal(t, x, kernel.Element{Row: part(rowLane, lane) + table(l.RowOfComp, e),
				Col: part(colLane, lane) + table(l.ColOfComp, e)})
			require.Equal(t, x.Row, part(rowLane, lane)+table(l.RowOfSlot, table(l.SlotOfComp, e)))
			rows[x.Row] = true
		}
		for row := range rows {
			sharing[row]++
		}
		require.Len(t, l.RowOfSlot, len(rows))
	}
	// The xor shuffles of a reduction reach exactly the lanes that share a row.
	reach := 1
	for b := range kernel.MaxLaneBits {
		if weight(colLane, b) != 0 {
			reach *= 2
		}
	}
	for _, n := range sharing {
		require.Equal(t, reach, n)
	}
}

// TestDecodeLinearLayouts: every layout that hands out the bits of row and column to bits of lane and component is understood.
func TestDecodeLinearLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		laneBits, compBits := rapid.IntRange(0, 6).Draw(t, "lane bits"), rapid.IntRange(1, 4).Draw(t, "component bits")
		rowBits := rapid.IntRange(0, min(4, laneBits+compBits)).Draw(t, "row bits")
		colBits := laneBits + compBits - rowBits
		if colBits > 4 {
			t.Skip("columns beyond the tables")
		}
		order := rapid.Permutation(seq(laneBits+compBits)).Draw(t, "order")
		s := kernel.Fragment{M: 1 << rowBits, N: 1 << colBits, K: 1 << colBits, Lanes: 1 << laneBits}
		place := func(lane, e int) kernel.Element {
			word, x := lane|e<<laneBits, 0
			for i, to := range order {
				x |= word >> i & 1 << to
			}
			return kernel.Element{Row: x >> colBits, Col: x & (s.N - 1)}
		}
		acc := held(s.Lanes, 1<<compBits, place)
		perm := rapid.Permutation(seq(1<<compBits)).Draw(t, "operand")
		a := held(s.Lanes, 1<<compBits, func(lane, e int) kernel.Element { return place(lane, perm[e]) })
		l := kernel.DecodeLayout(s, acc, a)
		if l.Form != kernel.FormRegisters {
			t.Fatalf("form %d: %s", l.Form, l.Why)
		}
		requireRule(t, s, l, acc)
		for e, at := range l.AOfComp {
			if perm[at] != e {
				t.Fatalf("component %d goes to %d, which is component %d", e, at, perm[at])
			}
		}
	})
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestReadHeld(t *testing.T) {
	s := kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}
	good := make([]uint32, 4+8*2*kernel.ProbeSlots)
	good[0], good[1], good[2] = 8, 8, 8
	for lane := range 8 {
		for e := range 8 {
			good[4+2*lane*kernel.ProbeSlots+e] = uint32(e<<16 | lane)
			good[4+(2*lane+1)*kernel.ProbeSlots+e] = uint32(lane<<16 | e)
		}
	}
	acc, a, err := kernel.ReadHeld(good, s)
	require.NoError(t, err)
	require.Equal(t, held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }), acc)
	require.Equal(t, held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l, Col: e} }), a)
	for at, v := range map[int]uint32{0: 0, 1: 65, 2: 16} {
		bad := slices.Clone(good)
		bad[at] = v
		_, _, err := kernel.ReadHeld(bad, s)
		require.Error(t, err)
	}
}
