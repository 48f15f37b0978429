package ring

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// openDevice opens a device with the validation layers, whose every message fails the test.
func openDevice(t testing.TB, opts ...flash.DeviceOption) *flash.Device {
	t.Helper()
	var mu sync.Mutex
	var messages []flash.Message
	d, err := flash.Open(append(opts, flash.WithoutDiskCache(), flash.WithValidation(func(m flash.Message) {
		mu.Lock()
		messages = append(messages, m)
		mu.Unlock()
	}))...)
	if vktest.Unvalidated(err) {
		d, err = flash.Open(append(opts, flash.WithoutDiskCache())...)
	}
	if err != nil {
		if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" || errors.Is(err, vk.ErrLayerMissing) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, flash.ErrDeviceLost) {
			t.Error("Close:", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			t.Errorf("validation: %s: %s", m.ID, m.Text)
		}
	})
	return d
}

// devices are opened once for all tests of the package: a rank has one of its own, of the machine's GPUs in turn, as ring.Open opens them.
var opened struct {
	sync.Mutex
	devices []*flash.Device
}

// said is what validation layers said of them, while one was opened too.
var said struct {
	sync.Mutex
	messages []flash.Message
}

func sharedDevices(t testing.TB, n int) []*flash.Device {
	t.Helper()
	vktest.Budget(t)
	opened.Lock()
	defer opened.Unlock()
	for len(opened.devices) < n {
		message := func(m flash.Message) {
			said.Lock()
			said.messages = append(said.messages, m)
			said.Unlock()
		}
		rank := len(opened.devices)
		d, err := OpenRank(rank, rank+1, true, flash.WithoutDiskCache(), flash.WithValidation(message))
		if vktest.Unvalidated(err) {
			d, err = OpenRank(rank, rank+1, true, flash.WithoutDiskCache())
		}
		if err != nil {
			if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" || errors.Is(err, vk.ErrLayerMissing) {
				t.Fatal(err)
			}
			t.Skip(err)
		}
		opened.devices = append(opened.devices, d)
	}
	return opened.devices[:n]
}

func TestMain(m *testing.M) {
	_, err := flash.Devices()
	vktest.LeaveOutExamples(err)
	code := m.Run()
	for _, d := range opened.devices {
		if err := d.Close(); err != nil {
			fmt.Println("Close:", err)
			code = 1
		}
	}
	for _, m := range said.messages {
		fmt.Println("validation:", m.ID, m.Text)
		code = 1
	}
	os.Exit(code)
}

// sample is a problem of all tokens with random inputs, and what is right of it.
type sample struct {
	problem    flash.Problem
	in         ref.Problem
	do         ref.Tensor
	dlse       []float32
	o, lse     ref.Array
	plainO     ref.Array
	grad       *ref.Gradients
	plainGrad  *ref.Gradients
	seed       uint64
	dropOffset uint32

	sequencesOf             // packed ones
	bias, mask  *ref.Tensor // of all queries and keys; the mask 0 or 1
	blockBits   []bool

	maxLogit []float64
}

var refTypes = map[flash.DType]ref.DType{flash.F32: ref.F32, flash.F16: ref.F16, flash.BF16: ref.BF16}

func newSample(t testing.TB, r *rand.Rand, p flash.Problem) *sample {
	t.Helper()
	return newPackedSample(t, r, p, sequencesOf{})
}

// newPackedSample is one of packed sequences, where there are starts.
func newPackedSample(t testing.TB, r *rand.Rand, p flash.Problem, of sequencesOf) *sample {
	t.Helper()
	p, err := p.Normalize()
	require.NoError(t, err)
	s := newInputs(r, p)
	s.sequencesOf = of
	dtype := refTypes[p.DType]
	if of.queryStarts != nil {
		s.packedReference(t)
		return s
	}
	s.useLengths()
	s.findLargest(t, s.in)
	s.o, s.lse, err = ref.Forward(s.in)
	require.NoError(t, err)
	s.plainO, _, err = ref.PlainForward(s.in, dtype)
	require.NoError(t, err)
	s.grad, err = ref.Backward(s.in, s.do, s.dlse)
	require.NoError(t, err)
	s.plainGrad, err = ref.PlainBackward(s.in, dtype, s.do, s.dlse)
	require.NoError(t, err)
	s.spoilPadding()
	return s
}

// findLargest asks the oracle for the largest score of each head.
func (s *sample) findLargest(t testing.TB, in ref.Problem) {
	t.Helper()
	if !s.problem.MaxLogit {
		return
	}
	var err error
	s.maxLogit, err = ref.MaxLogits(in)
	require.NoError(t, err)
}

// newInputs draws the inputs of a normalized problem.
func newInputs(r *rand.Rand, p flash.Problem) *sample {
	s := &sample{problem: p}
	fill := func(shape [4]int) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
		refTypes[p.DType].RoundAll(x.Data)
		return x
	}
	s.in = ref.Problem{Q: fill(p.QShape()), K: fill(p.KShape()), V: fill(p.VShape()),
		Options: ref.Options{Scale: p.Scale, Score: p.ScoreFunction,
			Sees: p.MaskFunction}}
	s.in.Causal = [...]ref.Causal{flash.CausalNone: ref.NotCausal, flash.CausalBottomRight: ref.BottomRight,
		flash.CausalTopLeft: ref.TopLeft}[p.Causal]
	if left, right := p.Window.Reach(); p.Window != (flash.Window{}) {
		s.in.Window = &ref.Window{Left: left, Right: right}
	}
	if p.Dropout > 0 {
		s.seed, s.dropOffset = r.Uint64(), r.Uint32()
		s.in.Dropout = &ref.Dropout{P: p.Dropout, Seed: s.seed, Offset: s.dropOffset}
	}
	if p.Sinks {
		s.in.Sinks = make([]float32, p.Heads)
		for i := range s.in.Sinks {
			s.in.Sinks[i] = float32(r.NormFloat64()) + 1
		}
	}
	s.randomPerScore(r)
	s.randomCaptured(r)
	s.randomBlocks(r)
	s.do = fill(p.OShape())
	s.dlse = fill(p.LSEShape()).Data
	return s
}

// cut takes the rows of some spans out of a tensor of all tokens.
func cut(t ref.Tensor, spans []Span) (out []float32) {
	for b := range t.B {
		for h := range t.H {
			for _, s := range spans {
				for i := s.Begin; i < s.End; i++ {
					out = append(out, t.Row(b, h, i)...)
				}
			}
		}
	}
	return out
}

// paste is the reverse, into an array of all tokens.
func paste(a ref.Array, spans []Span, values []float32) {
	at := 0
	for b := range a.B {
		for h := range a.H {
			for _, s := range spans {
				for i := s.Begin; i < s.End; i++ {
					row := a.Row(b, h, i)
					for c := range row {
						row[c] = float64(values[at])
						at++
					}
				}
			}
		}
	}
}

// tensors of a rank.
type tensors struct {
	q, k, v, o, lse, do, dlse, dq, dk, dv *flash.Tensor
	more
}

// results are those of all ranks together.
type results struct {
	o, lse, dq, dk, dv ref.Array
	dbias              ref.Array
	dsinks             [][]float32   // of each rank
	dcaptured          [][][]float32 // of each rank, by captured tensor
	maxLogit           [][]float32   // of each rank
}

// place uploads what a rank has. Outputs are poisoned.
func (s *sample) place(ctx context.Context, d *flash.Device, p *Plan) (x tensors, err error) {
	l := p.Local()
	lse := l.LSEShape()
	for _, f := range []struct {
		to    **flash.Tensor
		dtype flash.DType
		shape [4]int
		from  []float32
	}{
		{&x.q, l.DType, l.QShape(), cut(s.in.Q, p.Queries())}, {&x.k, l.DType, l.KShape(), cut(s.in.K, p.Keys())},
		{&x.v, l.DType, l.VShape(), cut(s.in.V, p.Keys())}, {&x.o, l.DType, l.OShape(), nil}, {&x.lse, flash.F32, lse, nil},
		{&x.do, l.DType, l.OShape(), cut(s.do, p.Queries())},
		{&x.dlse, flash.F32, lse, cut(ref.Tensor{B: lse[0], H: lse[1], N: s.do.N, D: 1, Data: s.dlse}, p.Queries())},
		{&x.dq, l.DType, l.QShape(), nil}, {&x.dk, l.DType, l.KShape(), nil}, {&x.dv, l.DType, l.VShape(), nil},
	} {
		if *f.to, err = d.NewTensor(f.dtype, f.shape[0], f.shape[1], f.shape[2], f.shape[3]); err != nil {
			return x, err
		}
		if f.from == nil {
			f.from = make([]float32, (*f.to).Elements())
			for i := range f.from {
				f.from[i] = poison
			}
		}
		if err := (*f.to).Upload(ctx, f.from); err != nil {
			return x, err
		}
	}
	x.more, err = s.placeMore(ctx, d, p)
	return x, err
}

func (x *tensors) close() error {
	var err error
	for _, t := range []*flash.Tensor{x.q, x.k, x.v, x.o, x.lse, x.do, x.dlse, x.dq, x.dk, x.dv} {
		err = errors.Join(err, t.Close())
	}
	return errors.Join(err, x.more.close())
}

// newResults is room for results of all ranks.
func newResults(p *flash.Problem, ranks int) results {
	array := func(shape [4]int) ref.Array { return ref.NewArray(shape[0], shape[1], shape[2], shape[3]) }
	out := results{o: array(p.OShape()), lse: array(p.LSEShape()), dq: array(p.QShape()), dk: array(p.KShape()), dv: array(p.VShape()),
		dsinks: make([][]float32, ranks), dcaptured: make([][][]float32, ranks), maxLogit: make([][]float32, ranks)}
	if b := p.Bias; b != (flash.PerScore{}) {
		out.dbias = array([4]int{b.Batch, b.Heads, b.Queries, b.Keys})
	}
	return out
}

// run computes both passes on ranks in this process and gives what they have together, times times.
func (s *sample) run(ctx context.Context, devices []*flash.Device, comms []Comm, shard Shard, times int,
	look func(*Plan)) ([]results, error) {
	out := make([]results, times)
	for i := range out {
		out[i] = newResults(&s.problem, len(comms))
	}
	var mu sync.Mutex
	err := errors.Join(each(comms, func(rank int, c Comm) (err error) {
		r, err := New(c, devices[rank])
		if err != nil {
			return err
		}
		plan, err := r.Plan(ctx, s.problem, shard)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, plan.Close()) }()
		x, err := s.place(ctx, devices[rank], plan)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.close()) }()
		for i := range times {
			if err := s.passes(ctx, plan, &x, &out[i], false); err != nil {
				return err
			}
		}
		if look != nil {
			mu.Lock()
			look(plan)
			mu.Unlock()
		}
		return nil
	})...)
	return out, err
}

// pasting keeps ranks from writing to results at once.
var pasting sync.Mutex

// once computes both passes of a rank with tensors of their own.
func (s *sample) once(ctx context.Context, d *flash.Device, plan *Plan, out *results, accumulate bool) (err error) {
	x, err := s.place(ctx, d, plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	return s.passes(ctx, plan, &x, out, accumulate)
}

// passes computes both passes of a rank, and puts its part into results.
func (s *sample) passes(ctx context.Context, plan *Plan, x *tensors, out *results, accumulate bool) error {
	if err := plan.Forward(ctx, s.forward(x)); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	if err := plan.Backward(ctx, s.backward(x, accumulate)); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	return s.collect(ctx, plan, x, out)
}

// forward is the arguments of a forward pass.
func (s *sample) forward(x *tensors) flash.Forward {
	return flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse, Seed: s.seed, Offset: s.dropOffset, QueryStarts: x.queryStarts,
		KeyStarts: x.keyStarts, QueryLengths: x.queryLengths, KeyLengths: x.keyLengths, Sinks: x.sinks, Bias: x.bias, Mask: x.mask,
		Captured: x.captured, Blocks: x.blocks, MaxLogit: x.maxLogit}
}

// backward is the arguments of a backward pass.
func (s *sample) backward(x *tensors, accumulate bool) flash.Backward {
	return flash.Backward{Forward: s.forward(x), DO: x.do, DLSE: x.dlse, DQ: x.dq, DK: x.dk, DV: x.dv, DSinks: x.dsinks,
		DBias: x.dbias, DCaptured: x.dcaptured, Accumulate: accumulate}
}

// collect puts a rank's part into results.
func (s *sample) collect(ctx context.Context, plan *Plan, x *tensors, out *results) error {
	for _, f := range []struct {
		to    ref.Array
		from  *flash.Tensor
		spans []Span
	}{{out.o, x.o, plan.Queries()}, {out.lse, x.lse, plan.Queries()}, {out.dq, x.dq, plan.Queries()}, {out.dk, x.dk, plan.Keys()},
		{out.dv, x.dv, plan.Keys()}} {
		values := make([]float32, f.from.Elements())
		if err := f.from.Download(ctx, values); err != nil {
			return err
		}
		pasting.Lock()
		paste(f.to, f.spans, values)
		pasting.Unlock()
	}
	return x.more.download(ctx, plan, out)
}

// judge compares with the oracle.
func (s *sample) judge(t *testing.T, got *results) {
	t.Helper()
	dtype := refTypes[s.problem.DType]
	for _, x := range []struct {
		name             string
		got, want, plain []float64
	}{{"o", got.o.Data, s.o.Data, s.plainO.Data}, {"lse", got.lse.Data, s.lse.Data, nil},
		{"dq", got.dq.Data, s.grad.DQ.Data, s.plainGrad.DQ.Data},
		{"dk", got.dk.Data, s.grad.DK.Data, s.plainGrad.DK.Data}, {"dv", got.dv.Data, s.grad.DV.Data, s.plainGrad.DV.Data}} {
		if s.queryStarts != nil {
			x.got, x.want, x.plain = ofSequences(t, x.name, x.got, x.want, x.plain)
		}
		var v ref.Verdict
		switch x.name {
		case "o":
			v = ref.CheckOutput(x.got, x.want, x.plain, dtype)
		case "lse":
			v = ref.CheckLSE(x.got, x.want, nil, dtype)
		default:
			v = ref.CheckGradient(x.got, x.want, x.plain, dtype)
		}
		if !v.OK {
			t.Errorf("%s: %v", x.name, v)
		}
	}
	s.judgeMore(t, got)
}

// cases are small problems of all kinds. Those of 16 bits have narrow heads: their kernels on matrices take a CPU seconds to compile, for
// each rank's device.
var cases = []struct {
	name    string
	problem flash.Problem
	shard   Shard
}{
	{"causal", flash.Problem{MaxLogit: true,
		Batch: 1, Heads: 2, QueryLen: 600, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight}, Shard{}},
	{"causal fp16 grouped heads", flash.Problem{MaxLogit: true,
		Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, HeadDim: 16, ValueDim: 8, DType: flash.F16,
		Causal: flash.CausalBottomRight}, Shard{}},
	{"causal bf16 ragged", flash.Problem{Batch: 1, Heads: 2, QueryLen: 101, HeadDim: 8, DType: flash.BF16, Causal: flash.CausalTopLeft},
		Shard{}},
	{"causal plain order", flash.Problem{Batch: 1, Heads: 2, QueryLen: 97, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight},
		Shard{Order: Plain}},
	{"not causal", flash.Problem{Batch: 2, Heads: 2, QueryLen: 75, KeyLen: 131, HeadDim: 8, DType: flash.F16}, Shard{}},
	{"not causal zigzag", flash.Problem{Batch: 1, Heads: 1, QueryLen: 75, KeyLen: 51, HeadDim: 16, DType: flash.F32}, Shard{Order: Zigzag}},
	{"causal, more keys", flash.Problem{Batch: 1, Heads: 2, QueryLen: 60, KeyLen: 143, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight}, Shard{}},
	{"causal, more queries", flash.Problem{Batch: 1, Heads: 2, QueryLen: 143, KeyLen: 60, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight}, Shard{}},
	{"window", flash.Problem{Batch: 1, Heads: 2, QueryLen: 160, HeadDim: 8, DType: flash.F16, Window: flash.SlidingWindow(21, 9)}, Shard{}},
	{"causal window zigzag", flash.Problem{MaxLogit: true, Batch: 1, Heads: 2, QueryLen: 160, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, Window: flash.SlidingWindow(50, -1)}, Shard{Order: Zigzag}},
	{"dropout", flash.Problem{Batch: 2, Heads: 2, QueryLen: 530, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		Dropout: 0.3}, Shard{}},
	{"dropout fp16", flash.Problem{Batch: 1, Heads: 2, QueryLen: 300, KeyLen: 531, HeadDim: 8, DType: flash.F16, Dropout: 0.2}, Shard{}},
	{"functions", flash.Problem{MaxLogit: true,
		Batch: 1, Heads: 2, QueryLen: 150, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		ScoreFunction: alibiSoftcap()}, Shard{}},
	{"functions fp16", flash.Problem{Batch: 1, Heads: 2, QueryLen: 101, KeyLen: 150, HeadDim: 8, DType: flash.F16,
		ScoreFunction: alibiSoftcap(),
		MaskFunction:  score.Dilated(3, -1)}, Shard{}},
	{"documents", flash.Problem{Batch: 1, Heads: 2, QueryLen: 200, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		MaskFunction: documents(200, 17, 60, 61, 150)}, Shard{}},
}

func alibiSoftcap() score.Function {
	f, err := score.Compose(score.Softcap(3), score.ALiBi([]float32{0.1, 0.02}))
	if err != nil {
		panic(err)
	}
	return f
}

// documents is packed sequences that begin at these tokens, and at 0.
func documents(n int, starts ...int) score.MaskFunction {
	of := make([]int32, n)
	for i := range of {
		for _, s := range starts {
			if i >= s {
				of[i]++
			}
		}
	}
	return score.Documents(score.TableInt(of, n))
}

// TestRanks compares ranks in this process with the oracle, their second run with the first, bit by bit, and what they send with the model.
func TestRanks(t *testing.T) {
	for i, c := range cases {
		for ranks := 1; ranks <= 4; ranks++ {
			if testing.Short() && ((i+i/3)%3 == 1 || !runsOn(ranks, i)) {
				continue // a third less, of each number of ranks
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, ranks), func(t *testing.T) {
				devices := sharedDevices(t, ranks)
				groupBytes = i % 2 << 30 // every other one by groups of heads
				s := newSample(t, rand.New(rand.NewPCG(uint64(i), uint64(ranks))), c.problem)
				comms, err := Local(ranks)
				require.NoError(t, err)
				got, err := s.run(soon(t), devices, comms, c.shard, 2, nil)
				require.NoError(t, err)
				s.judge(t, &got[0])
				require.Equal(t, got[0], got[1], "the second run")
				if ranks == 3 {
					require.Equal(t, got[0], requireModelOfBytes(t, s, devices, c.shard, ranks),
						"over messages, not memory that ranks share")
				}
			})
		}
	}
}

// TestManyRanks: more ranks than places for what is on its way, with blocks that some do not need; messages carry bytes, as between
// processes.
func TestManyRanks(t *testing.T) {
	for i, p := range []flash.Problem{
		{Batch: 1, Heads: 1, QueryLen: 140, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight},
		{Batch: 1, Heads: 1, QueryLen: 140, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
			Window: flash.SlidingWindow(30, -1)},
	} {
		const ranks = 7
		devices := sharedDevices(t, ranks)
		s := newSample(t, rand.New(rand.NewPCG(uint64(i), 8)), p)
		comms, err := Local(ranks)
		require.NoError(t, err)
		recorded := make([]Comm, ranks)
		for i := range comms {
			recorded[i] = Record(comms[i])
		}
		ctx := soon(t)
		got, err := s.run(ctx, devices, recorded, Shard{Order: Zigzag}, 2, nil)
		require.NoError(t, err)
		s.judge(t, &got[0])
		require.Equal(t, got[0], got[1])
		comms, err = Local(ranks)
		require.NoError(t, err)
		again, err := s.run(ctx, devices, comms, Shard{Order: Zigzag}, 1, nil)
		require.NoError(t, err)
		require.Equal(t, got[0], again[0], "over memory that ranks share")
	}
}
