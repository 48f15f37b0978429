package score

// ALiBi lowers scores by the distance of query and key, by a slope for each query head:
//
//	s′ = s − slope[h]·|i + Nk − Nq − j|
//
// slopes is [H]. Distances are exact for up to 2²⁴ keys. (Press, Smith and Lewis, "Train Short, Test Long", ICLR 2022, section 3; the
// paper's slopes for H heads, a power of two, are 2^(−8·(h+1)/H).)
func ALiBi(slopes []float32) Function { return ALiBiFrom(Table(slopes, len(slopes))) }

// ALiBiFrom is ALiBi with slopes [H] or [B, H], a table or a captured tensor.
func ALiBiFrom(slopes FloatTensor) Function {
	index := []Int{Head()}
	if slopes.t != nil && len(slopes.t.Shape) == 2 {
		index = []Int{Batch(), Head()}
	}
	distance := Position().Float().Sub(Key().Float()).Abs()
	return made(S().Sub(slopes.At(index...).Mul(distance)))
}
