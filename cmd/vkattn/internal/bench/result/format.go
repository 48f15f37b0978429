package result

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Digits keeps three or four significant digits and no exponent.
func Digits(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return ""
	case a >= 1000:
		return Fixed(v, 0)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.3f", v)
	case a >= 0.001:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// Fixed has so many decimals, or three digits and a power of ten where there would be more than nine before them: a file may hold any
// number.
func Fixed(v float64, decimals int) string {
	if math.Abs(v) >= 1e9 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Times is a ratio; "" for what is none.
func Times(v float64) string {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return ""
	}
	switch {
	case v >= 100:
		return Fixed(v, 0)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

func mib(v float64) string {
	if v >= 100 {
		return Fixed(v, 0)
	}
	if v >= 0.1 || v == 0 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.1g", v)
}

func scientific(v float64) string { return fmt.Sprintf("%.1e", v) }

func whole(v float64) string { return strconv.Itoa(int(v)) }

func optional(v *float64, format func(float64) string) string {
	if v == nil {
		return ""
	}
	return format(*v)
}

func unlessZero(v float64, format func(float64) string) string {
	if v == 0 {
		return ""
	}
	return format(v)
}

// number is empty for 0, which stands for "not measured".
func number(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// threeDigits rounds a time, which prints as 55.9ms or 1m23.5s.
func threeDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// Round keeps six significant digits of a figure, as files do.
func Round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
