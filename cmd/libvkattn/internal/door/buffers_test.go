package door

import (
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/vk"
)

// countingLock counts how often it was taken.
type countingLock struct{ locked, unlocked atomic.Int64 }

func (l *countingLock) Lock()   { l.locked.Add(1) }
func (l *countingLock) Unlock() { l.unlocked.Add(1) }

// TestBuffers: a device of the caller's is attached by the names of its features, and tensors are in its buffers, some on the host.
func TestBuffers(t *testing.T) {
	d := flashtest.Device(t)
	external := d.External()
	lock := &countingLock{}
	e := External{
		GetInstanceProcAddr: external.GetInstanceProcAddr, Instance: external.Instance, PhysicalDevice: external.PhysicalDevice,
		Device: external.Device, Queue: external.Queue, QueueFamily: external.QueueFamily, APIVersion: uint32(external.APIVersion),
		Extensions: external.Extensions, Lock: lock, NoCache: true,
	}
	for name, on := range fieldsOf(&external.Enabled) {
		if *on {
			e.Features = append(e.Features, name)
		}
	}
	h, err := Attach(e)
	require.NoError(t, err)
	defer func() { require.NoError(t, Close(h)) }()
	text, err := Describe(h)
	require.NoError(t, err)
	require.Contains(t, text, d.Info().Name)

	rng := rand.New(rand.NewPCG(7, 7))
	of := func(shape [4]int, values []float32) (*flash.Tensor, *Tensor) {
		x, err := d.TensorFrom(t.Context(), flash.F32, values, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		out := &Tensor{Buffer: uint64(x.Buffer().Handle), Bytes: x.Buffer().Size}
		for i := range shape {
			out.Shape[i] = int64(shape[i])
		}
		return x, out
	}
	random := func(shape [4]int) []float32 { return flashtest.Values(rng, flash.F32, shape) }
	q, v := random(qShape), random(vShape)
	k := onHost(flash.F32, kShape, gaps, random(kShape))
	_, qt := of(qShape, q)
	_, vt := of(vShape, v)
	o, ot := of(oShape, random(oShape))
	require.NoError(t, SDPAForward(h, Options{}, Forward{Q: qt, K: k.Tensor, V: vt, O: ot}))
	require.Positive(t, lock.locked.Load())
	require.Equal(t, lock.locked.Load(), lock.unlocked.Load())

	got := make([]float32, o.Elements())
	require.NoError(t, o.Download(t.Context(), got))
	p := ref.Problem{Q: ref.Tensor{B: batch, H: heads, N: queries, D: dim, Data: q}, K: k.array(),
		V: ref.Tensor{B: batch, H: keyHeads, N: keys, D: valueDim, Data: v}}
	right, _, err := ref.Forward(p)
	require.NoError(t, err)
	plain, _, err := ref.PlainForward(p, ref.F32)
	require.NoError(t, err)
	verdict := ref.CheckOutput(ref.Widen(got), right.Data, plain.Data, ref.F32)
	require.True(t, verdict.OK, "%v", verdict)

	// What does not do is refused before anything runs.
	short := *qt
	short.Bytes = 16
	flashtest.Refused(t, "forward.q.offset", SDPAForward(h, Options{}, Forward{Q: &short, K: k.Tensor, V: vt, O: ot}))
	flashtest.Refused(t, "Forward.O", SDPAForward(h, Options{}, Forward{Q: qt, K: k.Tensor, V: vt, O: vt}))
	own := devices.add(&device{Device: d})
	defer func() { _, _ = devices.take(own) }()
	flashtest.Refused(t, "forward.q.buffer", SDPAForward(own, Options{}, Forward{Q: qt, K: k.Tensor, V: vt, O: ot}))
	e.Features = []string{"teleportation"}
	_, err = Attach(e)
	flashtest.Refused(t, "external.features", err)
	_, err = Attach(External{})
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestFeaturesHaveNames: each feature that there is has one name, so that one that is added to package vk is not forgotten here.
func TestFeaturesHaveNames(t *testing.T) {
	var all vk.Features
	fields := fieldsOf(&all)
	require.Len(t, fields, reflect.TypeFor[vk.Features]().NumField())
	for name, field := range fields {
		require.False(t, *field, "%s shares its field with another name", name)
		*field = true
	}
	f, err := featuresOf([]string{"shaderFloat16", "VK_EXT_memory_budget"})
	require.NoError(t, err)
	require.Equal(t, vk.Features{Float16: true, MemoryBudget: true}, f)
}
