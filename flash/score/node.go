package score

import "fmt"

// kind is the type of a value.
type kind uint8

const (
	kindFloat kind = iota + 1
	kindInt
	kindBool
)

// op is an operation. Those of expressions come first, then those that only derivatives use, then those that only devices know.
type op uint8

const (
	opBad op = iota // a mistake

	opS
	opBatch
	opHead
	opQuery
	opKey
	opPosition

	opConst
	opLoad // of a captured tensor

	opAdd
	opSub
	opMul
	opDiv
	opMod
	opNeg
	opMin
	opMax
	opAbs
	opExp
	opLog
	opTanh
	opLess
	opLessEqual
	opEqual
	opNotEqual
	opAnd
	opOr
	opNot
	opSelect
	opToFloat

	opSign
	opSech2 // 1 − tanh²

	opExp2
	opLog2
	opLogistic   // 1 / (1 + 2^x)
	opAhead      // the query's position − the key, as a float
	opShiftRight // arithmetic
	opBitAnd
	opBitXor
	opQuotient // of unsigned numbers
)

// MaxNodes is the largest number of operations, inputs and constants of a function, or of several applied in order. What occurs twice
// counts once where it is one Go value.
const MaxNodes = 1000

// node is a value of an expression as its user wrote it. It never changes.
type node struct {
	op     op
	kind   kind
	args   []*node
	bits   uint64 // a constant, as graph's words are
	tensor *tensor
	depth  int
	err    error
}

// name says which operation an error is about.
var opNames = map[op]string{
	opAdd: "Add", opSub: "Sub", opMul: "Mul", opDiv: "Div", opMod: "Mod", opNeg: "Neg", opMin: "Min", opMax: "Max", opAbs: "Abs",
	opExp: "Exp",
	opLog: "Log", opTanh: "Tanh", opLess: "Less or Greater", opLessEqual: "LessEqual or GreaterEqual", opEqual: "Equal",
	opNotEqual: "NotEqual",
	opAnd:      "And", opOr: "Or", opNot: "Not", opSelect: "Select", opToFloat: "Float", opLoad: "At",
}

func bad(format string, a ...any) *node {
	return &node{err: fmt.Errorf("score: "+format, a...)}
}

// combine makes a node of others. The first mistake among them is kept, and nothing else.
func combine(o op, k kind, args ...*node) *node {
	n := &node{op: o, kind: k, args: args}
	for _, a := range args {
		if a == nil {
			return bad("%s: an operand is a zero value, made by no function of this package", opNames[o])
		}
		if a.err != nil {
			return &node{err: a.err}
		}
		n.depth = max(n.depth, a.depth+1)
	}
	if n.depth >= MaxNodes {
		return bad("an expression is more than %d operations deep", MaxNodes)
	}
	return n
}
