package report

import (
	"slices"

	"github.com/vkattn/vkattn/internal/bench"
)

// RateUnit is what rates in TFLOP/s that stand together are shown in: GFLOP/s for a CPU, and where none reaches a tenth of a TFLOP/s.
func RateUnit(cpu bool, tflops ...float64) bench.Unit {
	if most := slices.Max(append(tflops, 0)); cpu || most > 0 && most < 0.1 {
		return bench.Unit{Name: "GFLOP/s", Scale: 1000}
	}
	return bench.Unit{Name: "TFLOP/s", Scale: 1}
}

// PeakRates shows the measured peaks of arithmetic in one unit: "76.3 GFLOP/s"; "" for one that was not measured.
func PeakRates(cpu bool, p bench.Peaks) (matrix, fp32 string) {
	unit := RateUnit(cpu, p.MatrixTFLOPS, p.FP32TFLOPS)
	show := func(v float64) string {
		if v <= 0 {
			return ""
		}
		return Digits(v*unit.Scale) + " " + unit.Name
	}
	return show(p.MatrixTFLOPS), show(p.FP32TFLOPS)
}
