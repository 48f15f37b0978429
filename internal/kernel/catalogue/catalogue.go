// Package catalogue lists the kernels of all families, and reads what is written about them by name.
package catalogue

import (
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/kernel/slabs"
	"github.com/vkattn/vkattn/internal/kernel/standard"
)

// Forward holds every kernel of the forward pass, the most preferred first within its implementation.
var Forward = []*kernel.Kernel{
	matrix.Decode,
	matrix.Latent,
	scalar.Decode,
	matrix.Forward,
	matrix.ForwardSplit,
	matrix.ForwardWide,
	scalar.Forward,
	standard.Matrix,
	standard.Scalar,
	matrix.Flash1,
	scalar.Flash1,
	matrix.BlockSparse,
	scalar.BlockSparse,
}

// Backward holds every kernel of the backward pass, the most preferred first within its implementation.
var Backward = []*kernel.BackwardKernel{
	scalar.BackwardLists,
	slabs.Backward,
	slabs.BackwardKeeping,
	matrix.Backward,
	scalar.Backward,
	standard.MatrixBackward,
	standard.ScalarBackward,
}

// JVP holds every kernel of forward mode, the most preferred first. They take what any implementation's forward pass left.
var JVP = []*kernel.JVPKernel{
	matrix.JVP,
	scalar.JVP,
}
