package report

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/bench"
)

// backwardOf gives the same results with the backward pass's figures in the place of forward's, for what is done to both
// alike; rows without them are left out.
func backwardOf(r *Results) *Results {
	out := &Results{Header: r.Header, PeerImpls: r.PeerImpls}
	turn := func(rows []bench.Row) (turned []bench.Row) {
		for _, row := range rows {
			if row.Bwd.Ms > 0 {
				row.Fwd, row.Bwd = row.Bwd, bench.Pass{}
				row.MaxErr, row.ErrMax, row.ErrRows = row.BwdMaxErr, row.BwdErrMax, row.BwdErrRows
				turned = append(turned, row)
			}
		}
		return turned
	}
	out.Rows, out.Peers = turn(r.Rows), turn(r.Peers)
	return out
}

// backwardRatios compares backward passes.
type backwardRatios struct{ x *index }

func newBackwardRatios(r *Results) backwardRatios {
	return backwardRatios{x: newIndex(backwardOf(r))}
}

func (b backwardRatios) of(row bench.Row) ratios {
	row.Fwd = row.Bwd
	return b.x.of(row)
}

// backwardColumns are what was measured of the backward pass.
func backwardColumns(r *Results, x *index) []column {
	rows, _ := ordered(backwardOf(r))
	unit, scale := rateUnit(rows)
	b := newBackwardRatios(r)
	cols := []column{
		{name: "bwd ms", value: func(r *bench.Row, _ *ratios) string {
			if r.BwdError != "" {
				return reasonWord(r.BwdReason)
			}
			return Digits(r.Bwd.Ms)
		}},
		{name: "bwd ±", value: func(r *bench.Row, _ *ratios) string { return spread(r.Bwd) }},
		{name: "bwd " + unit, value: func(r *bench.Row, _ *ratios) string { return Digits(r.Bwd.TFLOPS * scale) }},
		{name: "bwd peak MiB", value: func(r *bench.Row, _ *ratios) string {
			if r.Bwd.PeakMiB == nil {
				return ""
			}
			return mib(*r.Bwd.PeakMiB)
		}},
		{name: "fwd+bwd ms", value: func(r *bench.Row, _ *ratios) string {
			if r.Fwd.Ms == 0 || r.Bwd.Ms == 0 {
				return ""
			}
			return Digits(r.Fwd.Ms + r.Bwd.Ms)
		}},
		{name: "bwd max err", value: func(r *bench.Row, _ *ratios) string {
			if r.BwdMaxErr == nil {
				return ""
			}
			return fmt.Sprintf("%.1e", *r.BwdMaxErr)
		}},
		{name: "bwd × standard", value: func(r *bench.Row, _ *ratios) string {
			if !IsOurs(*r) {
				return ""
			}
			return times(b.of(*r).standard)
		}},
	}
	for i, impl := range x.impls {
		cols = append(cols, column{name: "bwd × " + impl, value: func(r *bench.Row, _ *ratios) string {
			if q := b.of(*r); IsOurs(*r) && i < len(q.peers) {
				return times(q.peers[i])
			}
			return ""
		}})
	}
	return cols
}

// csvBackwardHeader and csvBackward are the columns of the backward pass in CSV.
var csvBackwardHeader = []string{"dropout", "density", "tuning", "fwd_bytes", "bwd_bytes", "bwd_kernel", "bwd_ms", "bwd_p20_ms", "bwd_p80_ms", "bwd_wall_ms", "bwd_tflops", "bwd_peak_MiB", "bwd_block_MiB",
	"bwd_total_MiB", "bwd_n", "bwd_max_err", "bwd_err_bound", "bwd_err_rows", "bwd_error"}

func csvBackward(row *bench.Row) []string {
	p := &row.Bwd
	return []string{number(row.Dropout), number(row.Density), string(row.Tuning), number(row.Fwd.Bytes), number(row.Bwd.Bytes), row.BwdKernel, number(p.Ms), number(p.P20), number(p.P80), number(p.WallMs), number(p.TFLOPS), optional(p.PeakMiB), number(p.BlockMiB),
		number(p.TotalMiB), number(float64(p.N)), optional(row.BwdMaxErr), optional(row.BwdErrMax), number(float64(row.BwdErrRows)), row.BwdError}
}
