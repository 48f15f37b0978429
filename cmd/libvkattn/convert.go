package main

/*
#define VKATTN_NO_PROTOTYPES
#include "vkattn.h"

static void vkattn_call(void (*f)(void *), uintptr_t context) { f((void *)context); }
*/
import "C"

import (
	"unsafe"

	"github.com/vkattn/vkattn/cmd/libvkattn/internal/door"
)

// Requests are read where they are.
var (
	_ = [1]struct{}{}[C.sizeof_vkattn_request-unsafe.Sizeof(door.Request{})]
	_ = [1]struct{}{}[unsafe.Sizeof(door.Request{})-C.sizeof_vkattn_request]
)

// given checks that a structure is there and of the header's size. T begins with its size.
func given[T any](name string, s *T) error {
	if s == nil {
		return door.Required(name)
	}
	return door.Sized(name, *(*uint32)(unsafe.Pointer(s)), uint32(unsafe.Sizeof(*s)))
}

// text gives a string of C's, "" of NULL.
func text(s *C.char) string { return C.GoString(s) }

func openOptions(o *C.vkattn_open_options) (door.OpenOptions, error) {
	if o == nil {
		return door.OpenOptions{}, nil
	}
	if err := given("options", o); err != nil {
		return door.OpenOptions{}, err
	}
	return door.OpenOptions{Name: text(o.name), CacheDir: text(o.cache_dir), NoCPU: o.no_cpu != 0, NoCache: o.no_cache != 0}, nil
}

// queueLock is a sync.Locker by two functions of the caller's.
type queueLock struct {
	lock, unlock *[0]byte
	context      uintptr // no pointer of Go's: C may pass (void *)1, which ends the process where a stack that grows has it as a pointer
}

func (l *queueLock) Lock()   { C.vkattn_call(l.lock, C.uintptr_t(l.context)) }
func (l *queueLock) Unlock() { C.vkattn_call(l.unlock, C.uintptr_t(l.context)) }

func externalOf(e *C.vkattn_external) (out door.External, err error) {
	if err := given("external", e); err != nil {
		return out, err
	}
	out = door.External{
		GetInstanceProcAddr: uintptr(e.get_instance_proc_addr), Instance: uintptr(e.instance), PhysicalDevice: uintptr(e.physical_device),
		Device: uintptr(e.device), Queue: uintptr(e.queue), QueueFamily: uint32(e.queue_family), APIVersion: uint32(e.api_version),
		CacheDir: text(e.cache_dir), NoCache: e.no_cache != 0,
	}
	if out.Features, err = texts("external.features", e.features, e.feature_count); err != nil {
		return out, err
	}
	if out.Extensions, err = texts("external.extensions", e.extensions, e.extension_count); err != nil {
		return out, err
	}
	if (e.lock == nil) != (e.unlock == nil) {
		return out, door.Required("external.lock and unlock, both or neither,")
	}
	if e.lock != nil {
		out.Lock = &queueLock{e.lock, e.unlock, *(*uintptr)(unsafe.Pointer(&e.context))}
	}
	return out, nil
}

// texts reads an array of strings.
func texts(name string, from **C.char, count C.uint32_t) (out []string, err error) {
	const most = 4096 // more than Vulkan has
	switch {
	case count > most:
		return nil, door.TooMany(name, uint32(count), most)
	case from == nil && count > 0:
		return nil, door.Required(name)
	}
	for _, s := range unsafe.Slice(from, count) {
		if s == nil {
			return nil, door.Required("each of " + name)
		}
		out = append(out, text(s))
	}
	return out, nil
}

func optionsOf(o *C.vkattn_options) (door.Options, error) {
	if o == nil {
		return door.Options{}, nil
	}
	if err := given("options", o); err != nil {
		return door.Options{}, err
	}
	return door.Options{
		Layout: uint32(o.layout), Causal: uint32(o.causal), Window: o.window != 0, Left: int64(o.window_left), Right: int64(o.window_right),
		Scale: float64(o.scale), Dropout: float64(o.dropout), Seed: uint64(o.seed), Offset: uint32(o.offset),
	}, nil
}

func cacheOptionsOf(o *C.vkattn_cache_options) (door.CacheOptions, error) {
	if err := given("options", o); err != nil {
		return door.CacheOptions{}, err
	}
	return door.CacheOptions{
		DType: uint32(o.dtype), Layers: uint32(o.layers), Heads: uint32(o.heads), KeyHeads: uint32(o.key_heads),
		HeadDim: uint32(o.head_dim), ValueDim: uint32(o.value_dim), Page: uint32(o.page), Pages: uint32(o.pages),
		MaxSequences: uint32(o.max_sequences), MaxLength: uint32(o.max_length), Rows: uint32(o.rows), Tokens: uint32(o.tokens),
	}, nil
}

// tensors converts those of a pass, one after the other, and keeps the first error.
type tensors struct{ err error }

// of gives a tensor, nil of NULL.
func (t *tensors) of(name string, from *C.vkattn_tensor) *door.Tensor {
	if from == nil || t.err != nil {
		return nil
	}
	if t.err = given(name, from); t.err != nil {
		return nil
	}
	out := &door.Tensor{DType: uint32(from.dtype), Data: from.data, Buffer: uint64(from.buffer), Bytes: uint64(from.bytes),
		Offset: uint64(from.offset)}
	for i := range out.Shape {
		out.Shape[i], out.Strides[i] = int64(from.shape[i]), int64(from.strides[i])
	}
	return out
}

func forwardOf(name string, f *C.vkattn_forward) (door.Forward, error) {
	if err := given(name, f); err != nil {
		return door.Forward{}, err
	}
	var t tensors
	return door.Forward{
		Q: t.of("forward.q", f.q), K: t.of("forward.k", f.k), V: t.of("forward.v", f.v), O: t.of("forward.o", f.o),
		LSE: t.of("forward.lse", f.lse), MaxLogit: t.of("forward.max_logit", f.max_logit), Bias: t.of("forward.bias", f.bias),
		Mask: t.of("forward.mask", f.mask), Sinks: t.of("forward.sinks", f.sinks),
		QueryLengths: t.of("forward.query_lengths", f.query_lengths), KeyLengths: t.of("forward.key_lengths", f.key_lengths),
	}, t.err
}

func backwardOf(b *C.vkattn_backward) (door.Backward, error) {
	if err := given("pass", b); err != nil {
		return door.Backward{}, err
	}
	f, err := forwardOf("pass.forward", b.forward)
	if err != nil {
		return door.Backward{}, err
	}
	var t tensors
	return door.Backward{
		Forward: f, DO: t.of("backward.do_", b.do_), DLSE: t.of("backward.dlse", b.dlse), DQ: t.of("backward.dq", b.dq),
		DK: t.of("backward.dk", b.dk), DV: t.of("backward.dv", b.dv), DBias: t.of("backward.dbias", b.dbias),
		DSinks: t.of("backward.dsinks", b.dsinks), Accumulate: b.accumulate != 0,
	}, t.err
}

func jvpOf(j *C.vkattn_jvp) (door.JVP, error) {
	if err := given("pass", j); err != nil {
		return door.JVP{}, err
	}
	f, err := forwardOf("pass.forward", j.forward)
	if err != nil {
		return door.JVP{}, err
	}
	var t tensors
	return door.JVP{
		Forward: f, QTangent: t.of("jvp.q_tangent", j.q_tangent), KTangent: t.of("jvp.k_tangent", j.k_tangent),
		VTangent: t.of("jvp.v_tangent", j.v_tangent), BiasTangent: t.of("jvp.bias_tangent", j.bias_tangent),
		SinksTangent: t.of("jvp.sinks_tangent", j.sinks_tangent), OTangent: t.of("jvp.o_tangent", j.o_tangent),
		LSETangent: t.of("jvp.lse_tangent", j.lse_tangent),
	}, t.err
}
