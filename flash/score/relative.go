package score

import "math"

// RelativeBias adds a learned number for each query head and class of relative positions:
//
//	s′ = s + table[bucket(i, j), h]
//
// table is [buckets, H], a table or a captured tensor, which then has a gradient. T5Bucket and SwinBucket are the usual classes.
func RelativeBias(table FloatTensor, bucket Int) Function {
	return made(S().Add(table.At(bucket, Head())))
}

// T5Bucket is T5's class of the relative position r = j − (i + Nk − Nq), one of a number of buckets. With n = buckets, halved if
// bidirectional, and e = n/2, a distance d is in bucket
//
//	d                                            d < e
//	min(e + ⌊ln(d/e) / ln(maxDistance/e) · (n − e)⌋, n − 1)   otherwise
//
// Bidirectional, d = |r| and keys behind the query are in the second half; otherwise d = max(−r, 0). The classes are computed here, in fp32
// as Hugging Face Transformers does (T5Attention._relative_position_bucket), and looked up. (Raffel et al., "Exploring the Limits of
// Transfer Learning with a Unified Text-to-Text Transformer", JMLR 2020, section 2.1; buckets 32 and maxDistance 128 there.)
//
// buckets must be at least 2, 4 if bidirectional and then even, and maxDistance greater than e and at most 2²⁰.
func T5Bucket(bidirectional bool, buckets, maxDistance int) Int {
	n := buckets
	if bidirectional {
		n /= 2
	}
	e := n / 2
	switch {
	case n < 2 || buckets > math.MaxInt32:
		return Int{bad("T5Bucket: %d buckets: must be at least 2, 4 if bidirectional", buckets)}
	case bidirectional && buckets%2 != 0:
		return Int{bad("T5Bucket: %d buckets: must be even if bidirectional", buckets)}
	case maxDistance <= e || maxDistance > 1<<20:
		return Int{bad("T5Bucket: maxDistance is %d: must be greater than %d and at most 2²⁰", maxDistance, e)}
	}
	class := func(d int) int32 {
		if d < e {
			return int32(d)
		}
		ratio := float32(math.Log(float64(float32(d)/float32(e)))) / float32(math.Log(float64(maxDistance)/float64(e)))
		return int32(min(e+int(ratio*float32(n-e)), n-1))
	}
	// Beyond maxDistance every distance is of the last class, which is what a clamped index reads.
	values := make([]int32, 2*maxDistance+1)
	for at := range values {
		switch r := at - maxDistance; {
		case !bidirectional:
			values[at] = class(max(-r, 0))
		case r > 0:
			values[at] = int32(n) + class(r)
		default:
			values[at] = class(-r)
		}
	}
	return TableInt(values, len(values)).At(Key().Sub(Position()).Add(ConstInt(maxDistance)))
}

// SwinBucket is the class of a pair in a window of height × width patches, numbered row by row: with y and x the coordinates in the window
//
//	(y(i) − y(j) + height − 1)·(2·width − 1) + x(i) − x(j) + width − 1
//
// of (2·height − 1)·(2·width − 1) classes. Queries and keys are the same patches, a window being an entry of the batch. (Liu et al., "Swin
// Transformer", ICCV 2021, section 3.2, "Relative position bias".)
func SwinBucket(height, width int) Int {
	if height < 1 || width < 1 || height > 1<<14 || width > 1<<14 {
		return Int{bad("SwinBucket(%d, %d): height and width must be from 1 to 2¹⁴", height, width)}
	}
	w := ConstInt(width)
	y := Query().Div(w).Sub(Key().Div(w)).Add(ConstInt(height - 1))
	x := Query().Mod(w).Sub(Key().Mod(w)).Add(ConstInt(width - 1))
	return y.Mul(ConstInt(2*width - 1)).Add(x)
}
