// Package onnx says what the ONNX operators Attention (opset 23 to 25), RotaryEmbedding and TensorScatter mean in the terms of this
// library, so that the operator's conformance cases can be run on it: shapes are split into heads, past keys put in front, masks padded,
// positions aligned.
//
// A [Case] is one operator with inputs, right outputs and tolerances. [Case.Attention], [Case.Rotary] and [Case.Scatter] check it as the
// operator's specification says and translate it; [Case.Compute] is what package ref makes of it in float64, and [Case.Run] what package
// flash/onnx makes of it on a device. That has the attributes and inputs as the file has them, and nothing of the translation.
//
// Source: the ONNX operator specifications, onnx/docs/Operators.md.
package onnx
