package flash

import "github.com/vkattn/vkattn/pipeline"

// Use says how the world outside a recording touches a tensor: pipeline stages (VkPipelineStageFlags) and accesses
// (VkAccessFlags). The zero Use is the default: compute and transfer commands before, those and the host after.
type Use = pipeline.Use

// Untouched declares that a tensor needs no barrier on that side: the caller's own barriers take care of it.
//
//	o = o.Used(flash.TensorUse{Next: flash.Untouched})
var Untouched = pipeline.Untouched

// TensorUse is how a tensor is used before a recording and after it: what the recording's first barrier waits for, and what its
// last one makes wait. Zero values are the defaults of [Use].
type TensorUse struct{ Prior, Next Use }

// Used gives the tensor with another declared use: a tensor over the same memory, as a [Tensor.View] is, to give to passes in its place.
// t stays as it is, and so do passes that were given it. Nil gives nil.
//
// Passes of a tensor with the zero TensorUse, as new tensors and those of [Device.TensorOn] have it, wait for what compute and transfer
// commands of the queue did before with its memory, and make later ones, and the host, wait for them. That is right wherever the neighbours
// are such commands. A program that records a pass into a command buffer of its own, between commands at other stages, declares those:
// without that a fragment shader would not wait for what it reads.
//
//	const fragmentShader, shaderRead = 0x80, 0x20 // VK_PIPELINE_STAGE_FRAGMENT_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT
//	shown := o.Used(flash.TensorUse{Next: flash.Use{Stages: fragmentShader, Accesses: shaderRead}})
//	rec, err := plan.RecordForward(cmd, flash.Forward{Q: q, K: k, V: v, O: shown}) // and then the draw that reads o
//
// Where the program places barriers of its own, [Untouched] leaves the pass's out. A declared use replaces the default on its side: where
// other passes of this library are neighbours too, it names compute among its stages, or those passes are given t. It is of the memory, so
// a pass that is given the same memory under two names is given one use of it. [Tensor.Upload] and its like do not look at it.
//
// Each call makes a tensor, and a recording that is given another tensor than before is written anew: call Used when the tensor is made,
// not before every pass.
func (t *Tensor) Used(u TensorUse) *Tensor {
	if t == nil {
		return nil
	}
	used := *t
	used.use = u
	return &used
}

// Use is the declared use, of [Tensor.Used]; the zero TensorUse where none was declared.
func (t *Tensor) Use() TensorUse {
	if t == nil {
		return TensorUse{}
	}
	return t.use
}

// declare says in an empty recording how its tensors, which may be nil, are used outside of it: each tensor's own bytes, not those of a
// neighbour that the binding begins in.
func declare(rec *pipeline.Recording, tensors []*Tensor) error {
	for _, t := range tensors {
		if t == nil || t.use == (TensorUse{}) {
			continue
		}
		b := t.bound.Binding
		if err := rec.Used(b, t.Offset()-b.Offset, t.use.Prior, t.use.Next); err != nil {
			return err
		}
	}
	return nil
}
