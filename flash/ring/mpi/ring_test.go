//go:build mpi && cgo

package mpi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// variant is attention that ranks compute.
type variant struct {
	problem flash.Problem
	starts  []int32 // of packed sequences, of queries and of keys; nil
}

// variants are of lengths that no number of ranks divides; with packed sequences and sinks ranks gather starts and gradients too, and with
// a bias each has its queries' rows.
var variants = []variant{
	{flash.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 151, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight}, nil},
	{flash.Problem{Batch: 4, Heads: 2, KeyHeads: 1, QueryLen: 90, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		Sinks:  true,
		Packed: flash.Packed{Queries: 151, Keys: 151}}, []int32{0, 20, 21, 108, 151}},
	{flash.Problem{Batch: 1, Heads: 2, QueryLen: 61, HeadDim: 16, DType: flash.F32, Bias: flash.PerScore{DType: flash.F32, Batch: 1,
		Heads: 2, Queries: 61, Keys: 61}}, nil},
	killedVariant,
}

// compute: forward and backward passes over the ranks against float64. All ranks make the same inputs, and what they compute is gathered.
func compute(ctx context.Context, c Comm) error { return computeBy(ctx, &watched{Comm: c}, true) }

// elsewhere is compute of ranks of which the last says that it is on another host: all send bytes.
func elsewhere(ctx context.Context, c Comm) error {
	m, err := hostmem.NewShared(1)
	if err != nil {
		return err
	}
	defer m.Close()
	w := &watched{Comm: c}
	if d := m.Descriptor(); d != nil && c.Rank() == c.Size()-1 {
		w.host = d.Host
	}
	return computeBy(ctx, w, false)
}

// watched counts the bytes that a rank sends, and may have it say that it is not on a host.
type watched struct {
	ring.Comm
	host string // that it hides; "": none
	sent atomic.Int64
}

func (w *watched) Send(ctx context.Context, to int, tag ring.Tag, data []byte) error {
	w.sent.Add(int64(len(data)))
	return w.Comm.Send(ctx, to, tag, data)
}

func (w *watched) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if w.host != "" {
		mine = bytes.ReplaceAll(mine, []byte(w.host), []byte("another"))
	}
	return w.Comm.AllGather(ctx, mine)
}

// imports says whether a device copies from memory that processes share.
func imports(d *flash.Device) (yes bool, err error) {
	m, err := hostmem.NewMover(d)
	if err != nil {
		return false, err
	}
	h, err := hostmem.NewShared(1)
	if err == nil {
		yes = h.Descriptor() != nil && m.Imports(h)
	}
	return yes, errors.Join(err, h.Close(), m.Close())
}

// spreads are how ranks are spread, where their number allows it.
var spreads = []ring.Shard{{}, {Over: ring.Heads}, {Over: ring.Both, PerHost: 2}}

// computeBy is compute, of ranks that map one another's memory where their devices import it, or of ranks that send.
func computeBy(ctx context.Context, c *watched, maps bool) (err error) {
	var mu sync.Mutex
	var messages []string
	d, err := flash.Open(flash.WithoutDiskCache(), flash.WithValidation(func(m flash.Message) {
		mu.Lock()
		defer mu.Unlock()
		messages = append(messages, m.ID+": "+m.Text)
	}))
	if vktest.Unvalidated(err) {
		d, err = flash.Open(flash.WithoutDiskCache())
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.Close())
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			err = errors.Join(err, errors.New(m))
		}
	}()
	r, err := ring.New(c, d)
	if err != nil {
		return err
	}
	can, err := imports(d)
	if err != nil {
		return err
	}
	if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" && !can && runtime.GOOS == "linux" {
		return errors.New("the device imports no memory that processes share")
	}
	many := c.Size() > 1
	for _, shard := range spreads {
		for _, v := range variants {
			heads := cmp.Or(v.problem.KeyHeads, v.problem.Heads)
			switch {
			case shard.Over == ring.Heads && (heads%c.Size() != 0 || c.Size() == 1),
				shard.Over == ring.Both && (heads%2 != 0 || c.Size() != 4),
				shard.Over != ring.Keys && shard.Over != ring.Either && v.problem.Bias != flash.PerScore{}: // ranks have its heads
				continue
			}
			before := c.sent.Load()
			err := v.compute(ctx, c, r, shard, func(p *ring.Plan) error {
				// Of ranks of hosts some may show memory where the last does not.
				if direct := p.Direct(); direct != (can && many && maps) && (maps || shard.Over != ring.Both) {
					return fmt.Errorf("memory of others is used: %v", direct)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("%v, %v: %w", shard, v.problem, err)
			}
			last := c.Rank() == c.Size()-1
			if sent := c.sent.Load() - before; maps && can && sent != 0 || !maps && many && last && sent == 0 {
				return fmt.Errorf("%v, %v: %d bytes were sent", shard, v.problem, sent)
			}
		}
	}
	return nil
}

// compute runs both passes of a variant on this rank. look sees the plan after them.
func (v *variant) compute(ctx context.Context, c ring.Comm, r *ring.Ring, shard ring.Shard, look func(*ring.Plan) error) (err error) {
	plan, err := r.Plan(ctx, v.problem, shard)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	x, err := v.place(ctx, c.Size(), r.Device(), plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.run(ctx, plan); err != nil {
		return err
	}
	if err := look(plan); err != nil {
		return err
	}
	mine := share{Queries: plan.Queries(), Keys: plan.Keys()}
	if mine.Values, err = x.download(ctx); err != nil {
		return err
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	gathered, err := c.AllGather(ctx, raw)
	if err != nil {
		return err
	}
	p := plan.Problem()
	all, source := v.inputs(&p, uint64(c.Size()))
	return v.judge(&p, all, source, gathered)
}

// place puts a rank's part of the inputs on its device, and poison where it writes.
func (v *variant) place(ctx context.Context, ranks int, d *flash.Device, plan *ring.Plan) (*placed, error) {
	p := plan.Problem()
	queries, keys := plan.Queries(), plan.Keys()
	all, source := v.inputs(&p, uint64(ranks))
	x := &placed{ctx: ctx, d: d}
	none := func(heads, columns int) *ref.Tensor { // poison
		t := ref.NewTensor(1, heads, max(all.Q.N, all.K.N), columns)
		for i := range t.Data {
			t.Data[i] = 12345
		}
		return &t
	}
	f, b := &x.forward, &x.backward
	f.Q, f.K, f.V = x.rows(&all.Q, queries), x.rows(&all.K, keys), x.rows(&all.V, keys)
	f.O, f.LSE, b.DO = x.rows(none(p.Heads, p.ValueDim), queries), x.rows(none(p.Heads, 1), queries), x.rows(source, queries)
	b.DQ, b.DK, b.DV = x.rows(none(p.Heads, p.HeadDim), queries), x.rows(none(p.KeyHeads, p.HeadDim), keys),
		x.rows(none(p.KeyHeads, p.ValueDim), keys)
	x.outputs = []*flash.Tensor{f.O, f.LSE, b.DQ, b.DK, b.DV}
	if p.Sinks {
		whole := []ring.Span{{Begin: 0, End: 1}}
		f.Sinks = x.rows(&ref.Tensor{B: 1, H: 1, N: 1, D: p.Heads, Data: all.Sinks}, whole)
		b.DSinks = x.rows(none(1, p.Heads), whole)
		x.outputs = append(x.outputs, b.DSinks)
	}
	if v.starts != nil {
		f.QueryStarts = x.integers(v.starts)
		f.KeyStarts = f.QueryStarts
	}
	if all.Bias != nil {
		f.Bias = x.rows(all.Bias, queries)
		b.DBias = x.rows(none(p.Heads, p.KeyLen), queries)
		x.outputs = append(x.outputs, b.DBias)
	}
	b.Forward = *f
	if x.err != nil {
		return nil, errors.Join(x.err, x.close())
	}
	return x, nil
}

// inputs are those of all tokens, and the gradient with respect to o.
func (v *variant) inputs(p *flash.Problem, seed uint64) (*ref.Problem, *ref.Tensor) {
	source := rand.New(rand.NewPCG(3, seed))
	random := func(shape [4]int) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		for i := range x.Data {
			x.Data[i] = float32(source.NormFloat64())
		}
		return x
	}
	in := &ref.Problem{Q: random(p.QShape()), K: random(p.KShape()), V: random(p.VShape()), Options: ref.Options{Scale: p.Scale}}
	if p.Causal == flash.CausalBottomRight {
		in.Causal = ref.BottomRight
	}
	if p.Sinks {
		in.Sinks = random([4]int{1, 1, 1, p.Heads}).Data
	}
	if p.Bias != (flash.PerScore{}) {
		bias := random([4]int{1, p.Heads, p.QueryLen, p.KeyLen})
		in.Bias = &bias
	}
	do := random(p.OShape())
	return in, &do
}

// placed are tensors on a rank's device; err is the first error.
type placed struct {
	ctx context.Context
	d   *flash.Device
	all []*flash.Tensor
	err error

	forward  flash.Forward
	backward flash.Backward
	outputs  []*flash.Tensor
}

// run runs both passes.
func (x *placed) run(ctx context.Context, plan *ring.Plan) error {
	if err := plan.Forward(ctx, x.forward); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	if err := plan.Backward(ctx, x.backward); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	return nil
}

// download gives the outputs.
func (x *placed) download(ctx context.Context) (out [][]float32, err error) {
	for _, t := range x.outputs {
		values := make([]float32, t.Elements())
		if err := t.Download(ctx, values); err != nil {
			return nil, err
		}
		out = append(out, values)
	}
	return out, nil
}

// rows places some rows of a tensor of all.
func (x *placed) rows(from *ref.Tensor, spans []ring.Span) *flash.Tensor {
	rows, values := 0, []float32(nil)
	for h := range from.H {
		rows = 0
		for _, s := range spans {
			rows += s.Len()
			for i := s.Begin; i < s.End; i++ {
				values = append(values, from.Row(0, h, i)...)
			}
		}
	}
	t := x.tensor(flash.F32, from.H, rows, from.D)
	if x.err == nil {
		x.err = t.Upload(x.ctx, values)
	}
	return t
}

func (x *placed) integers(values []int32) *flash.Tensor {
	t := x.tensor(flash.Int32, 1, 1, len(values))
	var raw []byte
	for _, n := range values {
		raw = binary.NativeEndian.AppendUint32(raw, uint32(n))
	}
	if x.err == nil {
		x.err = t.UploadBytes(x.ctx, raw)
	}
	return t
}

func (x *placed) tensor(dtype flash.DType, heads, rows, columns int) *flash.Tensor {
	if x.err != nil {
		return nil
	}
	t, err := x.d.NewTensor(dtype, 1, heads, rows, columns)
	if x.err = err; err == nil {
		x.all = append(x.all, t)
	}
	return t
}

func (x *placed) close() (err error) {
	for _, t := range x.all {
		err = errors.Join(err, t.Close())
	}
	return err
}

// share is what a rank has computed: o, lse, dq, dk, dv, and of sinks dsinks, which every rank has whole, or of a bias dbias.
type share struct {
	Queries, Keys []ring.Span
	Values        [][]float32
}

// judge puts what ranks have computed together, and compares it with float64.
func (v *variant) judge(p *flash.Problem, in *ref.Problem, do *ref.Tensor, gathered [][]byte) (err error) {
	shapes := [][4]int{p.OShape(), p.LSEShape(), p.QShape(), p.KShape(), p.VShape()}
	if p.Sinks {
		shapes = append(shapes, [4]int{1, 1, 1, p.Heads})
	}
	if in.Bias != nil {
		shapes = append(shapes, [4]int{1, p.Heads, p.QueryLen, p.KeyLen})
	}
	var got []ref.Array
	for _, shape := range shapes {
		got = append(got, ref.NewArray(shape[0], shape[1], shape[2], shape[3]))
	}
	for _, raw := range gathered {
		var s share
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		for i, a := range got {
			spans, values := s.Queries, s.Values[i]
			switch {
			case i == 3 || i == 4:
				spans = s.Keys
			case i == 5 && p.Sinks: // the last rank's count: all have the same
				spans = []ring.Span{{Begin: 0, End: 1}}
			}
			for h := range a.H {
				for _, span := range spans {
					for n := span.Begin; n < span.End; n++ {
						row := a.Row(0, h, n)
						for col := range row {
							row[col] = float64(values[col])
						}
						values = values[len(row):]
					}
				}
			}
		}
	}
	wantO, wantLSE, grad, plainO, plain, err := v.reference(in, do)
	if err != nil {
		return err
	}
	verdicts := map[string]ref.Verdict{
		"o":   ref.CheckOutput(got[0].Data, wantO.Data, plainO.Data, ref.F32),
		"lse": ref.CheckLSE(got[1].Data, wantLSE.Data, nil, ref.F32),
		"dq":  ref.CheckGradient(got[2].Data, grad.DQ.Data, plain.DQ.Data, ref.F32),
		"dk":  ref.CheckGradient(got[3].Data, grad.DK.Data, plain.DK.Data, ref.F32),
		"dv":  ref.CheckGradient(got[4].Data, grad.DV.Data, plain.DV.Data, ref.F32),
	}
	if p.Sinks {
		verdicts["dsinks"] = ref.CheckGradient(got[5].Data, grad.DSinks, plain.DSinks, ref.F32)
	}
	if in.Bias != nil {
		verdicts["dbias"] = ref.CheckGradient(got[5].Data, grad.DBias.Data, plain.DBias.Data, ref.F32)
	}
	for name, v := range verdicts {
		if !v.OK {
			err = errors.Join(err, fmt.Errorf("%s: %v", name, v))
		}
	}
	return err
}

// reference is what is right.
func (v *variant) reference(in *ref.Problem,
	do *ref.Tensor) (o, lse ref.Array, grad *ref.Gradients, plainO ref.Array, plain *ref.Gradients, err error) {
	var errs [4]error
	if v.starts != nil {
		o, lse, errs[0] = ref.ForwardPacked(*in, v.starts, v.starts)
		plainO, _, errs[1] = ref.PlainForwardPacked(*in, ref.F32, v.starts, v.starts)
		grad, errs[2] = ref.BackwardPacked(*in, v.starts, v.starts, *do, nil)
		plain, errs[3] = ref.PlainBackwardPacked(*in, ref.F32, v.starts, v.starts, *do, nil)
	} else {
		o, lse, errs[0] = ref.Forward(*in)
		plainO, _, errs[1] = ref.PlainForward(*in, ref.F32)
		grad, errs[2] = ref.Backward(*in, *do, nil)
		plain, errs[3] = ref.PlainBackward(*in, ref.F32, *do, nil)
	}
	return o, lse, grad, plainO, plain, errors.Join(errs[:]...)
}
