package specialize

import "math"

// evaluate computes an operation on integers of 32 bits and bools, which are 0 and 1. ok is false for others, and for what SPIR-V leaves
// undefined.
func evaluate(op uint32, x []uint32) (v uint32, ok bool) {
	switch len(x) {
	case 1:
		return ofOne(op, x[0])
	case 2:
		if v, ok := compare(op, x[0], x[1]); ok {
			return v, true
		}
		return ofTwo(op, x[0], x[1])
	case 3:
		if op == opSelect {
			return x[2-x[0]&1], true
		}
	}
	return 0, false
}

func ofOne(op, a uint32) (uint32, bool) {
	switch op {
	case opCopyObject, opBitcast:
		return a, true
	case opSNegate:
		return -a, true
	case opNot:
		return ^a, true
	case opLogicalNot:
		return 1 - a, true
	}
	return 0, false
}

func ofTwo(op, a, b uint32) (uint32, bool) {
	signed := int32(b) != 0 && (int32(a) != math.MinInt32 || int32(b) != -1)
	switch op {
	case opIAdd:
		return a + b, true
	case opISub:
		return a - b, true
	case opIMul:
		return a * b, true
	case opUDiv:
		if b != 0 {
			return a / b, true
		}
	case opUMod:
		if b != 0 {
			return a % b, true
		}
	case opSDiv:
		if signed {
			return uint32(int32(a) / int32(b)), true
		}
	case opSRem:
		if signed {
			return uint32(int32(a) % int32(b)), true
		}
	case opSMod:
		if signed {
			r := int32(a) % int32(b)
			if r != 0 && (r < 0) != (int32(b) < 0) {
				r += int32(b)
			}
			return uint32(r), true
		}
	case opShiftRight:
		return a >> (b & 31), b < 32
	case opShiftRightSigned:
		return uint32(int32(a) >> (b & 31)), b < 32
	case opShiftLeft:
		return a << (b & 31), b < 32
	case opBitwiseOr, opLogicalOr:
		return a | b, true
	case opBitwiseAnd, opLogicalAnd:
		return a & b, true
	case opBitwiseXor, opLogicalNotEqual:
		return a ^ b, true
	case opLogicalEqual:
		return 1 ^ a ^ b, true
	}
	return 0, false
}

func compare(op, a, b uint32) (uint32, bool) {
	var is bool
	switch op {
	case opIEqual:
		is = a == b
	case opINotEqual:
		is = a != b
	case opUGreaterThan:
		is = a > b
	case opSGreaterThan:
		is = int32(a) > int32(b)
	case opUGreaterThanEqual:
		is = a >= b
	case opSGreaterThanEqual:
		is = int32(a) >= int32(b)
	case opULessThan:
		is = a < b
	case opSLessThan:
		is = int32(a) < int32(b)
	case opULessThanEqual:
		is = a <= b
	case opSLessThanEqual:
		is = int32(a) <= int32(b)
	default:
		return 0, false
	}
	if is {
		return 1, true
	}
	return 0, true
}
