package door

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// FuzzTensor: a description of whatever numbers is refused or lies within its bytes, and then gathering takes each element from where
// vkattn.h says that it stands, and scattering brings it back and touches nothing else.
func FuzzTensor(f *testing.F) {
	f.Add(uint32(0), uint64(64), uint64(0), int64(1), int64(2), int64(2), int64(4), int64(0), int64(0), int64(0), int64(0))
	f.Add(uint32(1), uint64(200), uint64(6), int64(2), int64(2), int64(3), int64(4), int64(40), int64(5), int64(12), int64(1))
	f.Add(uint32(3), uint64(1)<<63, uint64(math.MaxUint64), int64(-1), int64(math.MaxInt64), int64(1)<<32, int64(1), int64(-4),
		int64(1)<<62, int64(1)<<31, int64(2))
	f.Fuzz(func(t *testing.T, dtype uint32, size, offset uint64, s0, s1, s2, s3, t0, t1, t2, t3 int64) {
		data := make([]byte, min(size, 1<<12)+1)
		for i := range data {
			data[i] = byte(i*7 + i>>8)
		}
		x := &Tensor{DType: dtype, Data: unsafe.Pointer(&data[0]), Bytes: size, Offset: offset, Shape: [4]int64{s0, s1, s2, s3},
			Strides: [4]int64{t0, t1, t2, t3}}
		l, err := x.layout("x")
		if err != nil {
			require.ErrorIs(t, err, flash.ErrArgument)
			return
		}
		if size > 1<<12 || l.Shape[0]*l.Shape[1]*l.Shape[2]*l.Shape[3] > 1<<16 {
			return // the description does, but there are no such bytes here; or repeated elements are too many to look at
		}
		whole := data[:size]
		e := int(l.Size)
		got := make([]byte, l.Shape[0]*l.Shape[1]*l.Shape[2]*l.Shape[3]*e)
		gather(got, x.host(&l), &l)
		touched := make([]bool, size)
		n := 0
		for b := range l.Shape[0] {
			for h := range l.Shape[1] {
				for i := range l.Shape[2] {
					for d := range l.Shape[3] {
						at := int(offset) + e*(b*l.Strides[0]+h*l.Strides[1]+i*l.Strides[2]+d)
						require.Equal(t, whole[at:at+e], got[n*e:][:e], "element %d", n)
						for j := range e {
							touched[at+j] = true
						}
						n++
					}
				}
			}
		}
		if l.SelfOverlaps() {
			return // refused of outputs
		}
		want := bytes.Clone(whole)
		for i := range got {
			got[i] ^= 0xff
		}
		for i := range want {
			if touched[i] {
				want[i] ^= 0xff
			}
		}
		scatter(x.host(&l), got, &l)
		require.Equal(t, want, whole)
	})
}

// words reads numbers off a string of bytes, zeros at its end.
type words struct{ data []byte }

func (w *words) next() uint64 {
	var x [8]byte
	w.data = w.data[copy(x[:], w.data):]
	return binary.LittleEndian.Uint64(x[:])
}

// small is mostly from 0 to 7, and sometimes anything.
func (w *words) small() int64 {
	x := w.next()
	if x>>59 != 0x1f {
		return int64(x % 8)
	}
	return int64(x << 8)
}

// tensor is a description whose address and bytes are true. It is of the type and shape given, or the words spoil it.
func (w *words) tensor(dtype flash.DType, shape [4]int) *Tensor {
	kind := w.next()
	size := 1 << 12
	data := make([]byte, size)
	x := &Tensor{DType: uint32(dtype), Data: unsafe.Pointer(&data[0]), Bytes: uint64(size)}
	for i := range shape {
		x.Shape[i] = int64(shape[i])
	}
	if kind%3 == 1 {
		strides := attn.ContiguousBNHD(shape)
		for i := range strides {
			x.Strides[i] = int64(strides[i])
		}
	}
	switch kind >> 8 % 128 {
	case 1:
		return nil
	case 2:
		x.Data = nil
	case 3:
		x.DType = uint32(w.small())
	case 4:
		x.Shape[kind>>16%4] = w.small()
	case 5:
		x.Strides[kind>>16%4] = w.small()
	case 6:
		x.Offset = uint64(w.small())
	case 7:
		x.Bytes = uint64(w.small())
	}
	return x
}

// anything calls every function of passes and caches with what words say, and gives their statuses.
func anything(t *testing.T, h Handle, data []byte) (statuses []Status) {
	w := &words{data}
	kind := w.next()
	o := Options{Layout: uint32(kind % 16 / 15), Causal: uint32(kind >> 8 % 3), Window: kind>>16%2 == 1, Left: w.small() - 1,
		Right: w.small() - 1, Offset: uint32(kind >> 32)}
	if kind>>24%8 == 7 {
		o.Layout, o.Causal, o.Scale = uint32(w.small()), uint32(w.small()), math.Float64frombits(w.next())
	}
	size := func() int { return 1 + int(w.next()%4) }
	b, hk, g, nq, nk := size(), size(), size(), size(), size()
	d, dv := 3+5*int(w.next()%2), 3+5*int(w.next()%2) // two of each, for pipelines are compiled for every one
	dtype := []flash.DType{flash.F32, flash.F16, flash.BF16}[w.next()%3]
	lse := [4]int{b, hk * g, nq, 1}
	q := func() *Tensor { return w.tensor(dtype, [4]int{b, hk * g, nq, d}) }
	k := func() *Tensor { return w.tensor(dtype, [4]int{b, hk, nk, d}) }
	v := func() *Tensor { return w.tensor(dtype, [4]int{b, hk, nk, dv}) }
	out := func() *Tensor { return w.tensor(dtype, [4]int{b, hk * g, nq, dv}) }
	forward := Forward{Q: q(), K: k(), V: v(), O: out(), LSE: w.tensor(flash.F32, lse)}
	optional := w.next()
	for i, to := range []**Tensor{&forward.MaxLogit, &forward.Bias, &forward.Mask, &forward.Sinks, &forward.QueryLengths,
		&forward.KeyLengths} {
		if optional>>i%4 == 3 {
			*to = w.tensor([]flash.DType{flash.F32, dtype, flash.Bool, flash.F32, flash.Int32, flash.Int32}[i],
				[...][4]int{{1, 1, b, hk * g}, {b, 1, nq, nk}, {1, hk * g, 1, nk}, {1, 1, 1, hk * g}, {1, 1, 1, b}, {1, 1, 1, b}}[i])
		}
	}
	call := func(name string, f func() error) {
		status, text := Enter(name, f)
		require.NotEqual(t, Panicked, status, text)
		require.NotEqual(t, Failed, status, text)
		require.Equal(t, status == OK, text == "", text)
		statuses = append(statuses, status)
	}
	call("forward", func() error { return SDPAForward(h, o, forward) })
	back := Backward{Forward: forward, DO: out(), DQ: q(), DK: k(), DV: v(), Accumulate: kind>>40%2 == 1}
	call("backward", func() error { return SDPABackward(h, o, back) })
	j := JVP{Forward: forward, QTangent: q(), KTangent: k(), VTangent: v(), OTangent: out()}
	call("jvp", func() error { return SDPAJVP(h, o, j) })
	call("cache", func() error {
		c, err := NewCache(h, CacheOptions{DType: uint32(dtype), Layers: 1, Heads: uint32(hk * g), KeyHeads: uint32(hk), HeadDim: uint32(d),
			ValueDim: uint32(dv), Page: 4, Pages: 4, MaxSequences: 2, Rows: uint32(b), Tokens: uint32(nq)})
		if err != nil {
			return err
		}
		defer func() { require.NoError(t, CloseCache(c)) }()
		s, err := AddSequence(c)
		if err != nil {
			return err
		}
		if err := Step(c, []Request{{Sequence: s + w.next()%16/15, Tokens: uint32(w.next() % 4)}}); err != nil {
			return err
		}
		return Attend(c, 0, o, Forward{Q: forward.Q, K: w.tensor(dtype, [4]int{b, hk, nq, d}), V: w.tensor(dtype, [4]int{b, hk, nq, dv}),
			O: forward.O})
	})
	return statuses
}

// FuzzPasses: whatever a program says of its tensors and options, each function comes back with a status that is no panic, and with a text
// where it is no success.
func FuzzPasses(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{1}, 400))
	f.Fuzz(func(t *testing.T, data []byte) { anything(t, opened(t), data) })
}

// TestAnything is FuzzPasses on random bytes: go test's fuzzer starts processes of its own, which find no driver that was unpacked for this
// one alone. Some calls succeed, and some are refused.
func TestAnything(t *testing.T) {
	h := opened(t)
	rng := rand.New(rand.NewPCG(5, 17))
	count := map[Status]int{}
	n := 60
	if testing.Short() {
		n = 25
	}
	for range n {
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		for _, s := range anything(t, h, data) {
			count[s]++
		}
	}
	t.Log(count)
	require.Greater(t, count[OK], n/4)
	require.Greater(t, count[BadArgument], n/4)
}
