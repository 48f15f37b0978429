package kernel

import "github.com/vkattn/vkattn/internal/attn"

// Accumulate is what becomes of sums in fp32 and of what is added to them: shaders/common/accumulate.comp has the mathematics.
type Accumulate struct {
	Rule       int // AccumulateCopy and its like
	Shape      [4]int
	DType      attn.DType
	XF32, YF32 bool // whatever DType
}

// Rules, as the shader has them.
const (
	AccumulateCopy = iota
	AccumulateAdd
	AccumulateJoin
)

// AccumulateTensors are its tensors: those in and out, and where they are joined lse of both and of the two together.
var AccumulateTensors = [...]attn.Operand{{Name: "X"}, {Name: "Y"}, {Name: "XLSE"}, {Name: "YLSE"}, {Name: "LSE"}}

// AccumulateLabel is the label of its dispatches, and the beginning of its module's name.
const AccumulateLabel = "accumulate"

// LacksAccumulate says what the device lacks for it, of a type.
func (c *Capabilities) LacksAccumulate(t attn.DType) string {
	if why := c.LacksArguments(&PassArgs().Accumulate); why != "" {
		return why
	}
	return c.LacksScalar(t)
}

// AccumulateConstants are its specialization constants.
func AccumulateConstants(a *Accumulate, aligned bool) Constants {
	return Constants{"WG": PieceThreads, "DV": a.Shape[3], "ALIGNED": BoolInt(aligned), "RULE": a.Rule,
		"X_F32": BoolInt(a.XF32), "Y_F32": BoolInt(a.YF32)}
}

// Accumulate fills in its arguments, for the tensors in the order of AccumulateTensors.
func (p *Pushes) Accumulate(a *Accumulate, all []*Operand) (baseAt int) {
	l, x, y, xLSE, yLSE, lse := &PassArgs().Accumulate, all[0], all[1], all[2], all[3], all[4]
	p.start(l)
	var none Operand
	p.PutInt(argQueries, a.Shape[2])
	p.PutInt(argRowHeads, a.Shape[1])
	p.Put(ArgOffsets, Offsets(x, y, xLSE, &none))
	p.Put(argMoreOffsets, Offsets(yLSE, lse, &none, &none))
	p.Strides(argX, x)
	p.Strides(argY, y)
	at := l.at[argLSEStrides]
	p.Set(at, xLSE.Strides[0])
	p.Set(at+4, xLSE.Strides[1])
	return l.at[argBase]
}
