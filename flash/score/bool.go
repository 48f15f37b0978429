package score

// Bool is an expression that is true or false. Its zero value is a mistake wherever it is used.
type Bool struct{ n *node }

// And is x ∧ y.
func (x Bool) And(y Bool) Bool { return Bool{combine(opAnd, kindBool, x.n, y.n)} }

// Or is x ∨ y.
func (x Bool) Or(y Bool) Bool { return Bool{combine(opOr, kindBool, x.n, y.n)} }

// Not is ¬x.
func (x Bool) Not() Bool { return Bool{combine(opNot, kindBool, x.n)} }

// Select is yes where x holds, no elsewhere. Both are computed; a NaN of the one not taken does no harm.
func (x Bool) Select(yes, no Float) Float {
	return Float{combine(opSelect, kindFloat, x.n, yes.n, no.n)}
}

// SelectInt is yes where x holds, no elsewhere.
func (x Bool) SelectInt(yes, no Int) Int {
	return Int{combine(opSelect, kindInt, x.n, yes.n, no.n)}
}
