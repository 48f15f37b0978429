package kernel

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// MapPool is what becomes of the weights of a cell.
type MapPool int

const (
	PoolSum MapPool = iota
	PoolMean
	PoolMax
)

// Statistics of rows, which take the place of cells, and what cells are; bits, as shaders/include/args_map.glsl has them.
const (
	mapMeans = 1 << iota
	MapEntropy
	MapDistance
)

// Map is what is to be made: a picture of a rectangle of queries and keys for each of some heads of some batch entries, statistics of the
// rectangle's queries, or both.
type Map struct {
	FirstBatch, Batches int
	FirstHead, Heads    int
	FirstQuery, Queries int
	FirstKey, Keys      int
	Rows, Columns       int // cells of a picture; 0: there is none
	Pool                MapPool
	Statistics          int // MapEntropy, MapDistance or both
}

// matrices is the number of heads, batch included.
func (m *Map) matrices() int { return m.Batches * m.Heads }

// MapOperands are the tensors of a map.
type MapOperands struct {
	Q, K, LSE, Out, Entropy, Distance Operand
	Scores
	Blocks pipeline.Binding
}

// MapVariant says which pipeline of a program a map needs: one that adds up, one that takes the largest (Largest), or one of statistics.
type MapVariant struct{ Aligned, Largest, Statistics bool }

const mapVariants = 8

func (v MapVariant) index() int {
	return BoolInt(v.Aligned) + 2*BoolInt(v.Largest) + 4*BoolInt(v.Statistics)
}

// MapProgram makes maps of a problem's weights. It is shared by all recordings of its plan.
type MapProgram struct {
	Env     *Env
	Problem attn.Problem
	Module  string // with the type's suffix
	Label   string // of its dispatches
	Named   string // the tile, for people
	Tier    Tier
	Trusted bool // rests on what Vulkan promises: tried only with functions of the user's in it
	Rows    int  // queries that a group of invocations takes at a time
	Groups  int  // of a workgroup
	Keys    int  // of a tile
	Pace    Pace

	// Describe gives the specialization constants of a variant, and what else its pipeline is made with.
	Describe func(v MapVariant) (Constants, pipeline.KernelInfo)

	building sync.Mutex
	kernels  [mapVariants]atomic.Pointer[pipeline.Kernel]
	ends     [2]atomic.Pointer[pipeline.Kernel] // by MapVariant.Largest
	rows     RowTables                          // of packed sequences
}

// Labels of dispatches beside a program's own, and names of their modules.
const mapEndsLabel = "map_ends"

// MapEndedPitch is ENDED_PITCH of map_cells.glsl, floats of shared memory for each row.
const MapEndedPitch = 17

const (
	mapEndsThreads = 64
	mapBandKeys    = 256     // least number of keys that a workgroup is worth starting for
	mostMapPieces  = 1 << 22 // of all pictures, where cells are cut
)

// MapProblem is what maps are concerned with of a problem: nothing of values, no dropout, no sinks, which are in lse, and no classes of
// blocks, which only save asking functions.
func MapProblem(p *attn.Problem) attn.Problem {
	out := *p
	out.ValueDim, out.ValueType, out.Dropout, out.Sinks = p.HeadDim, p.DType, 0, false
	if p.Blocks.Classed {
		out.Blocks = attn.Blocks{}
	}
	return out
}

// MapConstants are what every kernel of maps is told of the problem and of its tensors.
func MapConstants(p *attn.Problem, v MapVariant) Constants {
	c := Constants{"D": p.HeadDim, "ALIGNED": BoolInt(v.Aligned), "LARGEST": BoolInt(v.Largest),
		"STATISTICS": BoolInt(v.Statistics)}.And(MaskConstants(p), ScoreConstants(p), LengthConstants(p), CacheConstants(p))
	if p.Cached() {
		return c
	}
	return c.And(BlockConstants(p.Blocks))
}

// MapsOf fills in what every family's program has. What is tried before its first use is tried now where another kernel may take its place,
// and all of it on a device of the caller's, whose queue recording must leave alone.
func MapsOf(m *MapProgram) (*MapProgram, error) {
	if err := m.tables(); err != nil || !m.tried() {
		return m, err
	}
	usual := m.Problem.HeadDim*m.Problem.DType.Size()%16 == 0
	if !m.Env.Attached {
		_, err := m.Kernel(MapVariant{Aligned: usual})
		return m, err
	}
	for _, aligned := range []bool{false, usual} {
		for _, v := range []MapVariant{{}, {Largest: true}, {Statistics: true}} {
			v.Aligned = aligned
			if _, err := m.Kernel(v); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

func (p *MapProgram) tables() (err error) {
	p.rows, err = NewRowTables(p.Env, &p.Problem, RowBlocks{Rows: p.Rows, Columns: p.Keys})
	return err
}

// tried says whether pipelines are tried before their first use.
func (p *MapProgram) tried() bool { return !p.Trusted || HasFunctions(&p.Problem) }

// mapCut is how a map's work is divided: rows and columns of pieces, which are cells unless those are cut.
type mapCut struct {
	down, across int // pieces of a cell
	groupRows    int // rows of pieces of a group
	bands        int // of columns of pieces
	grid         Grid
}

// cut divides the work of a picture so that a device is full, if there is work enough, and few of a group's rows go idle.
func (p *MapProgram) cut(m *Map) (c mapCut, err error) {
	c = mapCut{down: 1, across: 1, groupRows: p.groupRows(m.Queries, m.Rows), bands: 1}
	k := p.Env.Caps.Prediction()
	full := 2 * max(k.Count, 1) * max(1, k.ResidentSubgroups/p.Groups)
	down := func() int { return attn.CeilDiv(m.Rows*c.down, c.groupRows*p.Groups) * m.matrices() }
	room := mostMapPieces / (m.matrices() * m.Rows * m.Columns)
	if high := m.Queries / m.Rows; down() < full && high > p.Rows && room > 1 { // long walks over keys are worth more than short ones
		c.down = min(attn.CeilDiv(full*p.Groups, m.Rows*m.matrices()), high/p.Rows, room)
		c.groupRows = p.groupRows(m.Queries, m.Rows*c.down)
	}
	if groups := down(); groups < full {
		c.bands = max(1, min(attn.CeilDiv(full, groups), m.Keys/max(mapBandKeys, p.Keys)))
		if c.bands > m.Columns {
			c.across = min(attn.CeilDiv(c.bands, m.Columns), m.Keys/m.Columns, max(1, room/c.down))
			c.bands = min(c.bands, m.Columns*c.across)
		}
	}
	c.grid, err = p.grid(m, uint64(down())*uint64(c.bands))
	return c, err
}

// groupRows is how many of so many rows of pieces a group takes: as few as leave few of its invocations idle.
func (p *MapProgram) groupRows(queries, rows int) int {
	best, least := 1, math.Inf(1)
	for n := 1; n <= min(rows, 4*p.Rows); n++ {
		taken := attn.CeilDiv(n*queries, rows) // at most
		if n > 1 && taken > 4*p.Rows {
			break
		}
		waste := float64(attn.CeilDiv(taken, p.Rows)*p.Rows) / (float64(n) * float64(queries) / float64(rows))
		if waste < 0.95*least {
			best, least = n, waste
		}
	}
	return best
}

func (p *MapProgram) grid(m *Map, groups uint64) (Grid, error) {
	if groups > MaxGroups {
		return Grid{}, attn.BadArgument("Map", groups, "needs more than %d workgroups", uint64(MaxGroups))
	}
	return NewGrid(groups, p.Env.Caps.GroupsPerDispatch(groups, p.flops(m), p.Pace))
}

// flops is what scores cost, at the rate of head dimensions of 64 and more.
func (p *MapProgram) flops(m *Map) float64 {
	return 2 * float64(m.matrices()) * float64(m.Queries) * float64(m.Keys) * float64(max(p.Problem.HeadDim, 64))
}

// Scratch is the workspace of every recording, and Pieces what a map needs beside it.
func (p *MapProgram) Scratch() []uint64 { return p.rows.Scratch() }
func (p *MapProgram) Pieces(m *Map) (uint64, error) {
	if m.Rows == 0 {
		return 0, nil
	}
	c, err := p.cut(m)
	if err != nil || c.down*c.across == 1 {
		return 0, err
	}
	return 4 * uint64(m.matrices()) * uint64(m.Rows) * uint64(m.Columns) * uint64(c.down) * uint64(c.across), nil
}

// Dispatches is more than any map of the problem has.
func (p *MapProgram) Dispatches() int {
	q := &p.Problem
	seconds := p.flops(&Map{Batches: q.Batch, Heads: q.Heads, Queries: q.QueryLen, Keys: q.KeyLen}) / min(p.Pace.Discrete, p.Pace.Other)
	if p.Env.Caps.GroupsPerDispatch(1, math.MaxFloat32, p.Pace) == 0 {
		seconds = 0 // there is no bound
	}
	const ends = 2
	return 2*int(2*math.Ceil(seconds/SecondsPerDispatch)+2) + p.rows.Dispatches() + ends
}

// Bindings is the most that a dispatch binds.
func (p *MapProgram) Bindings() int { return len(Recorder{}.Access) }

// Kernel gives the pipeline of a variant, built and, where it needs to be, checked at the first call.
func (p *MapProgram) Kernel(v MapVariant) (*pipeline.Kernel, error) {
	at := &p.kernels[v.index()]
	if k := at.Load(); k != nil {
		return k, nil
	}
	p.building.Lock()
	defer p.building.Unlock()
	if k := at.Load(); k != nil {
		return k, nil
	}
	c, info := p.Describe(v)
	k, err := p.Env.Build(p.Module, c, info, p.Problem.Code())
	if err != nil {
		return nil, err
	}
	if p.tried() {
		compiled := []Compiled{{p.Module, c, p.Problem.Code()}}
		if err := p.Env.Prove(p.Label+" "+p.Named, compiled, func() (string, error) { return p.try(k, v) }); err != nil {
			return nil, err
		}
	}
	at.Store(k)
	return k, nil
}

// Record writes a map's dispatches. pieces is workspace of Pieces bytes, if any. In steady state that allocates nothing.
func (p *MapProgram) Record(r *Recorder, m *Map, o *MapOperands, pieces pipeline.Binding) error {
	if err := p.rows.Record(r, &o.Scores, r.Scratch); err != nil {
		return err
	}
	if m.Rows > 0 {
		if err := p.picture(r, m, o, pieces); err != nil {
			return err
		}
	}
	if m.Statistics == 0 {
		return nil
	}
	rows := *m
	rows.Rows, rows.Columns = m.Queries, 1
	c := mapCut{down: 1, across: 1, groupRows: p.Rows, bands: 1}
	groups := uint64(attn.CeilDiv(m.Queries, p.Rows*p.Groups)) * uint64(m.matrices())
	var err error
	if c.grid, err = p.grid(m, groups); err != nil {
		return err
	}
	entropy := o.Entropy
	if m.Statistics&MapEntropy == 0 {
		entropy = o.Distance
	}
	return p.weights(r, &rows, o, &c, &entropy, 0, MapVariant{Statistics: true})
}

// picture makes cells, or the pieces and then the cells.
func (p *MapProgram) picture(r *Recorder, m *Map, o *MapOperands, pieces pipeline.Binding) error {
	c, err := p.cut(m)
	if err != nil {
		return err
	}
	means, largest := uint32(0), m.Pool == PoolMax
	if m.Pool == PoolMean {
		means = mapMeans
	}
	if c.down*c.across == 1 {
		return p.weights(r, m, o, &c, &o.Out, means, MapVariant{Largest: largest})
	}
	across := uint32(m.Columns * c.across)
	head := uint32(m.Rows*c.down) * across
	to := Operand{Binding: pieces, Strides: [3]uint32{head * uint32(m.Heads), head, across}}
	if err := p.weights(r, m, o, &c, &to, 0, MapVariant{Largest: largest}); err != nil {
		return err
	}
	at := &p.ends[BoolInt(largest)]
	k := at.Load()
	if k == nil {
		if k, err = p.Env.Build(mapEndsLabel, MapEndsConstants(largest), pipeline.KernelInfo{}, score.Code{}); err != nil {
			return err
		}
		at.Store(k)
	}
	r.Access[0] = pipeline.Access{Binding: pieces, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: o.Out.Binding, Mode: pipeline.Write}
	if c.grid, err = NewGrid(uint64(m.matrices())*uint64(m.Rows)*uint64(m.Columns), 0); err != nil {
		return err
	}
	return r.Dispatch(k, r.Access[:2], r.Push.mapping(&p.Problem, m, o, &c, &o.Out, means), c.grid, c.grid.Total, mapEndsLabel)
}

// MapEndsConstants are the specialization constants of map_ends.
func MapEndsConstants(largest bool) Constants {
	return Constants{"WG": mapEndsThreads, "LARGEST": BoolInt(largest)}
}

// weights dispatches the kernel that makes weights again, into a picture, pieces or statistics.
func (p *MapProgram) weights(r *Recorder, m *Map, o *MapOperands, c *mapCut, to *Operand, means uint32, v MapVariant) error {
	v.Aligned = o.Q.Aligned && o.K.Aligned
	k, err := p.Kernel(v)
	if err != nil {
		return err
	}
	idle := pipeline.Access{Binding: o.Q.Binding, Mode: pipeline.Unused}
	r.Access[0] = pipeline.Access{Binding: o.Q.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: o.K.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: o.LSE.Binding, Mode: pipeline.Read}
	r.Access[3] = pipeline.Access{Binding: to.Binding, Mode: pipeline.ReadWrite} // blocks of queries that share cells add to them
	r.Access[4] = idle
	if v.Statistics && m.Statistics&MapDistance != 0 {
		r.Access[4] = pipeline.Access{Binding: o.Distance.Binding, Mode: pipeline.Write}
		if m.Statistics == MapDistance {
			r.Access[3] = idle
		}
	}
	r.Access[5] = idle
	if !p.Problem.Blocks.None() {
		r.Access[5] = pipeline.Access{Binding: o.Blocks, Mode: pipeline.Read}
	}
	r.BindLengths(6, &p.Problem, &o.Scores, o.Q.Binding)
	r.BindScores(forwardScores, k, &p.Problem, &o.Scores, o.Q.Binding)
	r.bindCache(&p.Problem, &o.Cache)
	return r.Dispatch(k, r.Accesses(k), r.Push.mapping(&p.Problem, m, o, c, to, means), c.grid, c.grid.Total, p.Label)
}

// mapping fills in the arguments.
func (p *Pushes) mapping(pr *attn.Problem, m *Map, o *MapOperands, c *mapCut, to *Operand, means uint32) (baseAt int) {
	baseAt = p.Begin(&PassArgs().Map, pr, &Draw{})
	p.PutFloat(ArgScoreScale, pr.Scale*math.Log2E)
	p.Put(ArgOffsets, Offsets(&o.Q, &o.K, to, &o.Distance))
	p.LSE(&o.LSE)
	p.Strides(ArgQ, &o.Q)
	p.Strides(ArgK, &o.K)
	p.Strides(ArgO, to)
	for _, x := range [...]struct {
		a argument
		v int
	}{{argFirstQuery, m.FirstQuery}, {argMapQueries, m.Queries}, {argFirstKey, m.FirstKey}, {argMapKeys, m.Keys}, {argMapRows, m.Rows},
		{argMapColumns, m.Columns}, {argCut, c.down | c.across<<16}, {argFirstBatch, m.FirstBatch}, {argFirstHead, m.FirstHead},
		{argMapHeads, m.Heads},
		{argGroupRows, c.groupRows}, {argBands, c.bands}} {
		p.PutInt(x.a, x.v)
	}
	p.Put(argWanted, means|uint32(m.Statistics))
	return baseAt
}

// String names the kernel and its tile.
func (p *MapProgram) String() string { return fmt.Sprintf("%s %s", p.Label, p.Named) }
