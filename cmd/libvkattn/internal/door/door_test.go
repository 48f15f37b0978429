package door

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/ref"
)

func TestMain(m *testing.M) { os.Exit(flashtest.Main(m)) }

// opened gives the handle of a device under the validation layers.
func opened(t testing.TB) Handle {
	t.Helper()
	return added(t, flashtest.Device(t))
}

// added gives the handle of a device.
func added(t testing.TB, d *flash.Device) Handle {
	t.Helper()
	h := devices.add(&device{Device: d, attached: true})
	t.Cleanup(func() { _, _ = devices.take(h) })
	return h
}

// arrangement is how a tensor lies in memory of the host.
type arrangement int

const (
	rowMajor arrangement = iota
	swappedRows
	gaps // between rows, and before the first
	arrangements
)

// hosted is a tensor [batch, heads, length, dimension] on the host, and its values.
type hosted struct {
	*Tensor
	data   []byte
	dtype  flash.DType
	shape  [4]int
	values []float32 // row-major
	layout attn.Layout
}

const filler = 0xa5 // bytes that are no element's

// onHost lays values out, those of an output nil.
func onHost(dtype flash.DType, shape [4]int, how arrangement, values []float32) *hosted {
	h := &hosted{dtype: dtype, shape: shape, values: values}
	size := dtype.Size()
	strides, offset := attn.Contiguous(shape), 0
	switch how {
	case swappedRows:
		strides = attn.ContiguousBNHD(shape)
	case gaps:
		strides, offset = attn.Contiguous([4]int{shape[0], shape[1] + 1, shape[2], shape[3] + 3}), 5*size
	}
	l, err := attn.NewLayout(uint64(offset), attn.DType(dtype), shape, strides, 1<<40)
	if err != nil {
		panic(err)
	}
	h.layout = l
	h.data = bytes.Repeat([]byte{filler}, offset+int(l.Span))
	if values != nil {
		raw := make([]byte, len(values)*size)
		attn.Encode(attn.DType(dtype), raw, values)
		scatter(h.data[offset:], raw, &l)
	}
	h.Tensor = &Tensor{DType: uint32(dtype), Data: unsafe.Pointer(&h.data[0]), Bytes: uint64(len(h.data)), Offset: uint64(offset)}
	for i := range shape {
		h.Shape[i], h.Strides[i] = int64(shape[i]), int64(strides[i])
	}
	return h
}

// got reads the elements, and requires that bytes between them were left alone.
func (h *hosted) got(t *testing.T) []float32 {
	t.Helper()
	raw := make([]byte, h.count()*h.dtype.Size())
	gather(raw, h.data[h.Offset:], &h.layout)
	rest := bytes.Clone(h.data)
	scatter(rest[h.Offset:], bytes.Repeat([]byte{filler}, len(raw)), &h.layout)
	require.Equal(t, bytes.Repeat([]byte{filler}, len(rest)), rest, "bytes that are no elements")
	out := make([]float32, h.count())
	attn.Decode(attn.DType(h.dtype), out, raw)
	return out
}

// count is the number of elements.
func (h *hosted) count() int {
	n, _ := attn.Elements(h.shape)
	return int(n)
}

// array is the values for the oracle.
func (h *hosted) array() ref.Tensor {
	return ref.Tensor{B: h.shape[0], H: h.shape[1], N: h.shape[2], D: h.shape[3], Data: h.values}
}

// transposed gives a tensor as the layout BNHD names its axes.
func (h *hosted) transposed() *Tensor {
	t := *h.Tensor
	t.Shape[1], t.Shape[2] = t.Shape[2], t.Shape[1]
	t.Strides[1], t.Strides[2] = t.Strides[2], t.Strides[1]
	return &t
}

// the sizes of the tests: two query heads share a key head, and queries are fewer than keys.
const batch, heads, keyHeads, queries, keys, dim, valueDim = 2, 4, 2, 19, 27, 16, 24

var (
	qShape   = [4]int{batch, heads, queries, dim}
	kShape   = [4]int{batch, keyHeads, keys, dim}
	vShape   = [4]int{batch, keyHeads, keys, valueDim}
	oShape   = [4]int{batch, heads, queries, valueDim}
	lseShape = [4]int{batch, heads, queries, 1}
)

// TestPasses: each pass on memory of the host, of every type and however it lies, is the oracle's within the bounds of all kernels.
func TestPasses(t *testing.T) {
	device := opened(t)
	for how := range arrangements {
		for _, dtype := range []flash.DType{flash.F32, flash.F16, flash.BF16} {
			t.Run(dtype.String()+"/"+[]string{"row-major", "swapped", "gaps"}[how], func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(how), uint64(dtype)))
				input := func(dtype flash.DType, shape [4]int, how arrangement) *hosted {
					return onHost(dtype, shape, how, flashtest.Values(rng, dtype, shape))
				}
				q, k, v := input(dtype, qShape, how), input(dtype, kShape, (how+1)%arrangements), input(dtype, vShape, how)
				bias := input(flash.F32, [4]int{1, heads, queries, keys}, how)
				sinks := input(flash.F32, [4]int{1, 1, 1, heads}, rowMajor)
				o, lse := onHost(dtype, oShape, how, nil), onHost(flash.F32, lseShape, rowMajor, nil)

				options := Options{Causal: uint32(flash.CausalBottomRight), Window: true, Left: 9, Right: -1, Scale: 0.3}
				f := Forward{Q: q.Tensor, K: k.Tensor, V: v.Tensor, O: o.Tensor, LSE: lse.Tensor, Bias: bias.Tensor, Sinks: sinks.Tensor}
				if how == swappedRows {
					options.Layout = uint32(flash.BNHD)
					f.Q, f.K, f.V, f.O = q.transposed(), k.transposed(), v.transposed(), o.transposed()
				}
				p := ref.Problem{Q: q.array(), K: k.array(), V: v.array()}
				p.Scale, p.Causal, p.Window = 0.3, ref.BottomRight, &ref.Window{Left: 9, Right: -1}
				p.Sinks = sinks.values
				b := bias.array()
				p.Bias = &b
				right, rightLSE, err := ref.Forward(p)
				require.NoError(t, err)
				judge := ref.DType(dtype)
				plain, _, err := ref.PlainForward(p, judge)
				require.NoError(t, err)

				require.NoError(t, SDPAForward(device, options, f))
				o.values, lse.values = o.got(t), lse.got(t)
				verdict := ref.CheckOutput(ref.Widen(o.values), right.Data, plain.Data, judge)
				require.True(t, verdict.OK, "o: %v", verdict)
				verdict = ref.CheckLSE(ref.Widen(lse.values), rightLSE.Data, nil, judge)
				require.True(t, verdict.OK, "lse: %v", verdict)

				dO := input(dtype, oShape, how)
				dlse := input(flash.F32, lseShape, rowMajor)
				dq, dk, dv := onHost(dtype, qShape, how, nil), onHost(dtype, kShape, how, nil), onHost(dtype, vShape, how, nil)
				dbias, dsinks := onHost(flash.F32, bias.shape, rowMajor, nil), onHost(flash.F32, sinks.shape, rowMajor, nil)
				back := Backward{Forward: f, DO: dO.Tensor, DLSE: dlse.Tensor, DQ: dq.Tensor, DK: dk.Tensor, DV: dv.Tensor,
					DBias: dbias.Tensor, DSinks: dsinks.Tensor}
				if how == swappedRows {
					back.DO, back.DQ, back.DK, back.DV = dO.transposed(), dq.transposed(), dk.transposed(), dv.transposed()
				}
				require.NoError(t, SDPABackward(device, options, back))
				grads, err := ref.Backward(p, dO.array(), dlse.values)
				require.NoError(t, err)
				plainGrads, err := ref.PlainBackward(p, judge, dO.array(), dlse.values)
				require.NoError(t, err)
				for _, g := range []struct {
					name         string
					got          *hosted
					right, plain []float64
				}{
					{"dq", dq, grads.DQ.Data, plainGrads.DQ.Data}, {"dk", dk, grads.DK.Data, plainGrads.DK.Data},
					{"dv", dv, grads.DV.Data, plainGrads.DV.Data}, {"dbias", dbias, grads.DBias.Data, plainGrads.DBias.Data},
					{"dsinks", dsinks, grads.DSinks, plainGrads.DSinks},
				} {
					g.got.values = g.got.got(t)
					verdict := ref.CheckGradient(ref.Widen(g.got.values), g.right, g.plain, judge)
					require.True(t, verdict.OK, "%s: %v", g.name, verdict)
				}

				// The same gradients again, added to numbers that are there: their sum, but for its rounding.
				once, there := dv.values, flashtest.Values(rng, dtype, vShape)
				sum := onHost(dtype, vShape, how, there)
				back.Accumulate, back.DV = true, sum.Tensor
				if how == swappedRows {
					back.DV = sum.transposed()
				}
				require.NoError(t, SDPABackward(device, options, back))
				for i, x := range sum.got(t) {
					require.InDelta(t, there[i]+once[i], x, 0.02*(1+math.Abs(float64(once[i]))), "dv[%d]", i)
				}

				qt, vt := input(dtype, qShape, how), input(dtype, vShape, how)
				ot, lset := onHost(dtype, oShape, how, nil), onHost(flash.F32, lseShape, rowMajor, nil)
				j := JVP{Forward: f, QTangent: qt.Tensor, VTangent: vt.Tensor, OTangent: ot.Tensor, LSETangent: lset.Tensor}
				if how == swappedRows {
					j.QTangent, j.VTangent, j.OTangent = qt.transposed(), vt.transposed(), ot.transposed()
				}
				require.NoError(t, SDPAJVP(device, options, j))
				dq1, dv1 := qt.array(), vt.array()
				tangents := ref.Tangents{Q: &dq1, V: &dv1}
				rightO, rightL, err := ref.JVP(p, tangents)
				require.NoError(t, err)
				plainO, plainL, err := ref.PlainJVP(p, judge, tangents)
				require.NoError(t, err)
				verdict = ref.CheckGradient(ref.Widen(ot.got(t)), rightO.Data, plainO.Data, judge)
				require.True(t, verdict.OK, "o's tangent: %v", verdict)
				verdict = ref.CheckGradient(ref.Widen(lset.got(t)), rightL.Data, plainL.Data, judge)
				require.True(t, verdict.OK, "lse's tangent: %v", verdict)
			})
		}
	}
}
