package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// blockCases are problems with block masks, of blocks that go with granules and of others.
var blockCases = []struct {
	name    string
	problem flash.Problem
	shard   Shard
}{
	{"causal", flash.Problem{MaxLogit: true,
		Batch: 2, Heads: 4, QueryLen: 530, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		Blocks: flash.Blocks{Queries: 64, Keys: 32}}, Shard{}},
	{"of each head and entry, fp16", flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: 190, HeadDim: 16,
		DType: flash.F16, Blocks: flash.Blocks{Queries: 16, Keys: 20, PerHead: true, PerBatch: true}}, Shard{}},
	{"of each head, dropout, sinks", flash.Problem{Batch: 1, Heads: 4, QueryLen: 300, KeyLen: 1040, HeadDim: 8, DType: flash.F32,
		Dropout: 0.3, Sinks: true, Blocks: flash.Blocks{Queries: 24, Keys: 128, PerHead: true}}, Shard{}},
	{"window, bias, mask", flash.Problem{Batch: 2, Heads: 2, QueryLen: 200, HeadDim: 16, DType: flash.F32,
		Window: flash.SlidingWindow(60, 30), Blocks: flash.Blocks{Queries: 20, Keys: 16, PerBatch: true},
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: 200, Keys: 200},
		Mask: flash.PerScore{DType: flash.Bool, Batch: 1, Heads: 1, Queries: 1, Keys: 200}}, Shard{Order: Zigzag}},
	{"lengths", flash.Problem{MaxLogit: true,
		Batch: 3, Heads: 4, QueryLen: 170, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight,
		KeyLengths: true, Blocks: flash.Blocks{Queries: 16, Keys: 16, PerBatch: true}}, Shard{}},
}

// TestBlockRanks compares block masks over ranks with the oracle, and a second run with the first, bit by bit; bytes with the model, and
// heads over devices where they divide.
func TestBlockRanks(t *testing.T) {
	vktest.Long(t, "block masks in TestStream")
	for i, c := range blockCases {
		for ranks := 1; ranks <= 4; ranks++ {
			if !runsOn(ranks, i) {
				continue
			}
			for _, over := range []Over{Keys, Heads} {
				if over == Heads && (c.problem.Heads%ranks != 0 || c.problem.KeyHeads%ranks != 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%v", c.name, ranks, over), func(t *testing.T) {
					devices := sharedDevices(t, ranks)
					s := newPackedSample(t, rand.New(rand.NewPCG(uint64(i), uint64(ranks))), c.problem, someLengths(&c.problem))
					shard := c.shard
					shard.Over = over
					s.requireRight(t, devices, shard, ranks)
				})
			}
		}
	}
}

// TestBlocksOverHeads: over heads the mask is not cut, so that there may be fewer blocks than chunks.
func TestBlocksOverHeads(t *testing.T) {
	const ranks = 4
	s := newSample(t, rand.New(rand.NewPCG(5, ranks)), flash.Problem{Batch: 1, Heads: 4, QueryLen: 1024, HeadDim: 8, DType: flash.F32,
		Causal: flash.CausalBottomRight, Blocks: flash.Blocks{Queries: 256, Keys: 256}})
	s.requireRight(t, sharedDevices(t, ranks), Shard{Over: Heads}, ranks)
}

// TestBlockMaskChanges: a plan's passes may have another mask each.
func TestBlockMaskChanges(t *testing.T) {
	devices := sharedDevices(t, 2)
	var samples []*sample
	for seed := range 2 {
		samples = append(samples, newSample(t, rand.New(rand.NewPCG(uint64(seed), 3)), blockCases[3].problem))
	}
	for _, over := range []Over{Keys, Heads} {
		comms, err := Local(2)
		require.NoError(t, err)
		ctx := soon(t)
		got := []results{newResults(&samples[0].problem, 2), newResults(&samples[0].problem, 2)}
		require.NoError(t, errors.Join(each(comms, func(rank int, c Comm) error {
			r, err := New(c, devices[rank])
			if err != nil {
				return err
			}
			p, err := r.Plan(ctx, samples[0].problem, Shard{Over: over})
			if err != nil {
				return err
			}
			defer p.Close()
			for i, s := range samples {
				if err := s.once(ctx, devices[rank], p, &got[i], false); err != nil {
					return err
				}
			}
			return nil
		})...))
		for i, s := range samples {
			s.judge(t, &got[i])
		}
	}
}

// TestBlockMasksOfLengths: a plan keeps no more for a block mask however many lengths its passes have.
func TestBlockMasksOfLengths(t *testing.T) {
	const passes = 40
	p, err := flash.Problem{Batch: 4, Heads: 1, QueryLen: 16, KeyLen: 256, HeadDim: 8, DType: flash.F32, KeyLengths: true,
		Blocks: flash.Blocks{Queries: 4, Keys: 4}}.Normalize()
	require.NoError(t, err)
	_, ranks := rings(t, 2)
	ctx := soon(t)
	var all, most [2]int // masks that a rank made, and what it kept
	require.NoError(t, errors.Join(each(ranks, func(rank int, r *Ring) error {
		plan, err := r.Plan(ctx, p, Shard{})
		if err != nil {
			return err
		}
		defer plan.Close()
		s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
		lengths := rand.New(rand.NewPCG(3, 10)) // the same of both ranks
		s.keyLengths = randomLengths(lengths, true, p.Batch, p.KeyLen)
		x, err := s.place(ctx, r.Device(), plan)
		if err != nil {
			return err
		}
		defer x.close()
		made := map[*flash.BlockMask]bool{}
		for range passes {
			if err := x.keyLengths.UploadBytes(ctx, bytesOf(randomLengths(lengths, true, p.Batch, p.KeyLen))); err != nil {
				return err
			}
			if err := plan.Forward(ctx, s.forward(&x)); err != nil {
				return err
			}
			have := &plan.seen.blocks
			for _, m := range have.masks {
				made[m.mask] = true
			}
			most[rank] = max(most[rank], len(have.masks), len(have.bits.counts)+len(have.bits.before))
		}
		all[rank] = len(made)
		return nil
	})...))
	for rank := range ranks {
		require.LessOrEqual(t, most[rank], mostKept)
		require.Greater(t, all[rank], mostKept, "no test otherwise")
	}
}

// TestBlockMaskAgrees: ranks that were given different masks say so; so does one that was given another problem's, or none.
func TestBlockMaskAgrees(t *testing.T) {
	p, err := flash.Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 8, Blocks: flash.Blocks{Queries: 16, Keys: 16}}.Normalize()
	require.NoError(t, err)
	other := p
	other.Blocks.Keys = 32
	for name, c := range map[string]struct {
		change func(s *sample)
		says   string
	}{
		"another": {func(s *sample) { s.blockBits[1] = !s.blockBits[1] }, "Blocks, by a sum over its bits"},
		"none":    {func(s *sample) { s.blockBits = nil }, "Forward.Blocks is "},
		"of another problem": {func(s *sample) { s.problem, s.blockBits = other, make([]bool, 8) },
			"must be the block mask of the problem"},
	} {
		_, ranks := rings(t, 2)
		ctx := soon(t)
		for rank, err := range each(ranks, func(rank int, r *Ring) error {
			plan, err := r.Plan(ctx, p, Shard{})
			if err != nil {
				return err
			}
			defer plan.Close()
			s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
			if rank == 1 {
				c.change(s)
			}
			out := newResults(&p, 2)
			return s.once(ctx, r.Device(), plan, &out, false)
		}) {
			require.Error(t, err, name)
			if rank == 1 {
				require.ErrorContains(t, err, c.says, name)
			}
		}
	}
}

// TestBlockScheduleSkips: blocks of keys that no query's blocks attend to do not travel, and what is computed is what is left.
func TestBlockScheduleSkips(t *testing.T) {
	const n, ranks = 1024, 4
	p := flash.Problem{Batch: 1, Heads: 1, QueryLen: n, HeadDim: 8, Blocks: flash.Blocks{Queries: 64, Keys: 64}}
	m, err := NewModel(p, Shard{}, ranks)
	require.NoError(t, err)
	bits := make([]bool, n/64*n/64)
	for i := range bits {
		row, column := i/(n/64), i%(n/64)
		bits[i] = row/4 == column/4 || row == 0 && column == 4 // a rank's own keys, and one block of rank 1's for rank 0
	}
	some, err := m.BlockMask(bits)
	require.NoError(t, err)
	for rank := range ranks {
		steps := some.Steps(rank)
		require.Len(t, m.Steps(rank), ranks)
		pairs, received := 0.0, 0
		for _, x := range steps {
			pairs += x.Pairs
			if x.Received > 0 {
				received++
			}
		}
		want, from := 256.0*256, 0
		if rank == 0 {
			want, from = want+64*64, 1
		}
		require.Equal(t, want, pairs)
		require.Equal(t, from, received)
	}
	_, err = m.BlockMask(bits[1:])
	require.ErrorIs(t, err, flash.ErrArgument)
}
