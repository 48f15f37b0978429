package score

import "math"

// A word holds a value of any kind: the bits of a float64, a 32-bit integer with its sign extended, or 0 and 1.

func wordOfInt(i int32) uint64 { return uint64(int64(i)) }

func wordOfBool(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// compute is one operation on words, of operands of kind k: the meaning of every operation but inputs, constants and loads.
func compute(o op, k kind, a, b, c uint64) uint64 {
	switch {
	case o == opSelect:
		if a != 0 {
			return b
		}
		return c
	case o == opToFloat:
		return math.Float64bits(float64(int32(a)))
	case k == kindFloat:
		return computeFloat(o, math.Float64frombits(a), math.Float64frombits(b))
	case k == kindInt:
		return computeInt(o, int32(a), int32(b))
	}
	return computeBool(o, a, b)
}

func computeFloat(o op, a, b float64) uint64 {
	var v float64
	switch o {
	case opAdd:
		v = a + b
	case opSub:
		v = a - b
	case opMul:
		v = a * b
	case opDiv:
		v = a / b
	case opNeg:
		v = -a
	case opMin:
		v = math.Min(a, b)
	case opMax:
		v = math.Max(a, b)
	case opAbs:
		v = math.Abs(a)
	case opSign:
		v = sign(a)
	case opExp:
		v = math.Exp(a)
	case opLog:
		v = math.Log(a)
	case opTanh:
		v = math.Tanh(a)
	case opSech2:
		t := math.Tanh(a)
		v = 1 - t*t
	case opExp2:
		v = math.Exp2(a)
	case opLog2:
		v = math.Log2(a)
	case opLogistic:
		v = 1 / (1 + math.Exp2(a))
	case opLess:
		return wordOfBool(a < b)
	case opLessEqual:
		return wordOfBool(a <= b)
	case opEqual:
		return wordOfBool(a == b)
	case opNotEqual:
		return wordOfBool(a != b)
	}
	return math.Float64bits(v)
}

func sign(a float64) float64 {
	switch {
	case a > 0:
		return 1
	case a < 0:
		return -1
	}
	return 0
}

func computeInt(o op, a, b int32) uint64 {
	var v int32
	switch o {
	case opAdd:
		v = a + b
	case opSub:
		v = a - b
	case opMul:
		v = a * b
	case opDiv:
		v = floorDiv(a, b)
	case opMod:
		v = a - b*floorDiv(a, b)
	case opNeg:
		v = -a
	case opMin:
		v = min(a, b)
	case opMax:
		v = max(a, b)
	case opAbs:
		v = max(a, -a)
		if a == math.MinInt32 {
			v = a
		}
	case opShiftRight:
		v = a >> (uint32(b) & 31)
	case opBitAnd:
		v = a & b
	case opBitXor:
		v = a ^ b
	case opQuotient:
		v = int32(uint32(a) / max(uint32(b), 1))
	case opLess:
		return wordOfBool(a < b)
	case opLessEqual:
		return wordOfBool(a <= b)
	case opEqual:
		return wordOfBool(a == b)
	case opNotEqual:
		return wordOfBool(a != b)
	}
	return wordOfInt(v)
}

// floorDiv is ⌊a/b⌋, 0 for b = 0; −2³¹ div −1 wraps to −2³¹.
func floorDiv(a, b int32) int32 {
	if b == 0 {
		return 0
	}
	q, r := a/b, a%b // Go defines −2³¹/−1 as −2³¹ with remainder 0
	if r != 0 && (r < 0) != (b < 0) {
		q--
	}
	return q
}

func computeBool(o op, a, b uint64) uint64 {
	switch o {
	case opAnd:
		return a & b
	case opOr:
		return a | b
	case opNot:
		return a ^ 1
	}
	return 0
}
