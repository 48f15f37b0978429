package ring

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// more is a rank's tensors besides queries, keys and values; nil where a problem has none.
type more struct {
	queryStarts, keyStarts, queryLengths, keyLengths, sinks, dsinks, bias, dbias, mask *flash.Tensor
	captured, dcaptured                                                                flash.Captured
	blocks                                                                             *flash.BlockMask
	maxLogit                                                                           *flash.Tensor
}

// randomBlocks draws the problem's block mask: half of the blocks, none of those of the last third of keys with the first half of queries,
// and all of the first quarter of keys with the last quarter of queries.
func (s *sample) randomBlocks(r *rand.Rand) {
	p := &s.problem
	shape := p.MaskShape()
	for range shape[0] {
		for row := range shape[1] {
			for column := range shape[2] {
				bit := r.IntN(2) == 0
				switch {
				case 3*column >= 2*shape[2] && 2*row < shape[1]:
					bit = false
				case 4*column < shape[2] && 4*row >= 3*shape[1]:
					bit = true
				}
				s.blockBits = append(s.blockBits, bit)
			}
		}
	}
	if s.blockBits == nil {
		return
	}
	batch := 1
	if p.Blocks.PerBatch {
		batch = p.Batch
	}
	s.in.Blocks = &ref.BlockMask{B: batch, H: shape[0] / batch, Rows: shape[1], Cols: shape[2], BQ: p.Blocks.Queries, BK: p.Blocks.Keys,
		Data: s.blockBits}
}

// randomCaptured draws what the problem's functions capture.
func (s *sample) randomCaptured(r *rand.Rand) {
	s.in.Captured = score.Data{}
	for _, t := range s.problem.Captures() {
		values := make([]float32, t.Elements())
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		s.in.Captured[t.Name] = values
	}
}

// randomPerScore draws the problem's bias and mask.
func (s *sample) randomPerScore(r *rand.Rand) {
	p := &s.problem
	if b := p.Bias; b != (flash.PerScore{}) {
		x := ref.NewTensor(b.Batch, b.Heads, b.Queries, b.Keys)
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
		refTypes[b.DType].RoundAll(x.Data)
		s.bias, s.in.Bias = &x, &x
	}
	if m := p.Mask; m != (flash.PerScore{}) {
		x := ref.NewTensor(m.Batch, m.Heads, m.Queries, m.Keys)
		s.in.Mask = &ref.Mask{B: x.B, H: x.H, N: x.N, M: x.D, Data: make([]bool, len(x.Data))}
		for i := range x.Data {
			if s.in.Mask.Data[i] = r.IntN(3) > 0; s.in.Mask.Data[i] {
				x.Data[i] = 1
			}
		}
		s.mask = &x
	}
}

// worldRank is the plan's rank among all.
func worldRank(p *Plan) int { return p.ring.name(p.ring.Rank()) }

// pasteHeads puts what the heads of a rank of a host have of its queries in place.
func pasteHeads(to ref.Array, p *Plan, values []float32) {
	first := 0
	if to.H > 1 {
		first = p.ring.Rank() * p.BiasShape()[1]
	}
	at := 0
	for b := range to.B {
		for h := range p.BiasShape()[1] {
			for _, s := range p.hosts.Queries() {
				for i := s.Begin; i < s.End; i++ {
					row := to.Row(b, first+h, i)
					for c := range row {
						row[c] = float64(values[at])
						at++
					}
				}
			}
		}
	}
}

// headsOf is what the heads of a rank have of a tensor by score.
func headsOf(t ref.Tensor, p *Plan) ref.Tensor {
	if t.H == 1 {
		return t
	}
	n := t.H / p.ring.Size()
	out := ref.NewTensor(t.B, n, t.N, t.D)
	for b := range t.B {
		copy(out.Data[b*n*t.N*t.D:], t.Data[(b*t.H+p.ring.Rank()*n)*t.N*t.D:][:n*t.N*t.D])
	}
	return out
}

// poison is what outputs hold before a pass.
const poison = 12345

// placeMore uploads what a rank has besides queries, keys and values.
func (s *sample) placeMore(ctx context.Context, d *flash.Device, p *Plan) (x more, err error) {
	for _, f := range []struct {
		to **flash.Tensor
		of []int32
	}{{&x.queryStarts, s.queryStarts}, {&x.keyStarts, s.keyStarts}, {&x.queryLengths, s.queryLengths}, {&x.keyLengths, s.keyLengths}} {
		if f.of == nil {
			continue
		}
		if *f.to, err = d.NewTensor(flash.Int32, 1, 1, 1, len(f.of)); err != nil {
			return x, err
		}
		if err := (*f.to).UploadBytes(ctx, bytesOf(f.of)); err != nil {
			return x, err
		}
	}
	own := func(t *ref.Tensor) ([4]int, []float32) {
		if p.overHeads() {
			part := headsOf(*t, p)
			if p.hosts != nil && part.N > 1 {
				values := cut(part, p.hosts.Queries())
				return [4]int{part.B, part.H, len(values) / (part.B * part.H * part.D), part.D}, values
			}
			return [4]int{part.B, part.H, part.N, part.D}, part.Data
		}
		if t.N == 1 || s.queryStarts != nil {
			return [4]int{t.B, t.H, t.N, t.D}, t.Data
		}
		values := cut(*t, p.Queries())
		return [4]int{t.B, t.H, len(values) / (t.B * t.H * t.D), t.D}, values
	}
	put := func(to **flash.Tensor, dtype flash.DType, shape [4]int, values []float32) {
		if err != nil {
			return
		}
		if *to, err = d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3]); err == nil {
			err = (*to).Upload(ctx, values)
		}
	}
	none := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = poison
		}
		return out
	}
	if p := &s.problem; p.MaxLogit {
		put(&x.maxLogit, flash.F32, [4]int{1, 1, p.Batch, p.Heads}, none(p.Batch*p.Heads))
	}
	if s.blockBits != nil {
		if x.blocks, err = d.NewBlockMask(ctx, s.problem, s.blockBits); err != nil {
			return x, err
		}
	}
	if s.in.Sinks != nil {
		shape := [4]int{1, 1, 1, len(s.in.Sinks)}
		put(&x.sinks, flash.F32, shape, s.in.Sinks)
		put(&x.dsinks, flash.F32, shape, none(len(s.in.Sinks)))
	}
	if s.bias != nil {
		shape, values := own(s.bias)
		put(&x.bias, s.problem.Bias.DType, shape, values)
		put(&x.dbias, s.problem.Bias.DType, shape, none(len(values)))
	}
	for i, t := range s.problem.Captures() {
		values := s.in.Captured[t.Name].([]float32)
		put(&x.captured[i], flash.F32, capturedShape(&t), values)
		put(&x.dcaptured[i], flash.F32, capturedShape(&t), none(len(values)))
	}
	if s.mask != nil {
		shape, values := own(s.mask)
		put(&x.mask, s.problem.Mask.DType, shape, values)
	}
	return x, err
}

func (x *more) close() (err error) {
	all := append(x.captured[:], x.dcaptured[:]...)
	for _, t := range append(all, x.queryStarts, x.keyStarts, x.queryLengths, x.keyLengths, x.sinks, x.dsinks, x.bias, x.dbias, x.mask,
		x.maxLogit) {
		err = errors.Join(err, t.Close())
	}
	return errors.Join(err, x.blocks.Close())
}

// download takes a rank's gradients with respect to sinks and bias.
func (x *more) download(ctx context.Context, p *Plan, to *results) error {
	if x.dsinks != nil {
		values := make([]float32, x.dsinks.Elements())
		if err := x.dsinks.Download(ctx, values); err != nil {
			return err
		}
		to.dsinks[worldRank(p)] = values
	}
	if x.maxLogit != nil {
		values := make([]float32, x.maxLogit.Elements())
		if err := x.maxLogit.Download(ctx, values); err != nil {
			return err
		}
		to.maxLogit[worldRank(p)] = values
	}
	var captured [][]float32
	for _, t := range x.dcaptured {
		if t != nil {
			values := make([]float32, t.Elements())
			if err := t.Download(ctx, values); err != nil {
				return err
			}
			captured = append(captured, values)
		}
	}
	to.dcaptured[worldRank(p)] = captured
	if x.dbias == nil {
		return nil
	}
	values := make([]float32, x.dbias.Elements())
	if err := x.dbias.Download(ctx, values); err != nil {
		return err
	}
	pasting.Lock()
	defer pasting.Unlock()
	if p.hosts != nil && to.dbias.N > 1 {
		pasteHeads(to.dbias, p, values)
		return nil
	}
	if p.overHeads() && to.dbias.H > 1 {
		heads := p.BiasShape()[1]
		for b := range to.dbias.B {
			for i, x := range values[b*len(values)/to.dbias.B : (b+1)*len(values)/to.dbias.B] {
				to.dbias.Data[(b*to.dbias.H+p.ring.Rank()*heads)*to.dbias.N*to.dbias.D+i] = float64(x)
			}
		}
		return nil
	}
	spans := p.Queries()
	if p.overHeads() || to.dbias.N == 1 || p.problem.Packed != (flash.Packed{}) { // the whole, of every rank
		spans = []Span{{0, to.dbias.N}}
	}
	paste(to.dbias, spans, values)
	return nil
}

// judgeMore compares gradients with respect to sinks and bias.
func (s *sample) judgeMore(t *testing.T, got *results) {
	t.Helper()
	if s.in.Sinks != nil {
		for rank, values := range got.dsinks {
			if v := ref.CheckGradient(widened(values), s.grad.DSinks, s.plainGrad.DSinks, refTypes[s.problem.DType]); !v.OK {
				t.Errorf("dsinks of rank %d: %v", rank, v)
			}
		}
	}
	if s.problem.MaxLogit {
		for rank, values := range got.maxLogit {
			if v := ref.CheckLSE(widened(values), s.maxLogit, nil, refTypes[s.problem.DType]); !v.OK {
				t.Errorf("maxLogit of rank %d: %v", rank, v)
			}
		}
	}
	for i, x := range s.problem.Captures() {
		for rank, values := range got.dcaptured {
			if v := ref.CheckGradient(widened(values[i]), s.grad.DCaptured[x.Name], s.plainGrad.DCaptured[x.Name],
				refTypes[s.problem.DType]); !v.OK {
				t.Errorf("dcaptured %s of rank %d: %v", x.Name, rank, v)
			}
		}
	}
	if s.bias != nil {
		if v := ref.CheckGradient(got.dbias.Data, s.grad.DBias.Data, s.plainGrad.DBias.Data, refTypes[s.problem.DType]); !v.OK {
			t.Errorf("dbias: %v", v)
		}
	}
}

func widened(values []float32) []float64 {
	wide := make([]float64, len(values))
	for i, x := range values {
		wide[i] = float64(x)
	}
	return wide
}

// operandCases are problems with tensors besides queries, keys and values.
var operandCases = []struct {
	name    string
	problem flash.Problem
	shard   Shard
}{
	{"sinks", flash.Problem{MaxLogit: true,
		Batch: 2, Heads: 2, QueryLen: 150, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight, Sinks: true},
		Shard{}},
	{"sinks fp16, more queries", flash.Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 143, KeyLen: 60, HeadDim: 16, DType: flash.F16,
		Causal: flash.CausalBottomRight,
		Sinks:  true}, Shard{Order: Plain}},
	{"bias", flash.Problem{Batch: 2, Heads: 2, QueryLen: 101, KeyLen: 120, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: 101, Keys: 120}}, Shard{}},
	// Eight heads: the bound is three times the worst error of a plain pass, and of two sinks that may be next to none.
	{"bias and mask fp16", flash.Problem{MaxLogit: true,
		Batch: 2, Heads: 8, QueryLen: 90, KeyLen: 75, HeadDim: 16, DType: flash.F16, Sinks: true,
		Bias: flash.PerScore{DType: flash.F16, Batch: 2, Heads: 1, Queries: 1, Keys: 75}, Mask: flash.PerScore{DType: flash.Bool, Batch: 2,
			Heads: 1, Queries: 90, Keys: 75}}, Shard{}},
	{"captured", flash.Problem{Batch: 2, Heads: 2, QueryLen: 101, KeyLen: 120, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, ScoreFunction: relative(2)}, Shard{}},
	{"bias, dropout, functions", flash.Problem{Batch: 1, Heads: 2, QueryLen: 90, KeyLen: 520, HeadDim: 8, DType: flash.F32, Dropout: 0.25,
		ScoreFunction: alibiSoftcap(), Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: 90, Keys: 520}}, Shard{}},
	{"captured, padded fp16", flash.Problem{Batch: 3, Heads: 4, QueryLen: 70, HeadDim: 16, DType: flash.F16, ScoreFunction: relative(4),
		KeyLengths: true}, Shard{Order: Zigzag}},
	{"mask of bits", flash.Problem{Batch: 1, Heads: 2, QueryLen: 530, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		Mask: flash.PerScore{DType: flash.Bit, Batch: 1, Heads: 1, Queries: 530, Keys: 530}}, Shard{}},
}

// someLengths are lengths of a padded batch, where the problem has such.
func someLengths(p *flash.Problem) (of sequencesOf) {
	for b := range p.Batch {
		if p.KeyLengths && p.Packed == (flash.Packed{}) {
			of.keyLengths = append(of.keyLengths, int32(max(p.KeyLen, p.QueryLen)-20*b))
		}
	}
	return of
}

// relative is a learned bias by distance and head, from a captured tensor, then capped.
func relative(heads int) score.Function {
	distance := score.Key().Sub(score.Position()).Add(score.ConstInt(4))
	f, err := score.Compose(score.RelativeBias(score.Capture("table", 9, heads), distance), score.Softcap(2))
	if err != nil {
		panic(err)
	}
	return f
}

// runsOn says whether case i of a list runs on a number of ranks: the first on one, all on two of 2, 3 and 4, with -short on one of these.
func runsOn(ranks, i int) bool {
	if ranks == 1 {
		return i == 0
	}
	return ranks == 2+i%3 || ranks == 2+(i+1)%3 && !testing.Short()
}

// TestOperandRanks compares ranks with sinks, biases and mask tensors with the oracle, and a second run with the first, bit by bit.
func TestOperandRanks(t *testing.T) {
	vktest.Long(t, "biases, masks and sinks in TestStream")
	for i, c := range operandCases {
		for ranks := 1; ranks <= 4; ranks++ {
			if !runsOn(ranks, i) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, ranks), func(t *testing.T) {
				devices := sharedDevices(t, ranks)
				groupBytes = i % 2 << 30
				s := newPackedSample(t, rand.New(rand.NewPCG(uint64(i), uint64(ranks))), c.problem, someLengths(&c.problem))
				comms, err := Local(ranks)
				require.NoError(t, err)
				got, err := s.run(soon(t), devices, comms, c.shard, 2, nil)
				require.NoError(t, err)
				s.judge(t, &got[0])
				require.Equal(t, got[0], got[1], "the second run")
				if ranks == 3 {
					require.Equal(t, got[0], requireModelOfBytes(t, s, devices, c.shard, ranks), "over messages")
				}
			})
		}
	}
}

// logarithm is a function that has no finite slope where a score is 0.
func logarithm() score.Function {
	f, err := score.New(score.S().Abs().Log())
	if err != nil {
		panic(err)
	}
	return f
}

// packedCases are packed sequences that chunks cut: of length 0 and 1, longer than a rank's rows and shorter, with rows behind the last
// one.
var packedCases = []struct {
	name          string
	problem       flash.Problem
	queries, keys []int32 // starts; nil keys: those of queries
	shard         Shard
	heads         bool

	queryLens, keyLens []int32
}{
	{"causal", flash.Problem{Batch: 7, Heads: 2, QueryLen: 190, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		Packed: flash.Packed{Queries: 300, Keys: 300}},
		[]int32{0, 33, 33, 34, 100, 290, 295, 297}, nil, Shard{}, false, nil, nil},
	{"grouped heads fp16, other keys, plain", flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: 90, KeyLen: 120, HeadDim: 32,
		ValueDim: 24, DType: flash.F16, Causal: flash.CausalBottomRight,
		Packed: flash.Packed{Queries: 201, Keys: 260}}, []int32{0, 70, 70, 155, 160, 201}, []int32{0, 40, 55, 130, 250, 260},
		Shard{Order: Plain}, false, nil, nil},
	{"window, not causal, zigzag", flash.Problem{MaxLogit: true, Batch: 4, Heads: 2, QueryLen: 150, HeadDim: 16, DType: flash.F32,
		Window: flash.SlidingWindow(31, 7), Packed: flash.Packed{Queries: 230, Keys: 230}},
		[]int32{0, 20, 170, 171, 230}, nil, Shard{Order: Zigzag}, false, nil, nil},
	{"dropout", flash.Problem{MaxLogit: true,
		Batch: 6, Heads: 2, QueryLen: 330, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		Dropout: 0.3, Packed: flash.Packed{Queries: 500, Keys: 500}},
		[]int32{0, 5, 37, 367, 367, 490, 500}, nil, Shard{}, false, nil, nil},
	{"dropout fp16, sinks", flash.Problem{Batch: 3, Heads: 2, QueryLen: 200, HeadDim: 16, DType: flash.F16, Dropout: 0.2, Sinks: true,
		Packed: flash.Packed{Queries: 260, Keys: 330}},
		[]int32{0, 131, 140, 251}, []int32{0, 100, 100, 290}, Shard{}, false, nil, nil},
	{"dropout, no slope at 0", flash.Problem{Batch: 1, Heads: 2, QueryLen: 200, HeadDim: 16, DType: flash.F32, Dropout: 0.25,
		ScoreFunction: logarithm(), Packed: flash.Packed{Queries: 220, Keys: 220}}, []int32{10, 210}, nil, Shard{Order: Plain}, false,
		nil, nil},
	{"functions", flash.Problem{Batch: 4, Heads: 2, QueryLen: 100, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		ScoreFunction: bySequence(), Packed: flash.Packed{Queries: 150, Keys: 150}},
		[]int32{0, 40, 41, 141, 150}, nil, Shard{}, false, nil, nil},
	{"heads, dropout, sinks", flash.Problem{Batch: 4, Heads: 4, QueryLen: 100, HeadDim: 16, DType: flash.F16,
		Causal: flash.CausalBottomRight, Dropout: 0.25, Sinks: true,
		Packed: flash.Packed{Queries: 150, Keys: 150}}, []int32{0, 40, 41, 141, 145}, nil, Shard{Over: Heads}, true, nil, nil},
	// Slots of which some rows are used: all, none, more than there are, fewer than none, queries without keys and keys without queries.
	{"lengths", flash.Problem{Batch: 8, Heads: 2, QueryLen: 90, KeyLen: 100, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		Packed:       flash.Packed{Queries: 330, Keys: 340},
		QueryLengths: true, KeyLengths: true}, []int32{2, 40, 90, 100, 180, 200, 210, 290, 325},
		[]int32{0, 50, 90, 110, 200, 220, 221, 310, 337}, Shard{}, false,
		[]int32{38, 12, 0, 71, 5, 99, 60, -3}, []int32{31, 40, 9, 64, 0, 1, 80, 20}},
	{"lengths of keys, sinks, dropout fp16", flash.Problem{Batch: 4, Heads: 2, QueryLen: 200, HeadDim: 16, DType: flash.F16, Dropout: 0.2,
		Sinks: true, Packed: flash.Packed{Queries: 260, Keys: 330},
		KeyLengths: true}, []int32{0, 131, 140, 200, 251}, []int32{0, 100, 100, 290, 330}, Shard{}, false, nil, []int32{77, 10, 150, 40}},
	{"lengths of queries, sinks", flash.Problem{MaxLogit: true,
		Batch: 4, Heads: 4, KeyHeads: 2, QueryLen: 120, HeadDim: 8, DType: flash.F32,
		Causal: flash.CausalTopLeft, Window: flash.SlidingWindow(40, -1), Sinks: true,
		Packed: flash.Packed{Queries: 200, Keys: 200}, QueryLengths: true}, []int32{0, 60, 61, 150, 198}, nil, Shard{Order: Zigzag}, false,
		[]int32{33, 1, 50, 20}, nil},
	{"captured", flash.Problem{Batch: 4, Heads: 2, QueryLen: 100, HeadDim: 16, DType: flash.F32, ScoreFunction: relative(2),
		Packed: flash.Packed{Queries: 150, Keys: 150}}, []int32{0, 40, 41, 141, 150}, nil, Shard{}, false, nil, nil},
	{"bias, lengths", flash.Problem{Batch: 5, Heads: 2, QueryLen: 90, KeyLen: 100, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, Packed: flash.Packed{Queries: 200, Keys: 220},
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: 90, Keys: 100}, KeyLengths: true},
		[]int32{0, 40, 41, 125, 190, 196}, []int32{0, 60, 61, 140, 200, 214},
		Shard{}, false, nil, []int32{60, 0, 70, 44, 14}},
	{"bias and mask of each sequence fp16", flash.Problem{Batch: 4, Heads: 4, QueryLen: 80, HeadDim: 16, DType: flash.F16,
		Packed: flash.Packed{Queries: 200, Keys: 200}, Sinks: true,
		Bias: flash.PerScore{DType: flash.F16, Batch: 4, Heads: 1, Queries: 1, Keys: 80}, Mask: flash.PerScore{DType: flash.Bool, Batch: 4,
			Heads: 1, Queries: 80, Keys: 80}},
		[]int32{0, 55, 130, 135, 200}, nil, Shard{Order: Zigzag}, false, nil, nil},
	{"bias, dropout", flash.Problem{Batch: 3, Heads: 2, QueryLen: 150, HeadDim: 8, DType: flash.F32, Dropout: 0.25,
		Packed: flash.Packed{Queries: 260, Keys: 260},
		Bias:   flash.PerScore{DType: flash.F32, Batch: 3, Heads: 2, Queries: 150, Keys: 150}}, []int32{0, 100, 120, 260}, nil, Shard{},
		false, nil, nil},
	{"bits of sequences", flash.Problem{Batch: 5, Heads: 2, QueryLen: 190, KeyLen: 200, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, Packed: flash.Packed{Queries: 300, Keys: 330},
		Mask: flash.PerScore{DType: flash.Bit, Batch: 5, Heads: 1, Queries: 190, Keys: 200}},
		[]int32{0, 33, 34, 100, 290, 300}, []int32{0, 60, 61, 130, 325, 330}, Shard{}, false, nil, nil},
	{"bits, bias, lengths fp16", flash.Problem{MaxLogit: true,
		Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: 150, HeadDim: 16, DType: flash.F16,
		KeyLengths: true, Packed: flash.Packed{Queries: 250, Keys: 250},
		Bias: flash.PerScore{DType: flash.F16, Batch: 3, Heads: 4, Queries: 150, Keys: 150},
		Mask: flash.PerScore{DType: flash.Bit, Batch: 1, Heads: 4, Queries: 1, Keys: 150}}, []int32{0, 101, 120, 250}, nil,
		Shard{Order: Zigzag}, false, nil, []int32{99, 19, 111}},
	{"mask, dropout, sinks", flash.Problem{Batch: 4, Heads: 2, QueryLen: 230, HeadDim: 8, DType: flash.F32,
		Causal: flash.CausalBottomRight, Dropout: 0.3, Sinks: true, Packed: flash.Packed{Queries: 400, Keys: 400},
		Mask: flash.PerScore{DType: flash.Bool, Batch: 4, Heads: 2, Queries: 230, Keys: 230}},
		[]int32{0, 5, 170, 370, 400}, nil, Shard{}, false, nil, nil},
	{"bits, dropout, bias of each query", flash.Problem{Batch: 3, Heads: 2, QueryLen: 150, HeadDim: 8, DType: flash.F32, Dropout: 0.25,
		Packed: flash.Packed{Queries: 260, Keys: 260}, Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: 150, Keys: 150},
		Mask: flash.PerScore{DType: flash.Bit, Batch: 3, Heads: 1, Queries: 150, Keys: 150}}, []int32{0, 100, 120, 260}, nil, Shard{},
		false, nil, nil},
	{"heads, bias and bits of sequences", flash.Problem{MaxLogit: true, Batch: 4, Heads: 4, QueryLen: 100, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, Dropout: 0.25, Packed: flash.Packed{Queries: 150, Keys: 150},
		Bias: flash.PerScore{DType: flash.F32, Batch: 4, Heads: 4, Queries: 1, Keys: 100},
		Mask: flash.PerScore{DType: flash.Bit, Batch: 1, Heads: 1, Queries: 100, Keys: 100}}, []int32{0, 40, 41, 141, 145}, nil,
		Shard{Over: Heads}, true, nil, nil},
	{"rows of no sequence, sinks", flash.Problem{Batch: 2, Heads: 2, QueryLen: 100, HeadDim: 16, DType: flash.F32, Sinks: true,
		Packed: flash.Packed{Queries: 160, Keys: 160}}, []int32{2, 20, 29}, nil, Shard{Order: Zigzag}, false, nil, nil},
	{"lengths, heads, sinks", flash.Problem{Batch: 4, Heads: 4, QueryLen: 100, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, Sinks: true,
		Packed: flash.Packed{Queries: 150, Keys: 150}, QueryLengths: true, KeyLengths: true}, []int32{0, 40, 41, 141, 145}, nil,
		Shard{Over: Heads}, true,
		[]int32{22, 1, 60, 0}, []int32{30, 0, 77, 4}},
}

// bySequence depends on the places of queries and keys in their sequence, on the head and on the sequence's number.
func bySequence() score.Function {
	number, err := score.New(score.S().Add(score.Batch().Float().Mul(score.Const(0.25))))
	if err == nil {
		number, err = score.Compose(alibiSoftcap(), number)
	}
	if err != nil {
		panic(err)
	}
	return number
}

// TestPackedRanks compares packed sequences over ranks with the oracle, and a second run with the first, bit by bit.
func TestPackedRanks(t *testing.T) {
	vktest.Long(t, "packed sequences in TestStream, and rows that are not packed in TestRanks")
	for i, c := range packedCases {
		for ranks := 1; ranks <= 4; ranks++ {
			if c.heads && ranks == 3 || !runsOn(ranks, i) && !(c.heads && ranks == 4) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, ranks), func(t *testing.T) {
				switch c.name {
				case "dropout", "bias, dropout", "lengths", "heads, dropout, sinks":
					vktest.Long(t, "these with something else beside them")
				}
				devices := sharedDevices(t, ranks)
				groupBytes = i % 2 << 30
				keys := c.keys
				if keys == nil {
					keys = c.queries
				}
				s := newPackedSample(t, rand.New(rand.NewPCG(uint64(i), uint64(ranks))), c.problem,
					sequencesOf{c.queries, keys, c.queryLens, c.keyLens})
				comms, err := Local(ranks)
				require.NoError(t, err)
				got, err := s.run(soon(t), devices, comms, c.shard, 2, nil)
				require.NoError(t, err)
				s.judge(t, &got[0])
				require.Equal(t, got[0], got[1], "the second run")
				if (c.queryLens != nil || c.keyLens != nil) && ranks == 3 {
					require.Equal(t, got[0], requireModelOfBytes(t, s, devices, c.shard, ranks),
						"over messages, not memory that ranks share")
				}
			})
		}
	}
}

// TestRefusesWhatItDoesNotRead: what a pass is given and would leave unread is an error that names it.
func TestRefusesWhatItDoesNotRead(t *testing.T) {
	plain := flash.Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 8}
	biased := plain
	biased.Bias, biased.Sinks = flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: 8, Keys: 8}, true
	some := new(flash.Tensor)
	used := some.Used(flash.TensorUse{Next: flash.Untouched})
	for _, c := range []struct {
		field   string
		problem flash.Problem
		in      any
		refused bool
	}{
		{"Forward.Sinks", plain, flash.Forward{Sinks: some}, true},
		{"Forward.KeyLengths", biased, flash.Forward{KeyLengths: some}, true},
		{"Forward.QueryStarts", biased, flash.Forward{QueryStarts: some}, true},
		{"Forward.PageTable", plain, flash.Forward{PageTable: some}, true},
		{"Forward.Weights", plain, flash.Forward{Weights: new(flash.Weights)}, true},
		{"Forward.O", plain, flash.Forward{O: used}, true},
		{"Forward.Captured", plain, flash.Forward{Captured: flash.Captured{some, used}}, true},
		{"Backward.DK", plain, flash.Backward{DK: used}, true},
		{"Backward.DBias", plain, flash.Backward{DBias: some}, true},
		{"Backward.DCaptured", biased, flash.Backward{DCaptured: flash.Captured{some}}, true},
		{"Forward", biased, flash.Forward{Q: some, K: some, V: some, O: some, LSE: some, Bias: some, Sinks: some, Seed: 3, Offset: 1},
			false},
		{"Backward", biased, flash.Backward{DQ: some, DLSE: some, Accumulate: true, DBias: some, DSinks: some}, false},
	} {
		w := &pass{Plan: &Plan{problem: c.problem}}
		call, _, _ := strings.Cut(c.field, ".")
		err := w.refuse(call, c.in)
		if !c.refused {
			require.NoError(t, err, c.field)
			continue
		}
		var bad *flash.ArgumentError
		require.ErrorAs(t, err, &bad, c.field)
		require.Equal(t, c.field, bad.Argument)
	}
}
