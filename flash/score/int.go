package score

import "math"

// Int is an expression whose value is a 32-bit integer with a sign. Its zero value is a mistake wherever it is used.
type Int struct{ n *node }

func input(o op) Int { return Int{&node{op: o, kind: kindInt}} }

// Batch is the entry of the batch, from 0.
func Batch() Int { return input(opBatch) }

// Head is the query head, from 0.
func Head() Int { return input(opHead) }

// Query is the query's row, from 0.
func Query() Int { return input(opQuery) }

// Key is the key's row, from 0.
func Key() Int { return input(opKey) }

// Position is where the query stands among the keys: query + Nk − Nq, so that the last query stands at the last key. It may be negative.
func Position() Int { return input(opPosition) }

// ConstInt is an integer. It must fit 32 bits.
func ConstInt(c int) Int {
	if int64(c) < math.MinInt32 || int64(c) > math.MaxInt32 {
		return Int{bad("ConstInt(%d): an integer must fit 32 bits", c)}
	}
	return Int{&node{op: opConst, kind: kindInt, bits: wordOfInt(int32(c))}}
}

func (x Int) with(o op, y Int) Int     { return Int{combine(o, kindInt, x.n, y.n)} }
func (x Int) compare(o op, y Int) Bool { return Bool{combine(o, kindBool, x.n, y.n)} }

// Add is x + y.
func (x Int) Add(y Int) Int { return x.with(opAdd, y) }

// Sub is x − y.
func (x Int) Sub(y Int) Int { return x.with(opSub, y) }

// Mul is x·y.
func (x Int) Mul(y Int) Int { return x.with(opMul, y) }

// Div is ⌊x/y⌋, 0 where y is 0. A constant power of two costs least, then another constant.
func (x Int) Div(y Int) Int { return x.with(opDiv, y) }

// Mod is x − y·⌊x/y⌋, which has y's sign; x where y is 0.
func (x Int) Mod(y Int) Int { return x.with(opMod, y) }

// Min is the smaller of x and y.
func (x Int) Min(y Int) Int { return x.with(opMin, y) }

// Max is the greater of x and y.
func (x Int) Max(y Int) Int { return x.with(opMax, y) }

// Neg is −x.
func (x Int) Neg() Int { return Int{combine(opNeg, kindInt, x.n)} }

// Abs is |x|, which of −2³¹ is itself.
func (x Int) Abs() Int { return Int{combine(opAbs, kindInt, x.n)} }

// Float is x as a real number: exact on devices up to 2²⁴.
func (x Int) Float() Float { return Float{combine(opToFloat, kindFloat, x.n)} }

// Less is x < y.
func (x Int) Less(y Int) Bool { return x.compare(opLess, y) }

// LessEqual is x ≤ y.
func (x Int) LessEqual(y Int) Bool { return x.compare(opLessEqual, y) }

// Greater is x > y.
func (x Int) Greater(y Int) Bool { return y.compare(opLess, x) }

// GreaterEqual is x ≥ y.
func (x Int) GreaterEqual(y Int) Bool { return y.compare(opLessEqual, x) }

// Equal is x = y.
func (x Int) Equal(y Int) Bool { return x.compare(opEqual, y) }

// NotEqual is x ≠ y.
func (x Int) NotEqual(y Int) Bool { return x.compare(opNotEqual, y) }
