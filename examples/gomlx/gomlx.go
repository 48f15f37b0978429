// Package gomlx shows how a backend of GoMLX computes its fused attention with flash: what each parameter of the operator becomes.
//
// GoMLX itself is not imported. The two methods are those of the interface FusedOps in fused_ops.go of github.com/gomlx/compute, in the
// form with statesForVJP and with Bias and the two lengths in ScaledDotProductAttentionConfig; earlier and later forms differ, so compare
// before you copy. A backend of GoMLX builds a graph, and these methods compute at once: they are what its executor calls for a node, with
// a context, and with tensors on the device in place of the graph's values.
//
//	query, key, value        q, k and v of flash.Device.SDPA
//	mask of booleans         SDPAOptions.Mask
//	mask of numbers          SDPAOptions.Bias
//	numHeads, numKVHeads     compared with the shapes, which say so already
//	axesLayout               SDPAOptions.Layout
//	scale                    SDPAOptions.Scale
//	causal                   SDPAOptions.Causal, flash.CausalTopLeft
//	QuerySeqLen              SDPAOptions.QueryLengths
//	KeyValueSeqLen           SDPAOptions.KeyLengths
//	Bias                     SDPAOptions.Bias
//	QuantizedMatmuls         a hint that a backend may ignore, and this one does
//	statesForVJP             one value: lse, which flash.Device.SDPAVJP takes
package gomlx

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// ErrNotImplemented stands for GoMLX's own error of that name: the caller computes attention from plain operations then.
var ErrNotImplemented = errors.New("not implemented")

// AxesLayout is the order of the axes of query, key, value and output.
type AxesLayout int

const (
	AxesLayoutBHSD AxesLayout = iota // [batch, heads, length, dimension]
	AxesLayoutBSHD                   // [batch, length, heads, dimension]
)

// Value is a tensor and the number of its axes, the last ones of the tensor's four; those before them are 1. The zero Value is none.
type Value struct {
	Tensor *flash.Tensor
	Rank   int // 0 means 4
}

// ScaledDotProductAttentionConfig has the options of the operator; the zero value is none of them.
type ScaledDotProductAttentionConfig struct {
	QuantizedMatmuls            bool
	QuerySeqLen, KeyValueSeqLen Value // Int32 [batch]
	Bias                        Value // added to the scores: fp32 or query's type, of the ranks and shapes of a mask
}

// FusedOps is attention as GoMLX asks its backends for it, and its gradients.
//
//	output = softmax(scale · query·keyᵀ + mask + Bias) · value
//
// For AxesLayoutBHSD query is [batch, numHeads, seqLen, headDim], key and value are [batch, numKVHeads, kvLen, headDim]. mask is boolean,
// true where a query may look, or added to the scores. mask and Bias are [seqLen, kvLen], or of rank 4 and broadcast to the scores: these
// are [batch, numHeads, seqLen, kvLen], or [batch, seqLen, numHeads, kvLen] with AxesLayoutBSHD. causal is that key j is seen by queries
// i ≥ j. Keys from KeyValueSeqLen on are not seen, and rows of output from QuerySeqLen on are 0.
//
// The VJP takes what the forward call was given and returned, and dOutput, the gradient of a loss with respect to output.
type FusedOps interface {
	FusedScaledDotProductAttention(ctx context.Context, query, key, value, mask Value, numHeads, numKVHeads int, axesLayout AxesLayout,
		scale float64, causal bool, options *ScaledDotProductAttentionConfig) (output Value, statesForVJP []Value, err error)
	FusedScaledDotProductAttentionVJP(ctx context.Context, query, key, value, mask Value, numHeads, numKVHeads int, axesLayout AxesLayout,
		scale float64, causal bool, options *ScaledDotProductAttentionConfig, output Value, statesForVJP []Value,
		dOutput Value) (dQuery, dKey, dValue Value, err error)
}

// Backend is FusedOps on a device of flash. What it returns is the caller's to close.
type Backend struct{ Device *flash.Device }

var _ FusedOps = Backend{}

// FusedScaledDotProductAttention is the forward pass; statesForVJP is lse, fp32 [batch, numHeads, seqLen, 1]. The error wraps
// [ErrNotImplemented] for what flash has no words or no kernel for, and is flash's own for what does not fit together.
func (b Backend) FusedScaledDotProductAttention(ctx context.Context, query, key, value, mask Value, numHeads, numKVHeads int,
	axesLayout AxesLayout, scale float64, causal bool, options *ScaledDotProductAttentionConfig) (output Value, statesForVJP []Value,
	err error) {
	opts, err := Options(query, key, value, mask, numHeads, numKVHeads, axesLayout, scale, causal, options)
	if err != nil {
		return Value{}, nil, err
	}
	o, lse, err := b.Device.SDPA(ctx, query.Tensor, key.Tensor, value.Tensor, opts)
	if err != nil {
		return Value{}, nil, fallBack(err)
	}
	return Value{Tensor: o}, []Value{{Tensor: lse}}, nil
}

// FusedScaledDotProductAttentionVJP gives the gradients with respect to query, key and value. Errors are those of the forward pass, and
// one for states that it did not return.
func (b Backend) FusedScaledDotProductAttentionVJP(ctx context.Context, query, key, value, mask Value, numHeads, numKVHeads int,
	axesLayout AxesLayout, scale float64, causal bool, options *ScaledDotProductAttentionConfig, output Value, statesForVJP []Value,
	dOutput Value) (dQuery, dKey, dValue Value, err error) {
	opts, err := Options(query, key, value, mask, numHeads, numKVHeads, axesLayout, scale, causal, options)
	if err != nil {
		return Value{}, Value{}, Value{}, err
	}
	if len(statesForVJP) != 1 {
		return Value{}, Value{}, Value{}, fmt.Errorf("gomlx: there are %d states for the VJP: it must be lse alone", len(statesForVJP))
	}
	opts.NoBiasGradient = true // the operator has none
	g, err := b.Device.SDPAVJP(ctx, query.Tensor, key.Tensor, value.Tensor, output.Tensor, statesForVJP[0].Tensor, dOutput.Tensor, opts)
	if err != nil {
		return Value{}, Value{}, Value{}, fallBack(err)
	}
	return Value{Tensor: g.DQ}, Value{Tensor: g.DK}, Value{Tensor: g.DV}, nil
}

// fallBack makes what no kernel can compute an error by which the caller falls back.
func fallBack(err error) error {
	if errors.Is(err, flash.ErrUnsupported) {
		return fmt.Errorf("gomlx: %w: %w", ErrNotImplemented, err)
	}
	return err
}

// Options is what the parameters of the operator are for [flash.Device.SDPA]. The error wraps [ErrNotImplemented] for
//
//   - a scale of 0, which flash takes for the usual one;
//   - an additive mask beside Bias, of which flash has one, and either of another type than fp32 and query's;
//   - either with one number for all keys of a row;
//   - masks of rank 3, whose first axis GoMLX takes for the batch in one place and, by broadcasting, for heads in another;
//   - a layout that is neither of the two.
//
// Numbers of heads that are not those of the shapes are an error that says so.
func Options(query, key, value, mask Value, numHeads, numKVHeads int, axesLayout AxesLayout, scale float64, causal bool,
	options *ScaledDotProductAttentionConfig) (opts flash.SDPAOptions, err error) {
	heads := 1
	switch axesLayout {
	case AxesLayoutBHSD:
		opts.Layout = flash.BHND
	case AxesLayoutBSHD:
		opts.Layout, heads = flash.BNHD, 2
	default:
		return opts, lacks("axesLayout %d, which is neither BHSD nor BSHD", axesLayout)
	}
	for _, x := range []struct {
		name  string
		value Value
		heads int
	}{{"query", query, numHeads}, {"key", key, numKVHeads}, {"value", value, numKVHeads}} {
		switch {
		case x.value.Tensor == nil:
			return opts, fmt.Errorf("gomlx: there is no %s", x.name)
		case x.value.rank() != 4:
			return opts, fmt.Errorf("gomlx: %s is of rank %d: it must be 4", x.name, x.value.Rank)
		case x.value.Tensor.Shape()[heads] != x.heads:
			return opts, fmt.Errorf("gomlx: %s %v has %d heads, the operator says %d", x.name, x.value.Tensor.Shape(),
				x.value.Tensor.Shape()[heads], x.heads)
		}
	}
	if scale == 0 {
		return opts, lacks("a scale of 0")
	}
	opts.Scale = scale
	if causal {
		opts.Causal = flash.CausalTopLeft
	}
	if options == nil {
		options = &ScaledDotProductAttentionConfig{}
	}
	opts.QueryLengths, opts.KeyLengths = options.QuerySeqLen.Tensor, options.KeyValueSeqLen.Tensor
	if opts.Bias, err = options.Bias.ofScores("Bias", axesLayout); err != nil {
		return opts, err
	}
	m, err := mask.ofScores("mask", axesLayout)
	switch {
	case err != nil || m == nil:
	case m.DType() == flash.Bool || m.DType() == flash.Bit:
		opts.Mask = m
	case opts.Bias != nil:
		err = lacks("an additive mask beside Bias")
	default:
		opts.Bias = m
	}
	if b := opts.Bias; err == nil && b != nil && b.DType() != flash.F32 && b.DType() != query.Tensor.DType() {
		err = lacks("numbers of type %v that are added to the scores of a query of type %v", b.DType(), query.Tensor.DType())
	}
	if b, keys := opts.Bias, key.Tensor.Shape()[3-heads]; err == nil && b != nil && b.Shape()[3] == 1 && keys > 1 {
		err = lacks("one number, of %v, that is added to the scores of all %d keys of a row", b.Shape(), keys)
	}
	return opts, err
}

func (v Value) rank() int {
	if v.Rank == 0 {
		return 4
	}
	return v.Rank
}

// ofScores is a mask or a bias as [batch, heads, queries, keys].
func (v Value) ofScores(name string, layout AxesLayout) (*flash.Tensor, error) {
	t := v.Tensor
	switch {
	case t == nil:
		return nil, nil
	case v.rank() == 4 && layout == AxesLayoutBSHD:
		shape, strides := t.Shape(), t.Strides()
		shape[1], shape[2] = shape[2], shape[1]
		strides[1], strides[2] = strides[2], strides[1]
		return t.View(t.Offset(), t.DType(), shape, strides)
	case v.rank() == 3 && t.Shape()[1] != 1:
		return nil, lacks("%s of rank 3, %v, without saying whether its first axis is the batch or heads", name, t.Shape())
	case v.rank() < 2 || v.rank() > 4:
		return nil, fmt.Errorf("gomlx: %s is of rank %d: it must be from 2 to 4", name, v.rank())
	}
	return t, nil
}

// lacks is the error for what flash has no words for.
func lacks(format string, a ...any) error {
	return fmt.Errorf("gomlx: %w: "+format, append([]any{ErrNotImplemented}, a...)...)
}
