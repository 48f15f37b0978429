package report

import "github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"

// PeakRates shows the measured peaks of arithmetic in one unit: "76.3 GFLOP/s"; "" for one that was not measured.
func PeakRates(cpu bool, p result.Peaks) (matrix, fp32 string) {
	unit := result.RateUnit(cpu, p.MatrixTFLOPS, p.FP32TFLOPS)
	show := func(v float64) string {
		if v <= 0 {
			return ""
		}
		return Digits(v*unit.Scale) + " " + unit.Name
	}
	return show(p.MatrixTFLOPS), show(p.FP32TFLOPS)
}
