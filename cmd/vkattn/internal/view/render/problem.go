package render

import (
	"context"
	"errors"
	"math"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/heads"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/vk"
)

// layer is a layer of the subject on the device.
type layer struct {
	number       int
	q, k, o, lse *flash.Tensor

	// Of lists of keys, nil without: their numbers, a bit for each pair, and where those lie.
	lists, listed *flash.Tensor
	marks         *vk.Buffer
}

func (l *layer) close() error {
	return errors.Join(l.q.Close(), l.k.Close(), l.o.Close(), l.lse.Close(), l.lists.Close(), l.listed.Close(), l.marks.Close())
}

// list puts the layer's lists on the device.
func (r *Renderer) list(l *layer, of *view.Layer) (err error) {
	n := heads.ListsShape(of.Lists)
	if l.lists, err = r.attention.NewTensor(flash.Int32, n[0], n[1], n[2], n[3]); err != nil {
		return err
	}
	if err := l.lists.Upload(context.Background(), of.Lists.Numbers); err != nil {
		return err
	}
	bits := of.Lists.Bits(of.Heads)
	if l.marks, err = r.dev.NewBuffer(uint64(len(bits)), vk.DeviceLocal); err != nil {
		return err
	}
	raw, err := r.attention.TensorOn(ref(l.marks), 0, flash.Bool, [4]int{1, 1, 1, len(bits)}, [4]int{})
	if err != nil {
		return err
	}
	if err := errors.Join(raw.UploadBytes(context.Background(), bits), raw.Close()); err != nil {
		return err
	}
	shape, strides := heads.BitsLayout(of.Lists, of.Heads)
	l.listed, err = r.attention.TensorOn(ref(l.marks), 0, flash.Bit, shape, strides)
	return err
}

// load puts a layer of the subject on the device, in place of another.
func (r *Renderer) load(number int) (err error) {
	if err := r.idle(); err != nil {
		return err
	}
	if r.problem != nil {
		if err := r.problem.close(); err != nil {
			return err
		}
		r.problem = nil
	}
	if r.layer != nil {
		if err := r.layer.close(); err != nil {
			return err
		}
		r.layer = nil
	}
	of, ctx := &r.subject.Layers[number], context.Background()
	l := &layer{number: number}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.q, err = r.attention.NewTensor(r.dtype, 1, of.Heads, of.Queries, of.Dim); err != nil {
		return err
	}
	if l.k, err = r.attention.NewTensor(r.dtype, 1, of.KeyHeads, of.Keys, of.Dim); err != nil {
		return err
	}
	if l.o, err = r.attention.NewTensor(r.dtype, 1, of.Heads, of.Queries, of.Dim); err != nil {
		return err
	}
	if l.lse, err = r.attention.NewLSE(1, of.Heads, of.Queries); err != nil {
		return err
	}
	if err := errors.Join(l.q.Upload(ctx, of.Q), l.k.Upload(ctx, of.K)); err != nil {
		return err
	}
	if of.Lists != nil {
		if err := r.list(l, of); err != nil {
			return err
		}
	}
	r.layer = l
	return nil
}

// problem is attention with options, and its maps.
type problem struct {
	of       view.AttentionWork
	plan     *flash.Plan
	mapped   *flash.Plan // of maps
	forward  *flash.Recording
	maps     map[mapKey]*mapRecording
	args     flash.Forward
	captured []*flash.Tensor
	blocks   *flash.BlockMask
	flops    float64
	runs     int // of attention
}

// mapRecording is a map's commands, and what they hold.
type mapRecording struct {
	*flash.Recording
	out []*flash.Tensor
	of  mapping
}

// mapping is which map goes where.
type mapping struct {
	cells                *vk.Buffer
	at                   int // the first cell
	heads, queries, keys flash.Range
	rows, columns        int // 0: of each query entropy, and then distance, in place of a picture
	pool                 view.Pool
}

func (m *mapRecording) close() error {
	err := m.Recording.Close()
	for _, t := range m.out {
		err = errors.Join(err, t.Close())
	}
	m.out = nil
	return err
}

type mapKey int

const (
	largeMap mapKey = iota
	gridMap
	hoverMap
	rowMap // entropy and distance of the query under the pointer
)

func (p *problem) close() error {
	var err error
	for _, m := range p.maps {
		err = errors.Join(err, m.close())
	}
	err = errors.Join(err, p.forward.Close(), p.blocks.Close(), p.plan.Close())
	if p.mapped != p.plan {
		err = errors.Join(err, p.mapped.Close())
	}
	for _, t := range p.captured {
		err = errors.Join(err, t.Close())
	}
	return err
}

// Of scores: what depends on numbers that sliders change is captured, so that a plan's modules are compiled once for each set of functions.
const (
	capturedSlopes = "slopes"
	capturedCap    = "cap"
)

// functions are what the options make of scores.
func functions(o view.Options, heads int) (f score.Function, err error) {
	var all []score.Function
	if o.Softcap > 0 {
		c := score.Capture(capturedCap, 1).At(score.ConstInt(0))
		softcap, err := score.New(score.S().Div(c).Tanh().Mul(c))
		if err != nil {
			return f, err
		}
		all = append(all, softcap)
	}
	if o.Slope > 0 {
		all = append(all, score.ALiBiFrom(score.Capture(capturedSlopes, heads)))
	}
	if len(all) == 0 {
		return f, nil
	}
	return score.Compose(all...)
}

// describe is the problem of a layer with options.
func (r *Renderer) describe(w view.AttentionWork) (p flash.Problem, err error) {
	l, o := &r.subject.Layers[w.Layer], w.Options
	p = flash.Problem{
		Batch: 1, Heads: l.Heads, KeyHeads: l.KeyHeads, QueryLen: l.Queries, KeyLen: l.Keys, HeadDim: l.Dim, DType: r.dtype,
		Scale: 1 / (math.Sqrt(float64(l.Dim)) * o.Temperature),
	}
	if o.Causal {
		p.Causal = flash.CausalBottomRight
	}
	if o.Window > 0 {
		right := o.Window
		if o.Causal {
			right = 0
		}
		p.Window = flash.SlidingWindow(o.Window, right)
	}
	if o.Blocks != view.NoBlocks {
		p.Blocks = flash.Blocks{Queries: l.BlockSize(), Keys: l.BlockSize()}
	}
	p.ScoreFunction, err = functions(o, l.Heads)
	return p, err
}

// plan makes the problem of the work. The error may be that the device does not take it.
func (r *Renderer) plan(w view.AttentionWork) (_ *problem, err error) {
	desc, err := r.describe(w)
	if err != nil {
		return nil, err
	}
	p := &problem{of: w, maps: map[mapKey]*mapRecording{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	mapped := desc
	if w.Listed {
		desc, mapped = heads.Listed(desc, r.subject.Layers[w.Layer].Lists)
	}
	if p.plan, err = r.attention.Plan(desc); err != nil {
		return p, err
	}
	if p.mapped = p.plan; w.Listed {
		if p.mapped, err = r.attention.Plan(mapped); err != nil {
			return p, err
		}
	}
	if p.forward, err = p.plan.NewRecording(); err != nil {
		return p, err
	}
	for _, k := range []mapKey{largeMap, gridMap, hoverMap, rowMap} {
		m, err := p.mapped.NewMapRecording()
		if err != nil {
			return p, err
		}
		p.maps[k] = &mapRecording{Recording: m}
	}
	// Values do not change weights: keys stand for them.
	p.args = flash.Forward{Q: r.layer.q, K: r.layer.k, V: r.layer.k, O: r.layer.o, LSE: r.layer.lse}
	if err = r.capture(p, desc); err != nil {
		return p, err
	}
	p.flops = desc.ForwardFLOPs()
	if w.Options.Blocks != view.NoBlocks {
		if err = r.mask(p, desc); err != nil {
			return p, err
		}
	}
	forward := p.args
	if w.Listed {
		forward.Lists, p.args.Mask = r.layer.lists, r.layer.listed
	}
	return p, p.forward.Forward(forward)
}

// capture puts the numbers that functions capture on the device.
func (r *Renderer) capture(p *problem, desc flash.Problem) error {
	o := p.of.Options
	for i, c := range desc.Captures() {
		values := []float32{float32(o.Softcap)}
		if c.Name == capturedSlopes {
			values = make([]float32, desc.Heads)
			for h := range values {
				values[h] = float32(o.Slope * math.Exp2(-8*float64(h+1)/float64(desc.Heads)))
			}
		}
		t, err := r.attention.NewTensor(flash.F32, 1, 1, 1, len(values))
		if err != nil {
			return err
		}
		p.captured = append(p.captured, t)
		p.args.Captured[i] = t
		if err := t.Upload(context.Background(), values); err != nil {
			return err
		}
	}
	return nil
}

// mask puts the block mask on the device, and counts its share of the work.
func (r *Renderer) mask(p *problem, desc flash.Problem) (err error) {
	l, size := &r.subject.Layers[p.of.Layer], desc.Blocks.Queries
	rows, columns := (l.Queries+size-1)/size, (l.Keys+size-1)/size
	// Blocks are those of positions: with more keys than queries, queries are the last.
	shift := (l.Keys - l.Queries) / size
	bits := make([]bool, rows*columns)
	var seen, all float64
	for i := range rows {
		for j := range columns {
			sees := p.of.Options.Blocks.Sees(i+shift, j)
			bits[i*columns+j] = sees
			if !p.of.Options.Causal || j <= i+shift {
				all++
				if sees {
					seen++
				}
			}
		}
	}
	if all > 0 {
		p.flops *= seen / all
	}
	p.blocks, err = r.attention.NewBlockMask(context.Background(), desc, bits)
	p.args.Blocks = p.blocks
	return err
}

// prepareMap points a map's commands at its cells, where they are not what they were.
func (r *Renderer) prepareMap(key mapKey, of mapping) (err error) {
	m := r.problem.maps[key]
	if m.out != nil && m.of == of {
		return nil
	}
	what := flash.Map{
		Forward: r.problem.args, Heads: of.heads, Queries: of.queries, Keys: of.keys,
		Pool: [...]flash.Pool{view.PoolMax: flash.PoolMax, view.PoolMean: flash.PoolMean, view.PoolSum: flash.PoolSum}[of.pool],
	}
	var out []*flash.Tensor
	on := func(at, rows, columns int) *flash.Tensor {
		if err != nil {
			return nil
		}
		var t *flash.Tensor
		if t, err = r.attention.TensorOn(ref(of.cells), uint64(4*at), flash.F32, [4]int{1, of.heads.End - of.heads.Begin, rows, columns},
			[4]int{}); err == nil {
			out = append(out, t)
		}
		return t
	}
	if of.rows == 0 {
		n := of.queries.End - of.queries.Begin
		what.Entropy, what.Distance = on(of.at, n, 1), on(of.at+n, n, 1)
	} else {
		what.Out = on(of.at, of.rows, of.columns)
	}
	if err == nil {
		err = m.Map(what)
	}
	before := m.out
	m.out, m.of = out, of
	if err != nil {
		m.of = mapping{}
	}
	for _, t := range before {
		err = errors.Join(err, t.Close())
	}
	return err
}
