package ring

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
)

// headCases are problems whose heads divide by 1, 2 and 4 ranks.
var headCases = []struct {
	name    string
	problem flash.Problem
	shard   Shard
}{
	{"causal ragged", flash.Problem{Batch: 1, Heads: 4, QueryLen: 101, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight},
		Shard{Over: Heads}},
	{"grouped heads fp16", flash.Problem{Batch: 2, Heads: 8, KeyHeads: 4, QueryLen: 75, KeyLen: 131, HeadDim: 16, ValueDim: 8,
		DType: flash.F16}, Shard{Over: Heads, Order: Zigzag}},
	{"window bf16", flash.Problem{Batch: 1, Heads: 4, QueryLen: 97, HeadDim: 8, DType: flash.BF16, Causal: flash.CausalBottomRight,
		Window: flash.SlidingWindow(21, -1)}, Shard{Over: Heads}},
	{"dropout", flash.Problem{Batch: 2, Heads: 4, QueryLen: 90, KeyLen: 70, HeadDim: 8, DType: flash.F32, Dropout: 0.3},
		Shard{Over: Heads}},
	{"dropout grouped fp16", flash.Problem{Batch: 1, Heads: 8, KeyHeads: 4, QueryLen: 130, HeadDim: 8, DType: flash.F16,
		Causal: flash.CausalBottomRight, Dropout: 0.2}, Shard{Over: Heads}},
	{"sinks", flash.Problem{Batch: 2, Heads: 4, QueryLen: 67, KeyLen: 90, HeadDim: 16, DType: flash.F32, Sinks: true}, Shard{Over: Heads}},
	{"functions by head", flash.Problem{Batch: 1, Heads: 4, QueryLen: 67, KeyLen: 90, HeadDim: 16, DType: flash.F32,
		ScoreFunction: slopes(),
		MaskFunction:  score.Dilated(3, -1)}, Shard{Over: Heads}},
	{"functions by head fp16", flash.Problem{MaxLogit: true, Batch: 2, Heads: 8, KeyHeads: 4, QueryLen: 90, HeadDim: 8, DType: flash.F16,
		Causal: flash.CausalTopLeft, ScoreFunction: slopes()}, Shard{Over: Heads}},
	{"bias of each head, mask", flash.Problem{Batch: 2, Heads: 4, QueryLen: 61, KeyLen: 83, HeadDim: 16, DType: flash.F32,
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 4, Queries: 61, Keys: 83},
		Mask: flash.PerScore{DType: flash.Bool, Batch: 2, Heads: 1, Queries: 61, Keys: 83}}, Shard{Over: Heads}},
	{"shared bias, bits of each head fp16", flash.Problem{MaxLogit: true,
		Batch: 2, Heads: 8, KeyHeads: 4, QueryLen: 75, HeadDim: 8, DType: flash.F16,
		Causal: flash.CausalBottomRight, Dropout: 0.2, Bias: flash.PerScore{DType: flash.F16, Batch: 2, Heads: 1, Queries: 75, Keys: 75},
		Mask: flash.PerScore{DType: flash.Bit, Batch: 1, Heads: 8, Queries: 1, Keys: 75}}, Shard{Over: Heads, Order: Zigzag}},
	{"captured", flash.Problem{Batch: 2, Heads: 4, QueryLen: 40, HeadDim: 8, DType: flash.F32, ScoreFunction: relative(4)},
		Shard{Over: Heads}},
	{"bias of keys", flash.Problem{Batch: 2, Heads: 4, QueryLen: 40, HeadDim: 8, DType: flash.F32, Sinks: true,
		Bias: flash.PerScore{DType: flash.F32, Batch: 2, Heads: 4, Queries: 1, Keys: 40}}, Shard{Over: Heads}},
}

// slopes differ from head to head, and much.
func slopes() score.Function {
	return score.ALiBi([]float32{0.01, 0.5, 0.02, 0.1, 0.9, 0.001, 0.3, 0.05})
}

// TestHeads compares heads over ranks with the oracle, and the second run with the first, bit by bit.
func TestHeads(t *testing.T) {
	for i, c := range headCases {
		for _, ranks := range []int{1, 2, 4} {
			if testing.Short() && (ranks != 2 || i%3 != 0) {
				continue // causal, dropout and functions on two ranks
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, ranks), func(t *testing.T) {
				devices := sharedDevices(t, ranks)
				s := newSample(t, rand.New(rand.NewPCG(uint64(i), uint64(ranks))), c.problem)
				comms, err := Local(ranks)
				require.NoError(t, err)
				got, err := s.run(soon(t), devices, comms, c.shard, 2, func(p *Plan) { require.Equal(t, Heads, p.Over()) })
				require.NoError(t, err)
				s.judge(t, &got[0])
				require.Equal(t, got[0], got[1], "the second run")
			})
		}
	}
}

// TestHeadsMoved compares the model's bytes with what ranks send and receive, and results over messages with those over memory that ranks
// share.
func TestHeadsMoved(t *testing.T) {
	defer func(n uint64) { pieceBytes = n }(pieceBytes)
	for i, c := range headCases[:2] {
		pieceBytes = []uint64{16 << 20, 1 << 10}[i] // a message for each tensor, and several
		const ranks = 4                             // more than there are places for what comes
		devices := sharedDevices(t, ranks)
		s := newSample(t, rand.New(rand.NewPCG(uint64(i), 77)), c.problem)
		m, err := NewModel(c.problem, c.shard, ranks)
		require.NoError(t, err)
		comms, err := Local(ranks)
		require.NoError(t, err)
		send(t)
		recorders, wrapped := make([]*Recorder, ranks), make([]Comm, ranks)
		for i := range comms {
			recorders[i] = Record(comms[i])
			wrapped[i] = recorders[i]
		}
		lengths := make([]int, ranks)
		got, err := s.run(soon(t), devices, wrapped, c.shard, 1, func(p *Plan) { lengths[p.ring.Rank()] = p.Local().QueryLen })
		require.NoError(t, err)
		p := s.problem
		for rank, r := range recorders {
			want := m.Moved(rank)
			// One number for each row of DLSE: of the rank's tokens and others' heads, and the other way around.
			row := float64(4 * p.Batch * p.Heads / ranks)
			dlseSent, dlseReceived := row*float64(lengths[rank]*(ranks-1)), row*float64(p.QueryLen-lengths[rank])
			sum := func(of []Transfer) (n float64) {
				for _, x := range of {
					n += float64(x.Bytes)
				}
				return n
			}
			require.Equal(t, want.ForwardSent+want.BackwardSent+dlseSent, sum(r.Sent()), "%s: sent by rank %d", c.name, rank)
			require.Equal(t, want.ForwardReceived+want.BackwardReceived+dlseReceived, sum(r.Received()), "%s: received by rank %d",
				c.name, rank)
		}
		comms, err = Local(ranks)
		require.NoError(t, err)
		again, err := s.run(soon(t), devices, comms, c.shard, 1, nil)
		require.NoError(t, err)
		require.Equal(t, got[0], again[0], "over memory that ranks share")
	}
}

// TestHeadsAccumulate: gradients are added to what is there, and a DLSE that only one rank gives counts for its queries.
func TestHeadsAccumulate(t *testing.T) {
	const ranks = 2
	devices := sharedDevices(t, ranks)
	s := newSample(t, rand.New(rand.NewPCG(4, 5)), flash.Problem{Batch: 2, Heads: 2, QueryLen: 41, HeadDim: 8, DType: flash.F32,
		Causal: flash.CausalBottomRight})
	var got [2][ranks][3][]float32 // keys around the ring, heads over devices
	for i, shard := range []Shard{{Over: Keys}, {Over: Heads}} {
		comms, err := Local(ranks)
		require.NoError(t, err)
		ctx := soon(t)
		require.NoError(t, errors.Join(each(comms, func(rank int, c Comm) error {
			r, err := New(c, devices[rank])
			if err != nil {
				return err
			}
			p, err := r.Plan(ctx, s.problem, shard)
			if err != nil {
				return err
			}
			defer p.Close()
			x, err := s.place(ctx, devices[rank], p)
			if err != nil {
				return err
			}
			defer x.close()
			for _, d := range []*flash.Tensor{x.dq, x.dk, x.dv} {
				base := make([]float32, d.Elements())
				for i := range base {
					base[i] = float32(i%7) - 3
				}
				if err := d.Upload(ctx, base); err != nil {
					return err
				}
			}
			// Without LSE: nobody wants this rank's.
			f := flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o}
			if err := p.Forward(ctx, f); err != nil {
				return err
			}
			f.LSE = x.lse
			if err := p.Forward(ctx, f); err != nil {
				return err
			}
			b := flash.Backward{Forward: f, DO: x.do, DQ: x.dq, DK: x.dk, DV: x.dv, Accumulate: true}
			if rank == 1 {
				b.DLSE = x.dlse
			}
			if err := p.Backward(ctx, b); err != nil {
				return err
			}
			for k, d := range []*flash.Tensor{x.dq, x.dk, x.dv} {
				got[i][rank][k] = make([]float32, d.Elements())
				if err := d.Download(ctx, got[i][rank][k]); err != nil {
					return err
				}
			}
			return nil
		})...))
	}
	for rank := range ranks {
		for k, name := range []string{"dq", "dk", "dv"} {
			require.InDeltaSlice(t, got[0][rank][k], got[1][rank][k], 1e-4, "%s of rank %d", name, rank)
		}
	}
}

// TestHeadsRankFails: a rank whose pass fails, or that leaves, is an error of all others, which names it.
func TestHeadsRankFails(t *testing.T) {
	p := small
	p.Heads = 3
	for name, fail := range map[string]func(ctx context.Context, c Comm, p *Plan, x *tensors) error{
		"bad tensor": func(ctx context.Context, _ Comm, p *Plan, x *tensors) error {
			return p.Forward(ctx, flash.Forward{Q: x.q, K: x.k, V: x.lse, O: x.o, LSE: x.lse})
		},
		"leaves": func(_ context.Context, c Comm, _ *Plan, _ *tensors) error {
			_ = c.Close()
			return ErrRank
		},
	} {
		comms, ranks := rings(t, 3)
		s := newSample(t, rand.New(rand.NewPCG(1, 2)), p)
		ctx := soon(t)
		start := time.Now()
		for rank, err := range each(ranks, func(rank int, r *Ring) error {
			plan, err := r.Plan(ctx, p, Shard{Over: Heads})
			if err != nil {
				return err
			}
			defer plan.Close()
			x, err := s.place(ctx, r.Device(), plan)
			if err != nil {
				return err
			}
			defer x.close()
			if rank == 1 {
				return fail(ctx, comms[1], plan, &x)
			}
			return plan.Forward(ctx, flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse})
		}) {
			require.Error(t, err, name)
			if rank == 1 {
				continue
			}
			var which *RankError
			require.ErrorAs(t, err, &which, "%s, rank %d", name, rank)
			require.Equal(t, 1, which.Rank, "%s, rank %d: %v", name, rank, err)
		}
		require.Less(t, time.Since(start), 4*time.Minute)
	}
}

// TestHeadsBadInput: heads that do not divide, what Over and Speeds cannot be, and ranks that disagree on Over.
func TestHeadsBadInput(t *testing.T) {
	for _, c := range []struct {
		argument, says string
		problem        flash.Problem
		shard          Shard
	}{
		{"Problem.KeyHeads", "must be a multiple of 3", flash.Problem{Batch: 1, Heads: 6, KeyHeads: 2, QueryLen: 64, HeadDim: 8},
			Shard{Over: Heads}},
		{"Shard.Over", "Either, Keys, Heads or Both", small, Shard{Over: 9}},
		{"Shard.Speeds", "must have Forward and Link", small, Shard{Speeds: Speeds{Link: 1e9}}},
		{"Shard.Speeds", "not below 0", small, Shard{Speeds: Speeds{Forward: 1, Link: 1, Latency: -1}}},
	} {
		_, ranks := rings(t, 3)
		ctx := soon(t)
		for _, err := range each(ranks, func(_ int, r *Ring) error {
			_, err := r.Plan(ctx, c.problem, c.shard)
			return err
		}) {
			var bad *flash.ArgumentError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, c.argument, bad.Argument)
			require.Contains(t, err.Error(), c.says)
		}
	}
	_, ranks := rings(t, 2)
	ctx := soon(t)
	for _, err := range each(ranks, func(rank int, r *Ring) error {
		_, err := r.Plan(ctx, small, Shard{Over: []Over{Keys, Heads}[rank]})
		return err
	}) {
		require.ErrorIs(t, err, ErrShards)
		require.Contains(t, err.Error(), "Shard.Over is ")
	}
}

// TestEither: what is predicted to be faster is taken, by the slowest of what ranks measured, and keys where nothing was measured or heads
// do not divide.
func TestEither(t *testing.T) {
	long := flash.Problem{Batch: 1, Heads: 16, QueryLen: 128 << 10, HeadDim: 128, DType: flash.F16, Causal: flash.CausalBottomRight}
	fast := Speeds{Forward: 350e12, Backward: 270e12, Link: 45e9, Latency: 60e-6}
	for _, c := range []struct {
		heads, tokens, ranks int
		speeds               Speeds
		want                 Over
	}{
		{16, 128 << 10, 2, Speeds{}, Keys},
		{16, 128 << 10, 2, fast, Keys},  // the ring hides its way behind kernels
		{16, 16 << 10, 8, fast, Heads},  // it cannot
		{12, 16 << 10, 8, fast, Keys},   // heads do not divide
		{16, 16 << 10, 16, fast, Heads}, // one head each
		{16, 128 << 10, 1, Speeds{}, Keys},
	} {
		p := long
		p.Heads, p.QueryLen = c.heads, c.tokens
		m, err := NewModel(p, Shard{Speeds: c.speeds}, c.ranks)
		require.NoError(t, err)
		require.Equal(t, c.want, m.Over(), "%+v", c)
		if c.speeds == (Speeds{}) || c.heads%c.ranks != 0 || c.ranks == 1 {
			continue
		}
		total := map[Over]float64{}
		for _, o := range []Over{Keys, Heads} {
			m, err := NewModel(p, Shard{Over: o}, c.ranks)
			require.NoError(t, err)
			f, b := m.Forward(c.speeds), m.Backward(c.speeds)
			require.GreaterOrEqual(t, f.Ranks, f.Waiting)
			total[o] = f.Ranks + b.Ranks
		}
		require.Less(t, total[c.want], total[Keys+Heads-c.want], "%+v", c)
	}
	// Bytes, as docs/scale.md has them: W times fewer of each tensor, and W−1 of W leave.
	const ranks = 8
	m, err := NewModel(long, Shard{Over: Heads, Order: Plain}, ranks)
	require.NoError(t, err)
	row, n := 16.0/ranks*float64(long.QueryLen)/ranks*(ranks-1), m.Moved(3)
	require.Equal(t, Moved{ForwardSent: row * (4*128*2 + 4), ForwardReceived: row * (4*128*2 + 4),
		BackwardSent: row * (8*128*2 + 4), BackwardReceived: row * (8*128*2 + 4), BackwardGathered: ranks - 1}, n)
	ring, err := NewModel(long, Shard{Over: Keys}, ranks)
	require.NoError(t, err)
	require.Greater(t, ring.Moved(3).ForwardReceived, n.ForwardReceived)

	// Ranks that measured differently take the same, which is not what some would alone.
	p := small
	p.Heads = 4
	speeds := []Speeds{{Forward: 1e9, Backward: 1e9, Link: 1e3}, {Forward: 1e9, Backward: 1e9, Link: 1e12}, {}, {}}
	for i, want := range []Over{Heads, Keys, Keys, Keys} {
		m, err := NewModel(p, Shard{Speeds: speeds[i]}, len(speeds))
		require.NoError(t, err)
		require.Equal(t, want, m.Over())
	}
	_, rs := rings(t, len(speeds))
	ctx := soon(t)
	require.NoError(t, errors.Join(each(rs, func(rank int, r *Ring) error {
		plan, err := r.Plan(ctx, p, Shard{Speeds: speeds[rank]})
		if err != nil {
			return err
		}
		if plan.Over() != Heads {
			err = fmt.Errorf("rank %d takes %v", rank, plan.Over())
		}
		return errors.Join(err, plan.Close())
	})...))
}

// overTable predicts both ways, as docs/scale.md has them.
func overTable(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| link | tokens | ranks | GiB received, ring | heads | speed-up, ring | heads | taken |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|")
	for _, l := range links {
		for _, tokens := range []int{16 << 10, 128 << 10} {
			for _, ranks := range []int{2, 8, 16} {
				p := flash.Problem{Batch: 1, Heads: 16, QueryLen: tokens, HeadDim: 128, DType: flash.F16, Causal: flash.CausalBottomRight}
				v := l.speed
				v.Forward, v.Backward = 350e12, 270e12
				var received, faster [2]float64
				for i, o := range []Over{Keys, Heads} {
					m, err := NewModel(p, Shard{Over: o}, ranks)
					require.NoError(t, err)
					moved, f, g := m.Moved(ranks-1), m.Forward(v), m.Backward(v)
					received[i] = (moved.ForwardReceived + moved.BackwardReceived) / (1 << 30)
					faster[i] = (f.One + g.One) / (f.Ranks + g.Ranks)
				}
				m, err := NewModel(p, Shard{Speeds: v}, ranks)
				require.NoError(t, err)
				fmt.Fprintf(&b, "| %s | %dk | %d | %.2g | %.2g | %.3g | %.3g | %v |\n", l.name, tokens>>10, ranks, received[0], received[1],
					faster[0], faster[1], m.Over())
			}
		}
	}
	return b.String()
}

// TestOverTable: the table in docs/scale.md is what the model says.
func TestOverTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	require.Contains(t, string(page), overTable(t), "docs/scale.md must have this table")
}

// TestHeadsMemory: what a rank allocates is what the model says.
func TestHeadsMemory(t *testing.T) {
	const ranks = 2
	p := flash.Problem{Batch: 1, Heads: 2, QueryLen: 1024, HeadDim: 16, DType: flash.F32, Window: flash.SlidingWindow(20, 20)}
	devices := make([]*flash.Device, ranks)
	for i := range devices {
		devices[i] = openDevice(t)
	}
	m, err := NewModel(p, Shard{Over: Heads}, ranks)
	require.NoError(t, err)
	comms, err := Local(ranks)
	require.NoError(t, err)
	s := newSample(t, rand.New(rand.NewPCG(1, 9)), p)
	_, err = s.run(soon(t), devices, comms, Shard{Over: Heads}, 1, func(plan *Plan) {
		u := plan.ring.dev.Usage()
		staged := u.ByLabel["staging upload"].Peak + u.ByLabel["staging download"].Peak
		require.InEpsilon(t, m.Memory(), float64(u.Current-staged), 0.3)
	})
	require.NoError(t, err)
}
