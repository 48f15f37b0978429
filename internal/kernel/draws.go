package kernel

import "slices"

// A draw of dropout serves one query and, of 64 keys, those with the same ⌊j/2⌋ mod 4 (shaders/include/dropout.glsl).

// ColumnsOfDraws says whether what a draw serves lies in one lane where columns of fragments are keys: lane q of each four holds
// columns 2q, 2q+1, 2q+8 and 2q+9 of every 16.
func (l *FragmentLayout) ColumnsOfDraws(form int) bool {
	return form == FormRegisters && only(l.ColLane, []int{0, 2, 4}) && only(l.ColOfComp, []int{0, 1, 8, 9})
}

// OwnDraws says whether all that a lane holds of a row and 64 keys has one draw, where columns of fragments are keys: as ColumnsOfDraws, or
// one of these columns and that 8 further on.
func (l *FragmentLayout) OwnDraws(form int) bool {
	return l.ColumnsOfDraws(form) ||
		form == FormRegisters && only(l.ColLane, []int{0, 1, 2, 4}) && only(l.ColOfComp, []int{0, 8})
}

// RowsOfDraws says the same of the keys among rows, of which a lane holds q and q+8, q < 8, of every 16: they share a word of a draw.
func (l *FragmentLayout) RowsOfDraws(form int) bool {
	return form == FormRegisters && only(l.RowLane, []int{0, 1, 2, 4}) && only(l.RowOfComp, []int{0, 8})
}

// PairsOfQueries says whether a lane's components, where columns of fragments are queries, are by twos columns 2n and 2n+1 of one row.
func (l *FragmentLayout) PairsOfQueries() bool {
	for _, w := range l.ColLane {
		if w%2 != 0 {
			return false
		}
	}
	for e := 0; e+1 < len(l.ColOfComp); e += 2 {
		if l.ColOfComp[e]%2 != 0 || l.ColOfComp[e+1] != l.ColOfComp[e]+1 || l.RowOfComp[e+1] != l.RowOfComp[e] {
			return false
		}
	}
	return len(l.ColOfComp)%2 == 0
}

func only(values, allowed []int) bool {
	for _, v := range values {
		if !slices.Contains(allowed, v) {
			return false
		}
	}
	return true
}

// SharesDraws says whether tiles of n keys begin and end where groups of 64 keys do, or lie within one.
func SharesDraws(n int) bool { return n%64 == 0 || 64%n == 0 }
