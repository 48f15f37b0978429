package score

import (
	"math"
	"strconv"
	"strings"
)

// formatLimit is about how many bytes of a formula are shown.
const formatLimit = 300

// format writes expressions with something between them, none as so.
func format(nodes []*node, between, none string) string {
	if len(nodes) == 0 {
		return none
	}
	var w strings.Builder
	for i, n := range nodes {
		if i > 0 {
			w.WriteString(between)
		}
		formatNode(&w, n)
	}
	if w.Len() <= formatLimit {
		return w.String()
	}
	return strings.ToValidUTF8(w.String()[:formatLimit], "") + "…"
}

var infix = map[op]string{opAdd: " + ", opSub: " − ", opMul: "·", opDiv: " / ", opMod: " mod ", opLess: " < ", opLessEqual: " ≤ ",
	opEqual:    " = ",
	opNotEqual: " ≠ ", opAnd: " and ", opOr: " or "}

var prefix = map[op]string{opNeg: "−", opMin: "min", opMax: "max", opAbs: "abs", opExp: "exp", opLog: "log", opTanh: "tanh", opNot: "not ",
	opSelect: "select", opToFloat: "float", opS: "s", opBatch: "batch", opHead: "head", opQuery: "query", opKey: "key",
	opPosition: "position"}

// formatNode stops soon after the limit: an expression of few nodes can be a formula of any length.
func formatNode(w *strings.Builder, n *node) {
	if n == nil || n.err != nil || w.Len() > formatLimit {
		return
	}
	sign, open, end := ", ", "(", ")"
	switch {
	case n.op == opConst && n.kind == kindInt:
		w.WriteString(strconv.Itoa(int(int32(n.bits))))
		return
	case n.op == opConst:
		w.WriteString(strconv.FormatFloat(math.Float64frombits(n.bits), 'g', -1, 32))
		return
	case n.op == opLoad:
		open, end = "[", "]"
		w.WriteString(n.tensor.label())
	case infix[n.op] != "":
		sign = infix[n.op]
	default:
		w.WriteString(prefix[n.op])
	}
	if len(n.args) == 0 {
		return
	}
	w.WriteString(open)
	for i, a := range n.args {
		if i > 0 {
			w.WriteString(sign)
		}
		formatNode(w, a)
	}
	w.WriteString(end)
}

// label is a tensor in a formula.
func (t *tensor) label() string {
	if t.Name == "" {
		return "table"
	}
	return t.Name
}
