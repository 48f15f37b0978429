package attn

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// Quantised numbers. Blocks are those of ggml (ggml-quants.c, quantize_row_q8_0_ref and its neighbours), to the bit, so that buffers pass
// between programs: 32 numbers share a scale d in fp16, of some types a least number m too, and each is an integer from which, with these,
// it comes back. Arithmetic is fp32, as there, and each product is rounded before it is added to something, as in C without contraction.

const blockOf = 32

// block is how a type's blocks are made of 32 numbers, and these of them.
type block struct {
	encode func(dst []byte, x []float32)
	decode func(dst []float32, src []byte)
}

var blocks = map[DType]block{
	Q8_0: {encodeQ8, decodeQ8}, Q4_0: {encodeQ4, decodeQ4}, Q4_1: {encodeQ4m, decodeQ4m}, Q5_0: {encodeQ5, decodeQ5},
	Q5_1: {encodeQ5m, decodeQ5m}, IQ4_NL: {encodeIQ4, decodeIQ4},
}

func putHalf(dst []byte, x float32) {
	binary.LittleEndian.PutUint16(dst, float16.Fromfloat32(x).Bits())
}
func halfAt(src []byte) float32   { return float16.Frombits(binary.LittleEndian.Uint16(src)).Float32() }
func magnitude(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
func inverseOf(d float32) (i float32) {
	if d != 0 {
		i = 1 / d
	}
	return i
}

// encodeQ8 takes d = max|x| / 127 and q = x/d to the nearest integer, halves away from zero.
func encodeQ8(dst []byte, x []float32) {
	most := float32(0)
	for _, v := range x {
		most = max(most, magnitude(v))
	}
	d := most / 127
	putHalf(dst, d)
	inverse := inverseOf(d)
	for i, v := range x {
		dst[2+i] = byte(int8(math.Round(float64(v * inverse))))
	}
}

func decodeQ8(dst []float32, src []byte) {
	d := halfAt(src)
	for i := range dst {
		dst[i] = float32(int8(src[2+i])) * d
	}
}

// largestOf is the number of largest magnitude with its sign, the first of several.
func largestOf(x []float32) (largest float32) {
	for _, v := range x {
		if magnitude(v) > magnitude(largest) {
			largest = v
		}
	}
	return largest
}

// endsOf are the smallest and the largest number, the first of several.
func endsOf(x []float32) (least, most float32) {
	least, most = x[0], x[0]
	for _, v := range x {
		if v < least {
			least = v
		}
		if v > most {
			most = v
		}
	}
	return least, most
}

// putHalves puts the lower four bits of q, of j and of j+16 into byte j.
func putHalves(dst []byte, q *[blockOf]byte) {
	for i := range blockOf / 2 {
		dst[i] = q[i]&15 | q[i+blockOf/2]<<4
	}
}

func halves(src []byte) (q [blockOf]byte) {
	for i := range blockOf / 2 {
		q[i], q[i+blockOf/2] = src[i]&15, src[i]>>4
	}
	return q
}

// putFifths puts the fifth bits of q into a word, and the others behind it.
func putFifths(dst []byte, q *[blockOf]byte) {
	word := uint32(0)
	for i, v := range q {
		word |= uint32(v>>4) << i
	}
	binary.LittleEndian.PutUint32(dst, word)
	putHalves(dst[4:], q)
}

func fifths(src []byte) (q [blockOf]byte) {
	q = halves(src[4:])
	word := binary.LittleEndian.Uint32(src)
	for i := range q {
		q[i] |= byte(word>>i&1) << 4
	}
	return q
}

// signedSteps takes d = m / −n, where m is the number of largest magnitude with its sign, and q = x/d + n to the nearest integer from 0 to
// 2n−1.
func signedSteps(dst []byte, x []float32, n float32) (q [blockOf]byte) {
	d := largestOf(x) / -n
	putHalf(dst, d)
	inverse := inverseOf(d)
	for i, v := range x {
		scaled := v * inverse // rounded to fp32 before the sum
		q[i] = byte(min(int8(2*n-1), int8(scaled+(n+0.5))))
	}
	return q
}

func fromSigned(dst []float32, src []byte, q *[blockOf]byte, n int) {
	d := halfAt(src)
	for i, v := range q {
		dst[i] = float32(int(v)-n) * d
	}
}

// stepsUp takes m = min x and d = (max x − min x)/n, and q = (x−m)/d to the nearest integer from 0 to n, with an m that is not rounded to
// fp16 yet.
func stepsUp(dst []byte, x []float32, n float32) (q [blockOf]byte) {
	least, most := endsOf(x)
	d := (most - least) / n
	putHalf(dst, d)
	putHalf(dst[2:], least)
	inverse := inverseOf(d)
	for i, v := range x {
		scaled := (v - least) * inverse // rounded to fp32 before the sum
		q[i] = byte(min(int8(n), int8(scaled+0.5)))
	}
	return q
}

func fromLeast(dst []float32, src []byte, q *[blockOf]byte) {
	d, m := halfAt(src), halfAt(src[2:])
	for i, v := range q {
		dst[i] = float32(v)*d + m // the product is exact
	}
}

func encodeQ4(dst []byte, x []float32) {
	q := signedSteps(dst, x, 8)
	putHalves(dst[2:], &q)
}

func decodeQ4(dst []float32, src []byte) {
	q := halves(src[2:])
	fromSigned(dst, src, &q, 8)
}

func encodeQ4m(dst []byte, x []float32) {
	q := stepsUp(dst, x, 15)
	putHalves(dst[4:], &q)
}

func decodeQ4m(dst []float32, src []byte) {
	q := halves(src[4:])
	fromLeast(dst, src, &q)
}

func encodeQ5(dst []byte, x []float32) {
	q := signedSteps(dst, x, 16)
	putFifths(dst[2:], &q)
}

func decodeQ5(dst []float32, src []byte) {
	q := fifths(src[2:])
	fromSigned(dst, src, &q, 16)
}

func encodeQ5m(dst []byte, x []float32) {
	q := stepsUp(dst, x, 31)
	putFifths(dst[4:], &q)
}

func decodeQ5m(dst []float32, src []byte) {
	q := fifths(src[4:])
	fromLeast(dst, src, &q)
}

// tableIQ4 is what IQ4_NL's four bits stand for: denser around 0, as numbers are.
var tableIQ4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// leastIQ4 is the least magnitude of a block that has a scale.
const leastIQ4 = 1e-15

// encodeIQ4 takes the number of largest magnitude to the table's −127, and the others to the nearest in the table, the larger of two; then
// d = Σ x²·t·x / Σ x²·t·t, which for these t makes Σ x²·(d·t − x)² least. Sums go from the first number to the last. (That is what ggml's
// reference does, which asks for no further search; of blocks below leastIQ4 it leaves q of the block before, and here they are 0.)
func encodeIQ4(dst []byte, x []float32) {
	clear(dst)
	largest := largestOf(x)
	if magnitude(largest) < leastIQ4 {
		return
	}
	inverse := 1 / (largest / float32(tableIQ4[0]))
	var q [blockOf]byte
	above, below := float32(0), float32(0)
	for i, v := range x {
		q[i] = nearestIQ4(inverse * v)
		t, weight := float32(tableIQ4[q[i]]), v*v
		weighed := weight * t
		above += float32(weighed * v)
		below += float32(weighed * t)
	}
	d := above / below
	if d != d {
		d = float32(math.Copysign(math.NaN(), -1)) // as x86 has it, of two infinities
	}
	putHalf(dst, d)
	putHalves(dst[2:], &q)
}

// nearestIQ4 is the number of the table's entry that is nearest, of two the larger one.
func nearestIQ4(x float32) byte {
	last := len(tableIQ4) - 1
	if !(x > float32(tableIQ4[0])) {
		return 0
	}
	for i := range last {
		low, high := float32(tableIQ4[i]), float32(tableIQ4[i+1])
		if x < high {
			if x-low < high-x {
				return byte(i)
			}
			return byte(i + 1)
		}
	}
	return byte(last)
}

func decodeIQ4(dst []float32, src []byte) {
	d := halfAt(src)
	for i, v := range halves(src[2:]) {
		dst[i] = float32(tableIQ4[v]) * d
	}
}

// fp8 e4m3 (Micikevicius et al., FP8 Formats for Deep Learning, 2022, table 1): the exponent's bias is 7, all ones in exponent and mantissa
// are a NaN, and there are no infinities.
const (
	mostF8 = 448
	nanF8  = 0x7f
)

// encodeF8 rounds to nearest even; what is too large becomes the largest number there is.
func encodeF8(v float32) byte {
	sign := byte(math.Float32bits(v) >> 24 & 0x80)
	a := float32(math.Abs(float64(v)))
	switch {
	case v != v:
		return sign | nanF8
	case a >= mostF8:
		return sign | 0x7e
	}
	exponent := -6 // of denormals and of the smallest normal numbers
	if a >= 1.0/64 {
		exponent = int(math.Float32bits(a)>>23) - 127
	}
	// mantissa with its leading one, 16 where it rounds up to the next power
	n := byte(math.RoundToEven(math.Ldexp(float64(a), 3-exponent)))
	if n < 8 {
		return sign | n
	}
	return sign | byte(exponent+7)<<3 + (n - 8)
}

func decodeF8(b byte) float32 {
	magnitude := b & 0x7f
	exponent, mantissa := int(magnitude>>3), uint32(magnitude&7)
	var a float64
	switch {
	case magnitude == nanF8:
		return float32(math.NaN())
	case exponent == 0:
		a = math.Ldexp(float64(mantissa), -9)
	default:
		a = math.Ldexp(float64(8+mantissa), exponent-10)
	}
	if b&0x80 != 0 {
		a = -a
	}
	return float32(a)
}

// encodeE5M2 is encodeF8 for fp8 e5m2 (table 1 there): the exponent's bias is 15, and there are infinities, which nothing becomes: what is
// beyond the largest number, 57344, becomes that.
func encodeE5M2(v float32) byte {
	sign := byte(math.Float32bits(v) >> 24 & 0x80)
	a := magnitude(v)
	switch {
	case v != v:
		return sign | nanF8
	case a >= mostE5M2:
		return sign | 0x7b
	}
	exponent := -14 // of denormals and of the smallest normal numbers
	if a >= 1.0/(1<<14) {
		exponent = int(math.Float32bits(a)>>23) - 127
	}
	// mantissa with its leading one, 8 where it rounds up to the next power
	n := byte(math.RoundToEven(math.Ldexp(float64(a), 2-exponent)))
	if n < 4 {
		return sign | n
	}
	return sign | byte(exponent+15)<<2 + (n - 4)
}

const mostE5M2 = 57344
