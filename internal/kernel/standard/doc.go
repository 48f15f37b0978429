// Package standard is standard attention, scores, softmax and product as kernels of their own with the matrix of scores in device memory:
// the baseline, in fp32 arithmetic (Scalar, ScalarBackward) and on cooperative matrices (Matrix, MatrixBackward). Its shaders are
// shaders/standard.
package standard
