package kernel

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/vkattn/vkattn/pipeline"
)

// A cooperative matrix is spread over the invocations ("lanes") of a subgroup; each holds some of its elements as numbered
// components. Where an element lies is the driver's affair. This file reads what matrix_probe.comp found and asks whether the
// places follow a rule that shaders/matrix/matrix_forward.comp can be specialized with:
//
//	row(lane, e)    = Σ over set bits b of lane: RowLane[b]  +  RowOfComp[e]
//	column(lane, e) = Σ over set bits b of lane: ColLane[b]  +  ColOfComp[e]
//
// where a lane bit moves the row or the column and never both. Then a row's statistics are combined across the lanes that
// share it by xor shuffles over the bits with a ColLane.

// Element is a place in a matrix.
type Element struct{ Row, Col int }

// Fragment is the shape of the fragments that one multiplication takes, and the subgroup that holds them.
type Fragment struct{ M, N, K, Lanes int }

func (s Fragment) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

// Subgroups is how kernels are built whose subgroups have such fragments.
func (s Fragment) Subgroups() pipeline.KernelInfo {
	return pipeline.KernelInfo{SubgroupSize: uint32(s.Lanes), FullSubgroups: true}
}

// HeldElements lists, for each lane, which element each component is.
type HeldElements [][]Element

// The forms of matrix_forward.
const (
	FormRegisters = 1 // P goes from accumulator to operand within each lane
	FormRows      = 2 // Row statistics in registers, P through shared memory
	FormShared    = 3 // everything through shared memory: right for any layout
)

// FragmentLayout is what matrix_forward is told of a layout. In form 3 all tables are zero.
type FragmentLayout struct {
	Form int    // the best form that the layout allows
	Why  string // why not a better one

	RowLane, ColLane []int // weight of each lane bit, 0 or a power of two
	RowOfComp        []int // of the accumulator
	ColOfComp        []int
	SlotOfComp       []int // a lane's rows, numbered
	RowOfSlot        []int // their first row
	// AOfComp says which component of the operand takes an accumulator's: entry f·components + e is for component e of the
	// f-th of the K/N accumulators that make one operand.
	AOfComp []int
}

// The tables are nibbles in two words: at most 16 entries of at most 15. A lane bit's nibble n stands for the weight 2^(n−1),
// and the shader looks at seven of them.
const (
	maxComponents = 16
	maxNibble     = 15
	MaxLaneBits   = 7
)

// DecodeLayout finds the rule behind a layout and the best form that it allows.
func DecodeLayout(s Fragment, acc, a HeldElements) FragmentLayout {
	l, why := decodeAccumulator(s, acc)
	if why != "" {
		return FragmentLayout{Form: FormShared, Why: "the accumulator's " + why}
	}
	l.Form = FormRows
	if l.AOfComp, l.Why = matchOperand(s, acc, a); l.Why == "" {
		l.Form = FormRegisters
	}
	return l
}

// covers says how often each element of a rows × cols matrix is held: "" when every one is, exactly once.
func covers(held HeldElements, rows, cols int) string {
	count := make([]int, rows*cols)
	for lane, comps := range held {
		if len(comps) != len(held[0]) {
			return fmt.Sprintf("lane %d has %d components and lane 0 has %d", lane, len(comps), len(held[0]))
		}
		for e, x := range comps {
			if x.Row < 0 || x.Row >= rows || x.Col < 0 || x.Col >= cols {
				return fmt.Sprintf("component %d of lane %d is element (%d, %d) of a %d×%d matrix", e, lane, x.Row, x.Col, rows, cols)
			}
			count[x.Row*cols+x.Col]++
		}
	}
	for i, n := range count {
		switch {
		case n == 0:
			return fmt.Sprintf("element (%d, %d) is held by no lane", i/cols, i%cols)
		case n > 1:
			return fmt.Sprintf("element (%d, %d) is held %d times", i/cols, i%cols, n)
		}
	}
	return ""
}

func decodeAccumulator(s Fragment, acc HeldElements) (l FragmentLayout, why string) {
	if len(acc) != s.Lanes || bits.OnesCount(uint(s.Lanes)) != 1 || s.Lanes > 1<<MaxLaneBits {
		return l, fmt.Sprintf("subgroup has %d lanes, and %d were probed", s.Lanes, len(acc))
	}
	if why := covers(acc, s.M, s.N); why != "" {
		return l, why
	}
	if n := len(acc[0]); n > maxComponents {
		return l, fmt.Sprintf("lanes hold %d components, and the tables take %d", n, maxComponents)
	}
	for b := 1; b < s.Lanes; b *= 2 {
		row, col := acc[b][0].Row-acc[0][0].Row, acc[b][0].Col-acc[0][0].Col
		switch {
		case row != 0 && col != 0:
			return l, fmt.Sprintf("lane bit %d moves both row and column", b)
		case row < 0 || col < 0 || bits.OnesCount(uint(row)) > 1 || bits.OnesCount(uint(col)) > 1:
			return l, fmt.Sprintf("lane bit %d moves by (%d, %d), no power of two", b, row, col)
		}
		l.RowLane, l.ColLane = append(l.RowLane, row), append(l.ColLane, col)
	}
	for _, x := range acc[0] {
		if x.Row > maxNibble || x.Col > maxNibble {
			return l, fmt.Sprintf("component (%d, %d) passes the tables' %d", x.Row, x.Col, maxNibble)
		}
		l.RowOfComp, l.ColOfComp = append(l.RowOfComp, x.Row), append(l.ColOfComp, x.Col)
	}
	for lane, comps := range acc {
		row, col := 0, 0
		for b := range l.RowLane {
			if lane>>b&1 != 0 {
				row, col = row+l.RowLane[b], col+l.ColLane[b]
			}
		}
		for e, x := range comps {
			if x.Row != row+l.RowOfComp[e] || x.Col != col+l.ColOfComp[e] {
				return l, fmt.Sprintf("component %d of lane %d is element (%d, %d), off the rule", e, lane, x.Row, x.Col)
			}
		}
	}
	l.RowOfSlot = slices.Clone(l.RowOfComp)
	slices.Sort(l.RowOfSlot)
	l.RowOfSlot = slices.Compact(l.RowOfSlot)
	for _, row := range l.RowOfComp {
		l.SlotOfComp = append(l.SlotOfComp, slices.Index(l.RowOfSlot, row))
	}
	return l, ""
}

// matchOperand looks, in every lane, for the component of the operand that is the accumulator's element: K/N accumulators
// side by side make one operand, and each lane must hold of it what it holds of them, at the same places in every lane.
func matchOperand(s Fragment, acc, a HeldElements) (table []int, why string) {
	if s.K%s.N != 0 {
		return nil, fmt.Sprintf("K = %d is no multiple of N = %d", s.K, s.N)
	}
	if len(a) != len(acc) {
		return nil, "the operand was not probed in every lane"
	}
	if why := covers(a, s.M, s.K); why != "" {
		return nil, "the operand's " + why
	}
	n := len(a[0])
	if len(acc[0])%2 != 0 {
		return nil, "the accumulator has one component a lane, and they are converted in pairs"
	}
	if n > maxComponents {
		return nil, fmt.Sprintf("the operand has %d components a lane, and the table takes %d", n, maxComponents)
	}
	for f := range s.K / s.N {
		for e, x := range acc[0] {
			at := slices.Index(a[0], Element{x.Row, x.Col + f*s.N})
			if at < 0 {
				return nil, fmt.Sprintf("lane 0 holds element (%d, %d) of the accumulator and not of the operand", x.Row, x.Col+f*s.N)
			}
			for lane := range acc {
				y := acc[lane][e]
				if a[lane][at] != (Element{y.Row, y.Col + f*s.N}) {
					return nil, fmt.Sprintf("lane %d holds the operand in another order than lane 0", lane)
				}
			}
			table = append(table, at)
		}
	}
	if len(table) != n {
		return nil, fmt.Sprintf("the operand has %d components a lane, and %d accumulators have %d", n, s.K/s.N, len(table))
	}
	return table, ""
}

// Constants are the tables that say where elements of a fragment sit, as shaders/include/matrix_layout.glsl unpacks them.
func (l *FragmentLayout) Constants() Constants {
	c := Constants{"SLOTS": max(1, len(l.RowOfSlot)), "ROW_LANE": LaneNibbles(l.RowLane), "COL_LANE": LaneNibbles(l.ColLane)}
	for _, t := range []struct {
		name  string
		table []int
	}{{"ROW_OF_COMP", l.RowOfComp}, {"COL_OF_COMP", l.ColOfComp}, {"SLOT_OF_COMP", l.SlotOfComp}, {"A_OF_COMP", l.AOfComp},
		{"ROW_OF_SLOT", l.RowOfSlot}} {
		lo, hi := Nibbles(t.table)
		c[t.name+"_LO"], c[t.name+"_HI"] = lo, hi
	}
	return c
}

// Nibbles packs a table into two words, the first eight entries in the first.
func Nibbles(table []int) (lo, hi int) {
	var w [2]uint32
	for i, v := range table {
		w[i/8] |= uint32(v) << (4 * (i % 8))
	}
	return int(w[0]), int(w[1])
}

// LaneNibbles packs the weights of lane bits: 0 for none, n for 2^(n−1).
func LaneNibbles(weights []int) int {
	var w uint32
	for b, v := range weights {
		w |= uint32(bits.Len(uint(v))) << (4 * b)
	}
	return int(w)
}

// PairsOfOperands says whether what a lane holds of accumulators it holds, by twos, side by side in an operand A, and an operand holds
// nothing else: so words of operands are made of pairs of components.
func (l *FragmentLayout) PairsOfOperands() bool {
	for e := 0; e+1 < len(l.AOfComp); e += 2 {
		if l.AOfComp[e]%2 != 0 || l.AOfComp[e+1] != l.AOfComp[e]+1 {
			return false
		}
	}
	return len(l.AOfComp) > 0 && len(l.AOfComp)%2 == 0
}
