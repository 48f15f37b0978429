package flash

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Range is the positions from Begin up to, not including, End. The zero Range means all there are.
type Range struct{ Begin, End int }

// Pool says how a cell of a map is made from the weights of its pairs.
type Pool uint8

const (
	PoolMean Pool = iota // their sum over the number of pairs of the cell, whether a query sees the key or not
	// their sum: over all keys, a row of cells adds up to its number of queries, less what sinks take and queries that see nothing
	PoolSum
	PoolMax // the largest
)

// String names the pool.
func (p Pool) String() string {
	switch p {
	case PoolMean:
		return "mean"
	case PoolSum:
		return "sum"
	case PoolMax:
		return "maximum"
	}
	return fmt.Sprintf("Pool(%d)", uint8(p))
}

func (p Pool) kernel() kernel.MapPool {
	return [...]kernel.MapPool{PoolMean: kernel.PoolMean, PoolSum: kernel.PoolSum, PoolMax: kernel.PoolMax}[p]
}

// Map is a picture of what attends to what, and how widely: of the attention weights that a forward pass made lse of,
//
//	p_ij = exp(s_ij − lse_i)        s_ij as Problem says; 0 where query i does not see key j; before dropout
//
// pooled over the cells of a grid, for the heads and batch entries that it names. Out's shape [batches, heads, H, W] says how many cells a
// picture has. With Nq queries and Nk keys in the ranges, cell (y, x) holds the pairs of
//
//	queries  Queries.Begin + ⌊y·Nq/H⌋  up to  Queries.Begin + ⌊(y+1)·Nq/H⌋      and keys likewise, by x and W
//
// so that each pair is in one cell, and each cell has one pair at least: H is at most Nq, and W at most Nk. Smaller ranges look closer,
// down to single weights. Nothing of the size Nq × Nk is stored at any length; sums are fp32, in a fixed order: the same inputs give the
// same bits.
//
// Entropy and Distance are of each query, with sums over the keys of the range, which make a query's own numbers where that is all keys:
//
//	entropy_i  = −Σ_j p_ij log p_ij                                   natural logarithm; log n where n keys share it evenly
//	distance_i = Σ_j p_ij |i + Nk − Nq − j| / Σ_j p_ij                in tokens, with the problem's Nk and Nq (or an entry's own)
//
// Queries that see nothing have weights, entropy and distance 0, as have those beyond an entry's length, and those whose weights in the
// range are all too small for fp32. Of packed sequences batches are sequences, and positions are those in a sequence, up to QueryLen and
// KeyLen. LSE includes sinks, so that the weights of a row add up to less than 1 by the sink's. Where it was made by [Standard] attention,
// it is of scores rounded to the storage type, and weights, of scores that are not, add up to 1 within that.
type Map struct {
	// The forward pass whose weights are pooled, with LSE as it wrote it. V, O, Sinks, ValueScales, Weights, MaskBlocks, Seed and Offset
	// are ignored and may be nil: the weights, before dropout, follow from the rest.
	Forward

	Batches, Heads Range // of which there are pictures: batch entries, and query heads
	Queries, Keys  Range // what a picture is of
	Pool           Pool

	Out *Tensor // output, fp32 [batches, heads, H, W] of any strides whose last is 1, H and W at most 65535; nil: no picture
	// outputs, fp32 [batches, heads, queries, 1] in row-major order; nil: not wanted. They cost as much again as a picture
	Entropy, Distance *Tensor
}

// mapOperands are the tensors of a map, in the order of Map.given; those of which the map itself has the shape come first.
func mapOperands(r *mapCommands) []attn.Operand {
	f32 := func(*attn.Problem) attn.DType { return attn.F32 }
	rows := func(*attn.Problem) [4]int { return [4]int{r.m.Batches, r.m.Heads, r.m.Queries, 1} }
	table := []attn.Operand{
		{Name: "Out", Shape: func(*attn.Problem) [4]int { return [4]int{r.m.Batches, r.m.Heads, r.m.Rows, r.m.Columns} }, Type: f32,
			Output: true, Optional: true},
		{Name: "Entropy", Shape: rows, Statistics: true, Output: true, Optional: true},
		{Name: "Distance", Shape: rows, Statistics: true, Output: true, Optional: true},
	}
	for _, o := range attn.ForwardOperands {
		switch o.Name {
		case "V", "O", "MaxLogit", "Sinks", "Lists", "ValueScales":
			continue
		case "LSE":
			o.Output, o.Optional = false, false
		}
		table = append(table, o)
	}
	return table
}

// given lists the tensors in the order of mapOperands.
func (m *Map) given() (all [mapTensors]*Tensor) {
	forward, own := m.Forward.given(), [...]*Tensor{m.Out, m.Entropy, m.Distance}
	attn.Pick(all[:], mapPlaces, forward[:], own[:])
	return all
}

// mapped lists where kernels find them, in the same order.
func mapped(ops *kernel.MapOperands) (to [mapTensors]*kernel.Operand) {
	forward, own := ops.Operands.List(), [...]*kernel.Operand{&ops.O, &ops.Entropy, &ops.Distance}
	attn.Pick(to[:], mapPlaces, forward[:], own[:])
	return to
}

var mapPlaces = attn.Places(mapOperands(nil))

const (
	mapTensors = len(attn.ForwardOperands) - 6 + 3
	mapBlocks  = mapTensors // the block mask's place among what a recording holds; captured tensors follow
	mapHeld    = mapBlocks + 1 + MaxCaptured
	mostCells  = 65535 // down or across
)

// shape says what the map is to be, or what of it cannot be.
func (m *Map) shape(p *attn.Problem) (k kernel.Map, err error) {
	for _, x := range [...]struct {
		name         string
		of           Range
		most         int
		first, count *int
	}{{"Batches", m.Batches, p.Batch, &k.FirstBatch, &k.Batches}, {"Heads", m.Heads, p.Heads, &k.FirstHead, &k.Heads},
		{"Queries", m.Queries, p.QueryLen, &k.FirstQuery, &k.Queries}, {"Keys", m.Keys, p.KeyLen, &k.FirstKey, &k.Keys}} {
		if x.of == (Range{}) {
			x.of.End = x.most
		}
		if x.of.Begin < 0 || x.of.End > x.most || x.of.Begin >= x.of.End {
			return k, badArgument("Map."+x.name, x.of, "must begin at 0 or later, end at %d at most, the problem's number, and hold one "+
				"at least", x.most)
		}
		*x.first, *x.count = x.of.Begin, x.of.End-x.of.Begin
	}
	if m.Pool > PoolMax {
		return k, badArgument("Map.Pool", uint8(m.Pool), "must be PoolMean, PoolSum or PoolMax")
	}
	k.Pool = m.Pool.kernel()
	if m.Entropy != nil {
		k.Statistics |= kernel.MapEntropy
	}
	if m.Distance != nil {
		k.Statistics |= kernel.MapDistance
	}
	if m.Out == nil {
		if k.Statistics == 0 {
			return k, badArgument("Map.Out", "nil", "must be a tensor where neither Entropy nor Distance is wanted")
		}
		return k, nil
	}
	if err := m.Out.usable("Map.Out"); err != nil {
		return k, err
	}
	cells := m.Out.layout.Shape
	k.Rows, k.Columns = cells[2], cells[3]
	if k.Rows > min(k.Queries, mostCells) || k.Columns > min(k.Keys, mostCells) {
		return k, badArgument("Map.Out", m.Out, "must have at most %d × %d cells, one for each query and key of the ranges (and %d); a "+
			"view of it may have fewer",
			min(k.Queries, mostCells), min(k.Keys, mostCells), mostCells)
	}
	return k, nil
}

// Map makes a map and waits. Errors are as those of [Plan.Forward]. Each plan keeps a recording for its calls; a program that makes maps of
// the same tensors again and again, frame by frame, does better with [Plan.NewMapRecording].
func (p *Plan) Map(ctx context.Context, m Map) (err error) {
	defer during("Map", &err)
	if err := p.usable(); err != nil {
		return err
	}
	return p.maps.run(ctx, p.newMapRecording, func(r *Recording) error { return r.Map(m) })
}

// MapInfo says how the plan makes maps. The kernel is chosen at the first call of this or of anything that needs it. WorkspaceBytes are
// those of every recording: maps of few cells, whose work is cut into pieces, take up to 16 MiB more, by their shapes.
func (p *Plan) MapInfo() (_ PassInfo, err error) {
	defer during("MapInfo", &err)
	if err := p.usable(); err != nil {
		return PassInfo{}, err
	}
	program, reasons, err := p.mapping()
	if err != nil {
		return PassInfo{}, err
	}
	info := PassInfo{Tier: Tier(program.Tier), Kernel: program.String(), KernelName: program.Label, WhyNotFaster: slices.Clone(reasons)}
	for _, n := range program.Scratch() {
		info.WorkspaceBytes += n
	}
	return info, nil
}

// mapCommands is what a recording of maps has beside others.
type mapCommands struct {
	plan    *Plan
	program *pass.MapProgram
	table   []attn.Operand
	m       kernel.Map
	ops     kernel.MapOperands
	pieces  *pipeline.Buffer // workspace of maps whose cells are cut
}

// NewMapRecording makes an empty recording for [Recording.Map].
func (p *Plan) NewMapRecording(opts ...RecordingOption) (_ *Recording, err error) {
	defer during("NewMapRecording", &err)
	timestamps, err := timestampsOf(opts)
	if err != nil {
		return nil, err
	}
	if err := p.usable(); err != nil {
		return nil, err
	}
	return p.newMapRecording(timestamps)
}

func (p *Plan) newMapRecording(timestamps bool) (*Recording, error) {
	program, _, err := p.mapping()
	if err != nil {
		return nil, err
	}
	sizes := program.Scratch()
	if err := p.dev.roomFor("workspace", sizes); err != nil {
		return nil, err
	}
	c := &mapCommands{plan: p, program: program}
	c.table = mapOperands(c)
	r := &Recording{dev: p.dev, name: "Recording", first: "Map", mapping: c, tensors: p.withTables(make([]*Tensor, mapHeld))}
	if err := r.open(kernel.RecordingInfo(program.Dispatches(), timestamps)); err != nil {
		return nil, err
	}
	if err := r.workspace(sizes); err != nil {
		return nil, err
	}
	if kernel.NeedsMore(&program.Problem) {
		if r.writer.More, err = r.own("arguments", kernel.MoreBytes, vk.Upload); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Map prepares a recording of maps for these tensors and ranges, in place of what it held before. After the first time of a shape it
// allocates nothing.
func (r *Recording) Map(m Map) (err error) {
	defer during("Recording.Map", &err)
	if err := r.begin("Plan.NewMapRecording", r != nil && r.mapping != nil); err != nil {
		return err
	}
	defer r.mu.Unlock()
	r.ready = false
	c := r.mapping
	p := &c.program.Problem
	if c.m, err = m.shape(p); err != nil {
		return err
	}
	given, to := m.given(), mapped(&c.ops)
	if err := place(r.dev, "Map", c.table, p, given[:], to[:]); err != nil {
		return err
	}
	if err := m.Captured.place("Map", "Captured", c.plan, &c.ops.Captured); err != nil {
		return err
	}
	if err := m.Captured.apart("Map", c.table, given[:]); err != nil {
		return err
	}
	if !p.Blocks.None() || m.Blocks != nil {
		if err := m.Blocks.place("Map", r.dev, &c.plan.problem, &c.ops.Blocks); err != nil {
			return err
		}
	}
	if err := r.roomForPieces(); err != nil {
		return err
	}
	clear(r.tensors[copy(r.tensors, given[:]):mapHeld])
	if m.Blocks != nil {
		r.tensors[mapBlocks] = m.Blocks.words
	}
	for i, t := range m.Captured {
		r.tensors[mapBlocks+1+i] = t
	}
	c.ops.Pieces.Binding = pipeline.Binding{}
	if c.pieces != nil {
		c.ops.Pieces.Binding = c.pieces.All()
	}
	if err = r.reset(); err == nil {
		err = c.program.Record(&r.writer, &c.m, &c.ops)
	}
	if err != nil {
		return r.dev.fail(refused(err, "maps of "+c.plan.problem.String(), Tier(c.program.Tier)))
	}
	r.ready = true
	return nil
}

// roomForPieces allocates the workspace that a map of this shape needs, unless an earlier one needed as much. Nothing of the recording is
// in flight, and what it holds is written anew: the workspace it has outgrown goes at once. Sizes are powers of two, so that maps of
// growing shapes seldom need another.
func (r *Recording) roomForPieces() error {
	c := r.mapping
	size, err := c.program.Pieces(&c.m)
	if err != nil || size == 0 || c.pieces != nil && c.pieces.Size() >= size {
		return r.dev.fail(err)
	}
	size = 1 << bits.Len64(size-1)
	if err := r.dev.roomFor("workspace", []uint64{size}); err != nil {
		return err
	}
	b, err := r.dev.env.Ctx.Alloc("workspace", size, vk.DeviceLocal)
	if err != nil {
		return r.dev.fail(err)
	}
	r.rec.Own(b)
	c.pieces.Close()
	c.pieces = b
	return nil
}
