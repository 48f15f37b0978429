package score

import "math"

// Float is an expression whose value is a real number, fp32 on devices. Its zero value is a mistake wherever it is used.
type Float struct{ n *node }

// S is the scaled score scale·q·k that a function receives: after the functions before it, their result.
func S() Float { return Float{&node{op: opS, kind: kindFloat}} }

// Const is a number, rounded to fp32. It must be finite.
func Const(c float64) Float {
	if r := float64(float32(c)); math.IsInf(r, 0) || math.IsNaN(r) {
		return Float{bad("Const(%v): a constant must be finite in fp32", c)}
	}
	return Float{&node{op: opConst, kind: kindFloat, bits: math.Float64bits(float64(float32(c)))}}
}

func (x Float) with(o op, y Float) Float   { return Float{combine(o, kindFloat, x.n, y.n)} }
func (x Float) compare(o op, y Float) Bool { return Bool{combine(o, kindBool, x.n, y.n)} }

// Add is x + y.
func (x Float) Add(y Float) Float { return x.with(opAdd, y) }

// Sub is x − y.
func (x Float) Sub(y Float) Float { return x.with(opSub, y) }

// Mul is x·y.
func (x Float) Mul(y Float) Float { return x.with(opMul, y) }

// Div is x/y.
func (x Float) Div(y Float) Float { return x.with(opDiv, y) }

// Min is the smaller of x and y.
func (x Float) Min(y Float) Float { return x.with(opMin, y) }

// Max is the greater of x and y.
func (x Float) Max(y Float) Float { return x.with(opMax, y) }

// Neg is −x.
func (x Float) Neg() Float { return Float{combine(opNeg, kindFloat, x.n)} }

// Abs is |x|.
func (x Float) Abs() Float { return Float{combine(opAbs, kindFloat, x.n)} }

// Exp is eˣ.
func (x Float) Exp() Float { return Float{combine(opExp, kindFloat, x.n)} }

// Log is the natural logarithm of x, NaN or undefined for x < 0.
func (x Float) Log() Float { return Float{combine(opLog, kindFloat, x.n)} }

// Tanh is the hyperbolic tangent of x.
func (x Float) Tanh() Float { return Float{combine(opTanh, kindFloat, x.n)} }

// Less is x < y.
func (x Float) Less(y Float) Bool { return x.compare(opLess, y) }

// LessEqual is x ≤ y.
func (x Float) LessEqual(y Float) Bool { return x.compare(opLessEqual, y) }

// Greater is x > y.
func (x Float) Greater(y Float) Bool { return y.compare(opLess, x) }

// GreaterEqual is x ≥ y.
func (x Float) GreaterEqual(y Float) Bool { return y.compare(opLessEqual, x) }

// Equal is x = y.
func (x Float) Equal(y Float) Bool { return x.compare(opEqual, y) }

// NotEqual is x ≠ y.
func (x Float) NotEqual(y Float) Bool { return x.compare(opNotEqual, y) }
