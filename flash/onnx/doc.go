// Package onnx computes the ONNX operators Attention, RotaryEmbedding and TensorScatter on tensors of a [flash.Device]. It is for people
// who write runtimes: a type of an operator's name has a node's attributes, and its Run takes the node's inputs and returns its outputs.
//
// Inputs and outputs bear the operator's names. An input that is left out is nil. Outputs are new tensors, and the caller's to close; Run
// returns when they are there.
//
// Tensors of flash have four axes. A tensor of more heads than one whose heads lie in its columns, [batch, length, heads·dimension] in
// ONNX, is a tensor [batch, 1, length, heads·dimension] here, beside the attribute that says how many heads there are. Integers are Int32,
// where ONNX has int64, and vectors are [1, 1, 1, length].
//
// An input or attribute that does not fit is a [*flash.ArgumentError] by the operator's name for it. What the operator allows and this
// package does not compute is an error that wraps [ErrUnsupported] and says what it is.
//
// Source: ONNX operator specifications, https://onnx.ai/onnx/operators: Attention 23 to 25, RotaryEmbedding 23, TensorScatter 24.
package onnx
