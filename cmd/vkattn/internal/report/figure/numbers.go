package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Number writes a size as people do: 512, 1k, 16k.
func Number(v float64) string {
	if v >= 1024 && math.Mod(v, 1024) == 0 {
		return strconv.FormatFloat(v/1024, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Shown writes a value of a table with four significant digits, thousands apart; of larger ones all before the point.
func Shown(v float64) string { return significant(v, 4) }

// plain writes a value of a drawing with three.
func plain(v float64) string { return significant(v, 3) }

// significant has no exponent and no zeros at the end; what is nearer to zero than six places after the point has an exponent.
func significant(v float64, digits int) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0) || a >= 1e15 || a < 1e-6:
		return strconv.FormatFloat(v, 'g', digits, 64)
	}
	after := max(0, digits-1-int(math.Floor(math.Log10(a))))
	s := fmt.Sprintf("%.*f", after, v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return thousands(s)
}

// thousands sets commas between the thousands of a number.
func thousands(s string) string {
	whole, rest, point := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + rest
	}
	return sign + whole
}
