// Package score holds functions of attention's scores, and masks, that users write as Go expressions. One expression gives its value in
// float64, its derivative, and the SPIR-V that kernels run. No shader compiler is involved.
//
// A score function maps the scaled score s = scale·q·k of a pair (query, key), in natural units, to another:
//
//	slopes := score.Table([]float32{0.5, 0.25}, 2) // [heads]
//	distance := score.Position().Float().Sub(score.Key().Float()).Abs()
//	alibi, err := score.New(score.S().Sub(slopes.At(score.Head()).Mul(distance)))
//
// A mask function is a boolean expression, true where the pair takes part:
//
//	prefix, err := score.NewMask(score.Key().Less(score.ConstInt(100)).Or(score.Key().LessEqual(score.Position())))
//
// # Expressions
//
// [Float], [Int] and [Bool] are immutable values over the inputs ([S], [Batch], [Head], [Query], [Key], [Position]), constants and captured
// tensors. What is used twice is computed once. A mistake, for example a zero value as an operand, is kept in the expression and reported
// by [New] and [NewMask]; nothing panics. Devices compute in fp32 and int32, [Evaluator] in float64 and int32.
//
//   - Integers wrap at 32 bits. Div rounds down (−7 div 2 = −4) and Mod has the divisor's sign (−7 mod 2 = 1). a div 0 is 0 and a mod 0 is
//     a, so that a = (a div b)·b + a mod b always. Hosts and devices agree in every bit.
//   - An index beyond a captured tensor's shape is clamped to it, dimension by dimension: the element at the border is read.
//   - Derivatives where there is none: |x| has 0 at 0; min and max take that of the first operand when both are equal; comparisons are
//     constant.
//   - A factor that is the constant 0 removes what it multiplies, infinities included.
//   - Comparisons of floats decide by values that were rounded, which differ between devices. Masks should compare integers.
//
// # Precision on devices
//
// exp, log and tanh are computed by the device's exp2, log2 and division, which Vulkan bounds by 3 + 2·|x| ulp, 3 ulp (2⁻²¹ absolute
// between 1/2 and 2) and 2.5 ulp. tanh(x) = 1 − 2/(1 + exp2(2x·log₂e)) has an absolute error of at most 1e−6, no bound on the relative
// error near 0, and is ±1, never NaN, for large arguments. Divisions by constants are multiplications, and constants are folded in float64.
// Numbers below 2⁻¹²⁶ may be 0 on devices, and drivers may join constant factors: what is computed on the way should be far from both ends
// of fp32.
//
// # Captured tensors
//
// A [Capture] or [CaptureInt] is declared by name, type and shape, and passed at each call. A [Table] or [TableInt] holds values, which a
// plan uploads once. Both are dense and row-major, fp32 or int32, with one to four dimensions.
//
// # Hooks
//
// A kernel asks for a function by an instruction that none of them needs otherwise,
//
//	refract(vec4(s, uintBitsToFloat(batch), uintBitsToFloat(head), uintBitsToFloat(query)),
//	        vec4(uintBitsToFloat(key), intBitsToFloat(position), 0, 0), ETA)
//
// whose last operand, a constant, is the [Hook]. [Splice] puts straight-line code in its place. The last two components of the second
// vector may hold float(key) and float(position − key) instead of zeros, where a kernel has them cheaper than a conversion for each pair:
// then they are used.
package score
