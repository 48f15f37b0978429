package score

// Softcap keeps scores within ±c, almost linear near 0:
//
//	s′ = c·tanh(s/c),   ∂s′/∂s = 1 − tanh²(s/c)
//
// c must be greater than 0. On devices it is c − 2c/(1 + exp2(s·(2·log₂e/c))): an exponential and a reciprocal. The absolute error is at
// most 1e−6·c. (Gemma 2, "Improving Open Language Models at a Practical Size", 2024, section 2, "Logit soft-capping".)
func Softcap(c float64) Function {
	limit := Const(c)
	if limit.n.err == nil && !(float32(c) > 0) {
		limit = Float{bad("Softcap(%v): the cap must be greater than 0", c)}
	}
	return made(S().Div(limit).Tanh().Mul(limit))
}
