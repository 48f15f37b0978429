package main

// Forward mode: how o and lse move with the inputs.

const (
	scalarJVP = "shaders/scalar/scalar_jvp.comp"
	matrixJVP = "shaders/matrix/matrix_jvp.comp"
)

var jvpAgainstBackward = in("./flash", "TestJVPAgainstBackward")

// matrixTangents is a case of the kernel on matrices by itself: compiling it takes a CPU's driver long.
func matrixTangents(name string) Killer {
	return Killer{"./flash", exactly("TestJVPOnMatrices/" + name)}
}

var jvpMutants = []Mutant{
	{
		ID: "jvp-less-lse", File: scalarJVP, Modules: "scalar_jvp.f32",
		Old: "acc[i * MV4 + j][e] - moved[i] * decode(", New: "acc[i * MV4 + j][e] - 0 * decode(",
		Breaks: "o's tangent lacks lse's tangent times o",
		Kill:   []Killer{jvpAgainstBackward},
	},
	{
		ID: "jvp-slope", File: scalarJVP, Modules: "scalar_jvp.f32",
		Old: "* scale * slope;", New: "* scale;",
		Breaks: "tangents of scores lack the derivative of their function",
		Kill:   []Killer{jvpAgainstBackward},
	},
	{
		ID: "jvp-dropped", File: scalarJVP, Modules: "scalar_jvp.f32",
		Old: "p *= z; moves *= z;", New: "p *= z; moved[i] -= moves; moves *= z; moved[i] += moves;",
		Breaks: "lse's tangent leaves out what dropout drops, though lse does not",
		Kill:   []Killer{jvpAgainstBackward},
	},
	{
		ID: "jvp-hidden", File: scalarJVP, Modules: "scalar_jvp.f32",
		Old: "float moves = p == 0 ? 0 : p * ds;", New: "float moves = p * ds;",
		Breaks: "a tangent of the bias that is no number is seen where the mask hides it",
		Kill:   []Killer{in("./flash", "TestJVPOfWhatIsHidden")},
	},
	{
		ID: "jvp-key-tangent", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "coopMatLoad(k, T, tile_at + B_AT + at, A_PITCH, BY_COLUMN);", New: "coopMatLoad(k, T, tile_at + at, A_PITCH, BY_COLUMN);",
		Breaks: "Q is multiplied by K in place of K's tangent",
		Kill:   []Killer{matrixTangents("plain, form 1")},
	},
	{
		ID: "jvp-matrix-less-lse", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "const float by = stats[p.row - first_query].y;", New: "const float by = 0;",
		Breaks: "on matrices o's tangent lacks lse's tangent times o",
		Kill:   []Killer{matrixTangents("plain, form 1")},
	},
	{
		ID: "jvp-matrix-slope", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "  if (SLOPES) x *= slope;\n", New: "",
		Breaks: "on matrices tangents of scores lack the derivative of their function",
		Kill:   []Killer{matrixTangents("softcap, sinks, values of 24, form 1")},
	},
	{
		ID: "jvp-matrix-dropped", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "= DROPOUT && p < 0 ? 0 : x;", New: "= x;",
		Breaks: "weights that dropout drops move o",
		Kill:   []Killer{matrixTangents("dropout, form 1")},
	},
	{
		ID: "jvp-bias-rows", File: "shaders/include/tangents.glsl", Modules: "matrix_jvp.f16",
		Old: "min(query, last_query()) * bias_tangent_sn", New: "min(query, last_query()) * bias_tangent_sk",
		Breaks: "rows of the bias's tangent are taken to be as far apart as its keys",
		Kill:   []Killer{matrixTangents("bias, form 1")},
	},
	{
		ID: "jvp-sum-of-row", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "stats[sub0 + r * FM + row].y += all;", New: "stats[sub0 + r * FM + row].y = all;",
		Breaks: "forms 2 and 3 have lse's tangent of the last chunk of keys alone",
		Kill:   []Killer{matrixTangents("plain, form 2")},
	},
	{
		ID: "jvp-reference-slope", File: "internal/ref/jvp.go",
		Old: "ds := p.scoreTangent(d, r, j)*slope + d.biasTangent(r, j)", New: "ds := p.scoreTangent(d, r, j) + d.biasTangent(r, j)",
		Breaks: "the reference's tangents of scores lack the derivative of their function",
		Kill:   []Killer{goldenTests},
	},
	{
		ID: "jvp-reference-less-lse", File: "internal/ref/jvp.go",
		Old: "o[x] -= dlse * of[x]", New: "o[x] -= 0 * of[x]",
		Breaks: "the reference's tangent of o lacks lse's tangent times o",
		Kill:   []Killer{goldenTests},
	},
	{
		ID: "jvp-sinks", File: "shaders/include/tangents.glsl", Modules: "scalar_jvp.",
		Old: "bits_of_score(sinks[sinks_off + head]) - lse", New: "bits_of_score(sinks[sinks_off + head])",
		Breaks: "a sink's tangent is weighed as if lse were 0",
		Kill:   []Killer{in("./flash", "TestJVPAgainstBackward")},
	},
	{
		ID: "jvp-matrix-sinks", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "if (SINKS_MOVE) move_sinks(h);", New: "if (SINKS_MOVE) barrier();",
		Breaks: "on matrices sinks stay",
		Kill:   []Killer{in("./flash", "TestJVPOnMatrices")},
	},
	{
		ID: "jvp-matrix-bias-of-hidden", File: matrixJVP, Modules: "matrix_jvp.f16",
		Old: "(SLOPES || BIAS_MOVES) && p == 0 ? 0 : p * x;", New: "p * x;",
		Breaks: "on matrices a tangent of the bias that is no number is seen where the mask hides it",
		Kill:   []Killer{in("./flash", "TestJVPOfWhatIsHidden")},
	},
}
