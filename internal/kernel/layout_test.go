package kernel_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/tiles"
)

func TestDecodeLayout(t *testing.T) {
	for _, test := range kerneltest.Layouts {
		t.Run(test.Name, func(t *testing.T) {
			l := kernel.DecodeLayout(test.Shape, test.Acc, test.A)
			require.Equal(t, test.Form, l.Form, l.Why)
			require.Contains(t, l.Why, test.Why)
			require.Equal(t, test.Slots, l.RowOfSlot)
			require.Equal(t, test.Table, l.AOfComp)
			if l.Form != kernel.FormShared {
				requireRule(t, test.Shape, l, test.Acc)
			}
			// Lanes shuffled at random follow no rule, and a form that needs none is always left.
			rng := rand.New(rand.NewPCG(1, 2))
			mixed := slices.Clone(test.Acc)
			rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			if m := kernel.DecodeLayout(test.Shape, mixed, test.A); m.Form != kernel.FormShared {
				requireRule(t, test.Shape, m, mixed)
			}
		})
	}
}

// TestPublishedLayouts: what stands in for a probe is said twice, here and in kerneltest, where the rules are checked; and devices of
// families that there are have it.
func TestPublishedLayouts(t *testing.T) {
	families := map[string]bool{}
	for _, f := range tiles.Families() {
		families[f.Name] = true
	}
	for _, p := range kernel.PublishedLayouts() {
		require.True(t, families[p.Family], p.Family)
		require.True(t, slices.ContainsFunc(kerneltest.Layouts, func(l kerneltest.Layout) bool {
			return l.Shape == p.Shape && reflect.DeepEqual(l.Acc, p.Accumulator) && reflect.DeepEqual(l.A, p.A)
		}), "%s of %s", p.Name, p.Family)
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
		acc := kernel.Held(s.Lanes, 1<<compBits, place)
		perm := rapid.Permutation(seq(1<<compBits)).Draw(t, "operand")
		a := kernel.Held(s.Lanes, 1<<compBits, func(lane, e int) kernel.Element { return place(lane, perm[e]) })
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
	require.Equal(t, kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: e, Col: l} }), acc)
	require.Equal(t, kernel.Held(8, 8, func(l, e int) kernel.Element { return kernel.Element{Row: l, Col: e} }), a)
	for at, v := range map[int]uint32{0: 0, 1: 65, 2: 16} {
		bad := slices.Clone(good)
		bad[at] = v
		_, _, err := kernel.ReadHeld(bad, s)
		require.Error(t, err)
	}
}
