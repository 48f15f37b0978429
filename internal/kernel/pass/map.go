package pass

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Maps is a kernel of maps: what its tile says of any problem.
type Maps struct {
	Label, Module, Tile string // as Fused's
	Tier                kernel.Tier
	Rows                int // queries that a group of invocations takes at a time
	Groups              int // of a workgroup
	Keys                int // of a tile
	Pace                kernel.Pace
	Trusted             bool     // rests on what Vulkan promises: tried only with functions of the user's in it
	Buffers             *Buffers // of the module: Q, K and LSE

	Constants func(*attn.Problem, kernel.MapVariant) kernel.Constants
	Made      pipeline.KernelInfo
}

// MapProgram makes maps of a problem's weights. It is shared by all recordings of its plan.
type MapProgram struct {
	*Maps
	Problem attn.Problem
	env     *kernel.Env
	tables  *ready // of packed sequences
	made    [kernel.MapVariants]atomic.Pointer[ready]
	ends    [2]atomic.Pointer[ready] // by MapVariant.Largest
}

const (
	mapBandKeys   = 256     // least number of keys that a workgroup is worth starting for
	mostMapPieces = 1 << 22 // of all pictures, where cells are cut
)

// Program fits the kernel to a problem of kernel.MapProblem. What is tried before its first use is tried now where another kernel may take
// its place, and all of it on a device of the caller's, whose queue recording must leave alone.
func (k *Maps) Program(e *kernel.Env, problem *attn.Problem) (*MapProgram, error) {
	m, err := k.fit(e, problem)
	if err != nil || !m.proves() {
		return m, err
	}
	usual, _ := Dense(problem)
	all := []kernel.MapVariant{{Aligned: usual}}
	if e.Attached {
		all = []kernel.MapVariant{{}, {Largest: true}, {Statistics: true}, {Aligned: usual}, {Aligned: usual, Largest: true},
			{Aligned: usual, Statistics: true}}
	}
	for _, v := range all {
		if _, err := m.ready(v); err != nil {
			return m, err
		}
	}
	return m, nil
}

// fit makes no pipeline but that of tables.
func (k *Maps) fit(e *kernel.Env, problem *attn.Problem) (*MapProgram, error) {
	m := &MapProgram{Maps: k, Problem: *problem, env: e}
	tables := m.pass()
	tables.tables(e, kernel.RowBlocks{Rows: k.Rows, Columns: k.Keys})
	err := e.Caps.Holds(tables.Bytes())
	if err == nil {
		m.tables, err = tables.build(e, nil)
	}
	return m, err
}

// pass is one of these stages, which find the tables in scratch memory.
func (m *MapProgram) pass(stages ...Stage) *Pass {
	p := &Pass{Problem: &m.Problem, Operands: slices.Concat(attn.ForwardOperands[:], kernel.MapTensors[:]), Stages: stages}
	if m.tables != nil {
		p.Scratch = m.tables.Scratch
	}
	return p
}

// weights is the pass of the kernel that makes weights again, into a picture, pieces or statistics.
func (m *MapProgram) weights(v kernel.MapVariant) *Pass {
	p, b := &m.Problem, m.Buffers
	bind := []Bind{{Name: b.Q, To: "Q", Mode: pipeline.Read}, {Name: b.K, To: "K", Mode: pipeline.Read},
		{Name: b.LSE, To: "LSE", Mode: pipeline.Read},
		{Name: "Cells", To: Cells, Mode: pipeline.ReadWrite, Given: true}} // blocks of queries that share cells add to them
	if v.Statistics {
		bind = append(bind, Bind{Name: "Distances", To: "Distance", Mode: pipeline.Write, Given: true})
	}
	return m.pass(Stage{Label: m.Label, Module: m.Module, Constants: m.Constants(p, v), Made: m.Made, Proves: true,
		Args: Args{As: AsMap, Problem: p}, Bind: append(bind, Scores(p, 0)...), Idle: "Q"})
}

// together is the pass that makes cells of their pieces.
func (m *MapProgram) together(largest bool) *Pass {
	return m.pass(Stage{Label: kernel.MapEndsLabel, Module: kernel.MapEndsLabel, Constants: kernel.MapEndsConstants(largest),
		Args: Args{As: AsMap, Problem: &m.Problem}, Idle: "Pieces",
		Bind: []Bind{{Name: "Pieces", To: "Pieces", Mode: pipeline.Read}, {Name: "Cells", To: Cells, Mode: pipeline.Write}}})
}

// proves says whether pipelines are tried before their first use.
func (m *MapProgram) proves() bool { return !m.Trusted || kernel.HasFunctions(&m.Problem) }

// ready gives the pass for a variant with its pipeline, made and, where it needs to be, tried at the first call.
func (m *MapProgram) ready(v kernel.MapVariant) (*ready, error) {
	at := &m.made[v.Index()]
	if p := at.Load(); p != nil {
		return p, nil
	}
	p, err := m.weights(v).build(m.env, nil)
	if err == nil && m.proves() {
		err = m.env.Prove(m.String(), p.proofs(), func() (string, error) { return m.try(v, p) })
	}
	if err != nil {
		return nil, err
	}
	at.Store(p)
	return p, nil
}

// try runs a pipeline on a small problem, of two blocks of queries and some tiles of keys, the last ones ragged, and says what is wrong
// with the map.
func (m *MapProgram) try(v kernel.MapVariant, of *ready) (wrong string, err error) {
	q := kernel.SelfCheckOf(&m.Problem)
	q.QueryLen, q.KeyLen = 2*m.Rows*m.Groups+3, 3*m.Keys+5
	kernel.GrowForBlocks(&q, true)
	kernel.GrowForBias(&q, &m.Problem)
	kernel.PackSelfCheck(&q)
	small, err := m.fit(m.env, &q)
	if err != nil {
		return "", err
	}
	p, err := small.weights(v).build(m.env, of)
	if err != nil {
		return "", err
	}
	small.made[v.Index()].Store(p)
	return m.env.TryMap(&small.Problem, v, m.Rows, small)
}

// cut divides the work of a picture so that a device is full, if there is work enough, and few of a group's rows go idle.
func (m *MapProgram) cut(of *kernel.Map) (c kernel.MapStage, err error) {
	c = kernel.MapStage{Map: *of, Down: 1, Across: 1, GroupRows: m.groupRows(of.Queries, of.Rows), Bands: 1}
	k := m.env.Caps.Prediction()
	full := 2 * max(k.Count, 1) * max(1, k.ResidentSubgroups/m.Groups)
	down := func() int { return attn.CeilDiv(of.Rows*c.Down, c.GroupRows*m.Groups) * of.Matrices() }
	room := mostMapPieces / (of.Matrices() * of.Rows * of.Columns)
	if high := of.Queries / of.Rows; down() < full && high > m.Rows && room > 1 { // long walks over keys are worth more than short ones
		c.Down = min(attn.CeilDiv(full*m.Groups, of.Rows*of.Matrices()), high/m.Rows, room)
		c.GroupRows = m.groupRows(of.Queries, of.Rows*c.Down)
	}
	if groups := down(); groups < full {
		c.Bands = max(1, min(attn.CeilDiv(full, groups), of.Keys/max(mapBandKeys, m.Keys)))
		if c.Bands > of.Columns {
			c.Across = min(attn.CeilDiv(c.Bands, of.Columns), of.Keys/of.Columns, max(1, room/c.Down))
			c.Bands = min(c.Bands, of.Columns*c.Across)
		}
	}
	c.Grid, err = m.grid(of, uint64(down())*uint64(c.Bands))
	return c, err
}

// groupRows is how many of so many rows of pieces a group takes: as few as leave few of its invocations idle.
func (m *MapProgram) groupRows(queries, rows int) int {
	best, least := 1, math.Inf(1)
	for n := 1; n <= min(rows, 4*m.Rows); n++ {
		taken := attn.CeilDiv(n*queries, rows) // at most
		if n > 1 && taken > 4*m.Rows {
			break
		}
		waste := float64(attn.CeilDiv(taken, m.Rows)*m.Rows) / (float64(n) * float64(queries) / float64(rows))
		if waste < 0.95*least {
			best, least = n, waste
		}
	}
	return best
}

func (m *MapProgram) grid(of *kernel.Map, groups uint64) (kernel.Grid, error) {
	if groups > kernel.MaxGroups {
		return kernel.Grid{}, attn.BadArgument("Map", groups, "needs more than %d workgroups", uint64(kernel.MaxGroups))
	}
	return kernel.NewGrid(groups, m.env.Caps.GroupsPerDispatch(groups, m.flops(of), m.Pace))
}

// flops is what scores cost, at the rate of head dimensions of 64 and more.
func (m *MapProgram) flops(of *kernel.Map) float64 {
	return 2 * float64(of.Matrices()) * float64(of.Queries) * float64(of.Keys) * float64(max(m.Problem.HeadDim, 64))
}

// Scratch is the workspace of every recording, and Pieces what a map needs beside it.
func (m *MapProgram) Scratch() []uint64 { return m.tables.Bytes() }
func (m *MapProgram) Pieces(of *kernel.Map) (uint64, error) {
	if of.Rows == 0 {
		return 0, nil
	}
	c, err := m.cut(of)
	if err != nil || c.Down*c.Across == 1 {
		return 0, err
	}
	return 4 * uint64(of.Matrices()) * uint64(of.Rows) * uint64(of.Columns) * uint64(c.Down) * uint64(c.Across), nil
}

// Dispatches is more than any map of the problem has.
func (m *MapProgram) Dispatches() int {
	q := &m.Problem
	seconds := m.flops(&kernel.Map{Batches: q.Batch, Heads: q.Heads, Queries: q.QueryLen, Keys: q.KeyLen}) /
		min(m.Pace.Discrete, m.Pace.Other)
	if m.env.Caps.GroupsPerDispatch(1, math.MaxFloat32, m.Pace) == 0 {
		seconds = 0 // there is no bound
	}
	const ends = 2
	return 2*int(2*math.Ceil(seconds/kernel.SecondsPerDispatch)+2) + m.tables.Dispatches() + ends
}

// Record writes a map's dispatches. o.Pieces is workspace of Pieces bytes, if any. In steady state that allocates nothing.
func (m *MapProgram) Record(r *kernel.Recorder, of *kernel.Map, o *kernel.MapOperands) error {
	if err := m.tables.maps(r, &kernel.MapStage{Operands: o}); err != nil {
		return err
	}
	if of.Rows > 0 {
		if err := m.picture(r, of, o); err != nil {
			return err
		}
	}
	if of.Statistics == 0 {
		return nil
	}
	c := kernel.MapStage{Map: *of, Operands: o, To: o.Entropy, Down: 1, Across: 1, GroupRows: m.Rows, Bands: 1}
	c.Rows, c.Columns = of.Queries, 1
	if !o.Entropy.Given() { // the offset and strides are those of what there is
		c.To = o.Distance
		c.To.Binding = pipeline.Binding{}
	}
	var err error
	if c.Grid, err = m.grid(of, uint64(attn.CeilDiv(of.Queries, m.Rows*m.Groups))*uint64(of.Matrices())); err != nil {
		return err
	}
	return m.record(r, &c, kernel.MapVariant{Statistics: true})
}

// picture makes cells, or the pieces and then the cells.
func (m *MapProgram) picture(r *kernel.Recorder, of *kernel.Map, o *kernel.MapOperands) error {
	c, err := m.cut(of)
	if err != nil {
		return err
	}
	v := kernel.MapVariant{Largest: of.Pool == kernel.PoolMax}
	c.Operands, c.To, c.Means = o, o.O, of.Pool == kernel.PoolMean
	if c.Down*c.Across == 1 {
		return m.record(r, &c, v)
	}
	across := uint32(of.Columns * c.Across)
	head := uint32(of.Rows*c.Down) * across
	pieces := c
	pieces.To, pieces.Means = o.Pieces, false
	pieces.To.Strides = [3]uint32{head * uint32(of.Heads), head, across}
	if err := m.record(r, &pieces, v); err != nil {
		return err
	}
	at := &m.ends[kernel.BoolInt(v.Largest)]
	p := at.Load()
	if p == nil {
		if p, err = m.together(v.Largest).build(m.env, nil); err != nil {
			return err
		}
		at.Store(p)
	}
	if c.Grid, err = kernel.NewGrid(uint64(of.Matrices())*uint64(of.Rows)*uint64(of.Columns), 0); err != nil {
		return err
	}
	return p.maps(r, &c)
}

// record writes the dispatches of the kernel that makes weights again.
func (m *MapProgram) record(r *kernel.Recorder, c *kernel.MapStage, v kernel.MapVariant) error {
	v.Aligned = c.Operands.Q.Aligned && c.Operands.K.Aligned
	p, err := m.ready(v)
	if err != nil {
		return err
	}
	return p.maps(r, c)
}

// String names the kernel and its tile.
func (m *MapProgram) String() string { return fmt.Sprintf("%s %s", m.Label, m.Tile) }
