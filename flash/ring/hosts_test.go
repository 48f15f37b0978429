package ring

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// hostCases are problems whose heads divide by the ranks of a host.
var hostCases = []struct {
	name    string
	problem flash.Problem
	shard   Shard
}{
	{"causal", flash.Problem{Batch: 2, Heads: 4, QueryLen: 301, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight}, Shard{}},
	{"grouped heads fp16, largest scores", flash.Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 75, KeyLen: 131, HeadDim: 16,
		ValueDim: 8, DType: flash.F16, MaxLogit: true}, Shard{Order: Zigzag}},
	{"window, dropout, functions by head", flash.Problem{Batch: 2, Heads: 4, QueryLen: 270, HeadDim: 8, DType: flash.F32,
		Window: flash.SlidingWindow(50, 9), Dropout: 0.3, ScoreFunction: slopes(), MaskFunction: score.Dilated(3, -1)}, Shard{}},
	{"bias of each head, mask, sinks", flash.Problem{Batch: 2, Heads: 4, QueryLen: 61, KeyLen: 83, HeadDim: 16, DType: flash.F32,
		Sinks: true, Causal: flash.CausalBottomRight, Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 4, Queries: 61, Keys: 83},
		Mask: flash.PerScore{DType: flash.Bool, Batch: 2, Heads: 1, Queries: 61, Keys: 83}}, Shard{}},
	{"bias that heads share, captured", flash.Problem{Batch: 1, Heads: 2, QueryLen: 90, HeadDim: 8, DType: flash.F32,
		ScoreFunction: relative(2), Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: 90, Keys: 90}},
		Shard{Order: Zigzag}},
	{"bias that all share", flash.Problem{Batch: 2, Heads: 2, QueryLen: 90, HeadDim: 8, DType: flash.F32,
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: 1, Keys: 90}}, Shard{}},
	{"lengths, sinks", flash.Problem{Batch: 3, Heads: 2, QueryLen: 130, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		KeyLengths: true, Sinks: true, Dropout: 0.2, KeyLen: 270}, Shard{}},
	{"blocks", flash.Problem{Batch: 2, Heads: 4, QueryLen: 170, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		Blocks: flash.Blocks{Queries: 16, Keys: 20, PerBatch: true}}, Shard{}},
}

// TestHosts compares ranks, two of each of two or three hosts, with the oracle, a second run with the first, and results over messages with
// those over memory that ranks share; bytes with the model.
func TestHosts(t *testing.T) {
	for i, c := range hostCases {
		ranks := 4
		if c.problem.Dropout == 0 && i%3 == 0 {
			ranks = 6
		}
		t.Run(fmt.Sprintf("%s/%d", c.name, ranks), func(t *testing.T) {
			if i > 0 {
				vktest.Long(t, "a causal problem")
			}
			devices := sharedDevices(t, ranks)
			groupBytes = i % 2 << 30
			s := newPackedSample(t, rand.New(rand.NewPCG(uint64(i), 4)), c.problem, someLengths(&c.problem))
			shard := c.shard
			shard.Over, shard.PerHost = Both, 2
			comms, err := Local(ranks)
			require.NoError(t, err)
			got, err := s.run(soon(t), devices, comms, shard, 2, func(p *Plan) {
				require.Equal(t, Both, p.Over())
				require.Equal(t, s.problem.String(), p.Problem().String())
			})
			require.NoError(t, err)
			s.judge(t, &got[0])
			require.Equal(t, got[0], got[1], "the second run")
			require.Equal(t, got[0], s.overMessages(t, devices, shard, ranks), "over messages, not memory that ranks share")
		})
	}
}

// overMessages runs ranks over messages, compares bytes with the model, and gives their results.
func (s *sample) overMessages(t *testing.T, devices []*flash.Device, shard Shard, ranks int) results {
	t.Helper()
	m := s.model(t, shard, ranks)
	recorders, wrapped := recorded(t, ranks)
	rows := make([]int, ranks)
	hosts := make([]int, ranks) // tokens of the rank's host
	got, err := s.run(soon(t), devices, wrapped, shard, 1, func(p *Plan) {
		rows[worldRank(p)], hosts[worldRank(p)] = p.Local().QueryLen, p.problem.QueryLen
	})
	require.NoError(t, err)
	agreed, err := json.Marshal(statement{Fields: stated(s.problem, shard, ranks)})
	require.NoError(t, err)
	sum := func(of []Transfer) (n float64) {
		for _, x := range of {
			n += float64(x.Bytes)
		}
		return n
	}
	for rank, r := range recorders {
		b := m.Moved(rank)
		// DLSE: of the rank's tokens and others' heads, and the other way around.
		row := float64(4 * s.problem.Batch * s.problem.Heads / shard.PerHost)
		sent, received := row*float64(rows[rank]*(shard.PerHost-1)), row*float64(hosts[rank]-rows[rank])
		require.Equal(t, b.ForwardSent+b.BackwardSent+sent, sum(r.Sent()), "sent by rank %d", rank)
		require.Equal(t, b.ForwardReceived+b.BackwardReceived+received, sum(r.Received()), "received by rank %d", rank)
		require.Equal(t, float64((ranks-1)*len(agreed))+b.ForwardGathered+b.BackwardGathered, float64(r.Gathered()),
			"gathered by rank %d", rank)
	}
	return got[0]
}

// TestHostsOfAll: hosts of one rank are a ring, and a host of all ranks has heads over them.
func TestHostsOfAll(t *testing.T) {
	p := small
	p.Heads = 4
	for perHost, want := range map[int]Over{1: Keys, 2: Both, 4: Heads} {
		_, ranks := rings(t, 4)
		ctx := soon(t)
		for _, err := range each(ranks, func(rank int, r *Ring) error {
			plan, err := r.Plan(ctx, p, Shard{Over: Both, PerHost: perHost})
			if err != nil {
				return err
			}
			if plan.Over() != want {
				return fmt.Errorf("%d ranks of a host are over %v", perHost, plan.Over())
			}
			var tokens int
			for _, s := range plan.Queries() {
				tokens += s.Len()
			}
			if n := plan.Local().QueryLen; n != tokens || n != 16 {
				return fmt.Errorf("rank %d has %d queries, at %v", rank, n, plan.Queries())
			}
			return plan.Close()
		}) {
			require.NoError(t, err)
		}
	}
}

// TestHostsBadInput: what hosts cannot have is named, by every rank.
func TestHostsBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *flash.Problem, s *Shard)
	}{
		"Shard.PerHost":    {func(_ *flash.Problem, s *Shard) { s.PerHost = 3 }},
		"Problem.KeyHeads": {func(p *flash.Problem, _ *Shard) { p.Heads, p.KeyHeads = 4, 1 }},
		"Problem.Packed":   {func(p *flash.Problem, _ *Shard) { p.Packed = flash.Packed{Queries: 90, Keys: 90} }},
		"Problem.Blocks.PerHead": {func(p *flash.Problem, _ *Shard) {
			p.Blocks = flash.Blocks{Queries: 16, Keys: 16, PerHead: true}
		}},
		"Problem.QueryLen": {func(p *flash.Problem, _ *Shard) { p.QueryLen, p.KeyLen = 3, 64 }},
	} {
		p, shard := small, Shard{Over: Both, PerHost: 2}
		c.change(&p, &shard)
		_, ranks := rings(t, 4)
		for _, err := range each(ranks, func(_ int, r *Ring) error {
			_, err := r.Plan(t.Context(), p, shard)
			return err
		}) {
			var bad *flash.ArgumentError
			require.ErrorAs(t, err, &bad, name)
			require.Equal(t, name, bad.Argument)
		}
	}
	_, err := NewModel(small, Shard{PerHost: 2}, 4)
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestHostsModel: with slow links between hosts and as slow ones within, a ring over hosts of two ranks moves less than one over all ranks.
func TestHostsModel(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 16, QueryLen: 1 << 16, HeadDim: 128, DType: flash.F16, Causal: flash.CausalBottomRight}
	v := Speeds{Forward: 350e12, Backward: 270e12, Link: 45e9, Latency: 60e-6}
	const ranks = 8
	models := map[Over]*Model{}
	for _, shard := range []Shard{{Over: Keys}, {Over: Heads}, {Over: Both, PerHost: 2}} {
		m, err := NewModel(p, shard, ranks)
		require.NoError(t, err)
		models[shard.Over] = m
		pairs := 0.0
		for _, x := range m.Steps(3) {
			pairs += x.Pairs
		}
		require.InEpsilon(t, float64(p.QueryLen)*float64(p.QueryLen)/2*16/ranks, pairs, 1e-3)
		f := m.Forward(v)
		require.InEpsilon(t, models[Keys].Forward(v).One, f.One, 1e-9)
		require.GreaterOrEqual(t, f.Ranks, f.One/ranks)
	}
	received := func(o Over) float64 { return models[o].Moved(3).ForwardReceived }
	require.Less(t, received(Both), received(Keys))
	require.Less(t, received(Heads), received(Both))
	require.Greater(t, models[Both].Memory(), models[Keys].Memory())
}

// TestHostsRankFails: a rank whose pass fails is an error of all others, of its host and of others, which names it among all.
func TestHostsRankFails(t *testing.T) {
	p := small
	p.Heads = 4
	_, ranks := rings(t, 4)
	s := newInputs(rand.New(rand.NewPCG(1, 2)), normalized(t, p))
	ctx := soon(t)
	for rank, err := range each(ranks, func(rank int, r *Ring) error {
		plan, err := r.Plan(ctx, p, Shard{Over: Both, PerHost: 2})
		if err != nil {
			return err
		}
		defer plan.Close()
		x, err := s.place(ctx, r.Device(), plan)
		if err != nil {
			return err
		}
		defer x.close()
		f := flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse}
		if rank == 1 {
			f.V = x.lse
		}
		return plan.Forward(ctx, f)
	}) {
		require.Error(t, err)
		if rank == 1 {
			require.ErrorIs(t, err, flash.ErrArgument)
			continue
		}
		var which *RankError
		require.ErrorAs(t, err, &which, "rank %d", rank)
		require.Equal(t, 1, which.Rank, "rank %d: %v", rank, err)
	}
}

// TestHostsAgree: ranks of two hosts that were given different lengths say which rank has which.
func TestHostsAgree(t *testing.T) {
	p := normalized(t, flash.Problem{Batch: 2, Heads: 2, QueryLen: 64, HeadDim: 8, KeyLengths: true})
	_, ranks := rings(t, 4)
	ctx := soon(t)
	for _, err := range each(ranks, func(rank int, r *Ring) error {
		plan, err := r.Plan(ctx, p, Shard{Over: Both, PerHost: 2})
		if err != nil {
			return err
		}
		defer plan.Close()
		s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
		s.keyLengths = []int32{64, int32(20 + rank/2)} // the same of a host's ranks
		out := newResults(&p, 4)
		return s.once(ctx, r.Device(), plan, &out, false)
	}) {
		var which *ShardError
		require.ErrorAs(t, err, &which)
		d := which.Differences[0]
		require.Equal(t, "KeyLengths[1]", d.What)
		require.Equal(t, []string{fmt.Sprint(20 + which.Rank/2), fmt.Sprint(20 + d.Rank/2)}, []string{d.Mine, d.Their}, err)
		require.Equal(t, which.Rank%2, d.Rank%2, "ranks that have the same heads")
	}
}

func normalized(t *testing.T, p flash.Problem) flash.Problem {
	t.Helper()
	p, err := p.Normalize()
	require.NoError(t, err)
	return p
}
