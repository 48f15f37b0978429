// Package onnx says what the ONNX operators Attention (opset 23 to 25), RotaryEmbedding and TensorScatter mean to the oracle,
// package ref, and reads their conformance cases: shapes are split into heads, past keys put in front, masks padded, positions counted.
//
// A [Case] is one operator with inputs, right outputs and tolerances. [Case.Attention], [Case.Rotary] and [Case.Scatter] check it as the
// operator's specification says and translate it; [Case.Compute] is what package ref makes of it in float64, and [Case.Run] what package
// flash/onnx makes of it on a device: that takes attributes and inputs as the file has them, and translates heads, masks, past and
// positions anew.
//
// Source: the ONNX operator specifications, onnx/docs/Operators.md.
package onnx
