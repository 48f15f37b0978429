package report

import "github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"

// backwardOf gives the same results with the backward pass's figures in the place of forward's, for what is done to both
// alike; rows without them are left out.
func backwardOf(r *Results) *Results {
	out := &Results{Header: r.Header, PeerImpls: r.PeerImpls}
	turn := func(rows []result.Row) (turned []result.Row) {
		for _, row := range rows {
			if row.Bwd.Ms > 0 {
				row.Fwd, row.Bwd, row.Kernel = row.Bwd, result.Pass{}, row.BwdKernel
				row.MaxErr, row.ErrMax, row.ErrRows = row.BwdCheck.MaxErr, row.BwdCheck.ErrMax, row.BwdCheck.ErrRows
				turned = append(turned, row)
			}
		}
		return turned
	}
	out.Rows, out.Peers = turn(r.Rows), turn(r.Peers)
	return out
}
