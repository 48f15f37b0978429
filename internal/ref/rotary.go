package ref

import "fmt"

// Rotary turns pairs of the first R columns of every row x_n of a tensor [B, H, N, D] by angles of which cos and sin are given, [B|1, 1, N,
// R/2]:
//
//	y_a = cos_i · x_a − sin_i · x_b
//	y_b = sin_i · x_a + cos_i · x_b
//
// where pair i is (a, b) = (2i, 2i+1) if interleaved, else (i, i + R/2). Columns from R on stay as they are.
//
// Source: Su et al., RoFormer (2021), equation 34.
func Rotary(x, cos, sin Tensor, interleaved bool) (Array, error) {
	for _, t := range []struct {
		name string
		t    Tensor
	}{{"x", x}, {"cos", cos}, {"sin", sin}} {
		if err := t.t.check(t.name); err != nil {
			return Array{}, err
		}
	}
	half := cos.D
	switch {
	case 2*half > x.D:
		return Array{}, fmt.Errorf("ref: %d angles turn %d columns: there are %d", half, 2*half, x.D)
	case cos.B != sin.B || cos.H != 1 || sin.H != 1 || cos.N != sin.N || sin.D != half:
		return Array{}, fmt.Errorf("ref: cos is [%d %d %d %d] and sin [%d %d %d %d]: want the same, for all heads", cos.B, cos.H, cos.N,
			cos.D, sin.B, sin.H, sin.N, sin.D)
	case !broadcasts(cos.B, x.B) || cos.N != x.N:
		return Array{}, fmt.Errorf("ref: angles [%d 1 %d %d] do not fit x [%d %d %d %d]", cos.B, cos.N, half, x.B, x.H, x.N, x.D)
	}
	y := NewArray(x.B, x.H, x.N, x.D)
	for _, r := range AllRows(x) {
		from, to := x.Row(r.B, r.H, r.I), y.Row(r.B, r.H, r.I)
		for d, v := range from {
			to[d] = float64(v)
		}
		cs, sn := cos.broadcastRow(r.B, 0, r.I), sin.broadcastRow(r.B, 0, r.I)
		for i := range half {
			a, b := i, i+half
			if interleaved {
				a, b = 2*i, 2*i+1
			}
			xa, xb, c, s := float64(from[a]), float64(from[b]), float64(cs[i]), float64(sn[i])
			to[a], to[b] = c*xa-s*xb, s*xa+c*xb
		}
	}
	return y, nil
}
