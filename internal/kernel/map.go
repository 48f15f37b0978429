package kernel

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
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

// Matrices is the number of heads, batch included.
func (m *Map) Matrices() int { return m.Batches * m.Heads }

// MapOperands are the tensors of a map: those of the forward pass, with the picture as O.
type MapOperands struct {
	Operands
	Entropy, Distance Operand
	Pieces            Operand // of cells, which lie in workspace; none where they are whole
}

// MapTensors are the tensors that a map has beside those of attn.ForwardOperands, behind which List has them.
var MapTensors = [...]attn.Operand{{Name: "Entropy"}, {Name: "Distance"}, {Name: "Pieces"}}

// List gives the tensors in the order of attn.ForwardOperands and MapTensors.
func (o *MapOperands) List() (all [len(attn.ForwardOperands) + len(MapTensors)]*Operand) {
	forward := o.Operands.List()
	copy(all[copy(all[:], forward[:]):], []*Operand{&o.Entropy, &o.Distance, &o.Pieces})
	return all
}

// MapVariant says which pipeline a map needs: one that adds up, one that takes the largest (Largest), or one of statistics.
type MapVariant struct{ Aligned, Largest, Statistics bool }

// MapVariants is the number of them.
const MapVariants = 8

// Index numbers them.
func (v MapVariant) Index() int {
	return BoolInt(v.Aligned) + 2*BoolInt(v.Largest) + 4*BoolInt(v.Statistics)
}

// MapEndsLabel is the label of dispatches that put pieces of cells together, and the name of their module.
const MapEndsLabel = "map_ends"

// MapEndedPitch is ENDED_PITCH of map_cells.glsl, floats of shared memory for each row.
const MapEndedPitch = 17

// MapProblem is what maps are concerned with of a problem: nothing of values, no dropout, no sinks, which are in lse, and no classes of
// blocks, which only save asking functions.
func MapProblem(p *attn.Problem) attn.Problem {
	out := *p
	out.ValueDim, out.ValueType, out.Dropout, out.Sinks, out.MaxLogit = p.HeadDim, p.DType, 0, false, false
	if p.Blocks.Classed {
		out.Blocks = attn.Blocks{}
	}
	return out
}

// MapConstants are what every kernel of maps is told of the problem and of its tensors.
func MapConstants(p *attn.Problem, v MapVariant) Constants {
	return Constants{"D": p.HeadDim, "ALIGNED": BoolInt(v.Aligned), "LARGEST": BoolInt(v.Largest),
		"STATISTICS": BoolInt(v.Statistics)}.And(MaskConstants(p), ScoreConstants(p), LengthConstants(p), CacheConstants(p),
		BlockConstants(p.Blocks))
}

// MapEndsConstants are the specialization constants of map_ends.
func MapEndsConstants(largest bool) Constants {
	const threads = 64
	return Constants{"WG": threads, "LARGEST": BoolInt(largest)}
}

// MapStage is a rectangle as one stage of a map takes it: how the work is divided into rows and columns of pieces, which are cells unless
// those are cut, and what is written. It has no pointers but to the tensors, so that it stays on the stack.
type MapStage struct {
	Map
	Operands     *MapOperands
	To           Operand // cells, pieces of them or entropies
	Means        bool
	Down, Across int // pieces of a cell
	GroupRows    int // rows of pieces of a group of invocations
	Bands        int // of columns of pieces
	Grid         Grid
}

// Map fills in the arguments of a stage of a map.
func (p *Pushes) Map(pr *attn.Problem, s *MapStage) (baseAt int) {
	o := s.Operands
	baseAt = p.Begin(&PassArgs().Map, pr, &Draw{})
	p.PutFloat(ArgScoreScale, pr.Scale*math.Log2E)
	p.Put(ArgOffsets, Offsets(&o.Q, &o.K, &s.To, &o.Distance))
	p.LSE(&o.LSE)
	p.Strides(ArgQ, &o.Q)
	p.Strides(ArgK, &o.K)
	p.Strides(ArgO, &s.To)
	for _, x := range [...]struct {
		a argument
		v int
	}{{argFirstQuery, s.FirstQuery}, {argMapQueries, s.Queries}, {argFirstKey, s.FirstKey}, {argMapKeys, s.Keys}, {argMapRows, s.Rows},
		{argMapColumns, s.Columns}, {argCut, s.Down | s.Across<<16}, {argFirstBatch, s.FirstBatch}, {argFirstHead, s.FirstHead},
		{argMapHeads, s.Heads}, {argGroupRows, s.GroupRows}, {argBands, s.Bands},
		{argWanted, BoolInt(s.Means)*mapMeans | s.Statistics}} {
		p.PutInt(x.a, x.v)
	}
	return baseAt
}
