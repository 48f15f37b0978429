package flash

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// TestBadBackward: every tensor of a backward pass that does not fit its place gives an error that names the place and the rule.
func TestBadBackward(t *testing.T) {
	misfits := newMisfits(t)
	d, other, p, plan, mk, view := misfits.dev, misfits.other, misfits.problem, misfits.plan, misfits.tensor, misfits.view
	shape := p.QShape()
	big, closed := misfits.big, misfits.closed
	fresh := func() Backward {
		x := func() *Tensor { return mk(d, F16, 1, 2, 8, 16) }
		return Backward{Forward: Forward{Q: x(), K: x(), V: x(), O: x(), LSE: mk(d, F32, 1, 2, 8, 1)}, DO: x(), DQ: x(), DK: x(), DV: x()}
	}
	for _, c := range []struct {
		name     string
		change   func(b *Backward)
		argument string // of the *ArgumentError; "" for ErrClosed
	}{
		{"nil do", func(b *Backward) { b.DO = nil }, "Backward.DO"},
		{"nil lse", func(b *Backward) { b.LSE = nil }, "Backward.LSE"},
		{"nil dq", func(b *Backward) { b.DQ = nil }, "Backward.DQ"},
		{"zero dk", func(b *Backward) { b.DK = &Tensor{} }, "Backward.DK"},
		{"gradient of another type", func(b *Backward) { b.DV = mk(d, F32, 1, 2, 8, 16) }, "Backward.DV"},
		{"do of another shape", func(b *Backward) { b.DO = mk(d, F16, 1, 2, 8, 8) }, "Backward.DO"},
		{"another device", func(b *Backward) { b.DQ = mk(other, F16, 1, 2, 8, 16) }, "Backward.DQ"},
		{"closed", func(b *Backward) { b.O = closed }, ""},
		{"lse not fp32", func(b *Backward) { b.LSE = mk(d, F16, 1, 2, 8, 1) }, "Backward.LSE"},
		{"dlse of another shape", func(b *Backward) { b.DLSE = mk(d, F32, 1, 2, 9, 1) }, "Backward.DLSE"},
		{"dlse strided", func(b *Backward) {
			b.DLSE = view(mk(d, F32, 1, 2, 16, 1), 0, F32, p.LSEShape(), [4]int{32, 16, 1, 1})
		}, "Backward.DLSE"},
		{"dq is q", func(b *Backward) { b.DQ = b.Q }, "Backward.DQ"},
		{"dk is dv", func(b *Backward) { b.DK = b.DV }, "Backward.DK"},
		{"dv is do", func(b *Backward) { b.DV = b.DO }, "Backward.DV"},
		{"dk overlaps v", func(b *Backward) {
			b.V, b.DK = view(big, 0, F16, shape, [4]int{}), view(big, 300, F16, shape, [4]int{})
		}, "Backward.DK"},
		{"dq overlaps dv", func(b *Backward) {
			b.DQ, b.DV = view(big, 0, F16, shape, [4]int{}), view(big, 300, F16, shape, [4]int{})
		}, "Backward.DQ"},
		{"dv over itself", func(b *Backward) { b.DV = view(big, 0, F16, shape, [4]int{0, 16, 16, 1}) }, "Backward.DV"},
		{"dq overlaps lse", func(b *Backward) {
			b.DQ, b.LSE = view(big, 0, F16, shape, [4]int{}), view(big, 256, F32, p.LSEShape(), [4]int{})
		}, "Backward.DQ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := fresh()
			good := b
			c.change(&b)
			err := plan.Backward(bg, b)
			requireRefused(t, c.argument, err)
			require.NoError(t, plan.Backward(bg, good), "a refused call must leave the plan usable")
		})
	}
	for _, o := range attn.ForwardOperands {
		if slices.ContainsFunc(attn.BackwardOperands[:], func(of attn.Operand) bool { return of.Name == o.Name }) {
			require.False(t, o.Cache, o.Name)
			continue
		}
		if o.Name == "MaxLogit" { // which a backward pass takes no notice of
			continue
		}
		b := fresh()
		reflect.ValueOf(&b).Elem().FieldByName(o.Name).Set(reflect.ValueOf(b.Q))
		err := plan.Backward(bg, b)
		requireRefused(t, "Backward."+o.Name, err)
		require.ErrorContains(t, err, "caches have no gradients")
	}
	// Inputs may overlap, and be read with stride 0; gradients may share a packed buffer.
	b := fresh()
	b.K = b.Q
	b.DO = view(big, 0, F16, shape, [4]int{0, 0, 16, 1})
	packed := mk(d, F16, 1, 1, 8, 3*2*16)
	for i, g := range []**Tensor{&b.DQ, &b.DK, &b.DV} {
		*g = view(packed, uint64(i*2*16*2), F16, shape, [4]int{0, 16, 3 * 2 * 16, 1})
	}
	require.NoError(t, plan.Backward(bg, b))

	// A recording holds one kind of pass.
	forward, err := plan.NewRecording()
	require.NoError(t, err)
	require.ErrorContains(t, forward.Backward(b), "ForBackward")
	backward, err := plan.NewRecording(ForBackward())
	require.NoError(t, err)
	require.ErrorContains(t, backward.Forward(Forward{}), "with neither ForBackward nor ForJVP")
	_, err = backward.Submit()
	require.ErrorIs(t, err, ErrArgument, "nothing recorded yet")
	require.NoError(t, backward.Backward(b))
	require.NoError(t, b.DV.Close())
	_, err = backward.Submit()
	require.ErrorIs(t, err, ErrClosed, "a tensor closed after Backward")
	require.NoError(t, plan.Close())
	require.ErrorIs(t, plan.Backward(bg, b), ErrClosed)
	_, err = plan.BackwardInfo()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, new(Plan).Backward(bg, Backward{}), ErrArgument)
	require.ErrorIs(t, new(Recording).Backward(Backward{}), ErrArgument)
	flash1 := mustPlan(t, d, p, WithImplementation(Flash1))
	_, err = flash1.BackwardInfo()
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorIs(t, flash1.Backward(bg, fresh()), ErrUnsupported)
}
