package ring

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// randomStarts are starts of sequences, mostly in order and within the rows.
func randomStarts(r *rand.Rand, sequences, rows int) []int32 {
	out := make([]int32, sequences+1)
	at := r.IntN(4)
	for i := range out {
		out[i] = int32(at)
		switch r.IntN(5) {
		case 0:
		case 1:
			at++
		default:
			at += r.IntN(2*rows/sequences + 1)
		}
		if r.IntN(20) == 0 {
			at -= r.IntN(10)
		}
	}
	return out
}

// randomLengths are lengths of sequences, some more than any can have, or fewer than none; nil where they are not wanted.
func randomLengths(r *rand.Rand, wanted bool, sequences, most int) (out []int32) {
	for range sequences {
		if wanted {
			out = append(out, int32(r.IntN(most+8)-3))
		}
	}
	return out
}

// TestPackedScheduleCovers draws packed problems and checks that launches of all ranks together compute every pair that is seen exactly
// once, at the places of its sequence, and no other.
func TestPackedScheduleCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 6))
	for range 300 {
		p := flash.Problem{Batch: 1 + r.IntN(8), Heads: 1, QueryLen: 5 + r.IntN(60), KeyLen: 5 + r.IntN(60), HeadDim: 8,
			Causal: flash.Causal(r.IntN(3)),
			Packed: flash.Packed{Queries: 8 + r.IntN(90), Keys: 8 + r.IntN(90)}, Dropout: []float64{0, 0.5}[r.IntN(2)],
			QueryLengths: r.IntN(2) == 0, KeyLengths: r.IntN(2) == 0}
		if r.IntN(8) == 0 {
			p.QueryLen, p.KeyLen, p.Packed = 700, 700, flash.Packed{Queries: 900 + r.IntN(90), Keys: 900 + r.IntN(90)}
		}
		if r.IntN(2) == 0 {
			p.Window = flash.SlidingWindow(r.IntN(p.KeyLen)-1, r.IntN(p.KeyLen)-1)
		}
		if r.IntN(3) == 0 {
			p.Mask = flash.PerScore{DType: []flash.DType{flash.Bool, flash.Bit}[r.IntN(2)], Batch: 1, Heads: 1, Queries: 1, Keys: p.KeyLen}
		}
		p, err := p.Normalize()
		require.NoError(t, err)
		ranks := 1 + r.IntN(4)
		s := newSchedule(p, Shard{Order: Order(r.IntN(3))}, ranks)
		queryLens, keyLens := randomLengths(r, p.QueryLengths, p.Batch, p.QueryLen), randomLengths(r, p.KeyLengths, p.Batch, p.KeyLen)
		of := newSequences(&p, randomStarts(r, p.Batch, p.Packed.Queries), randomStarts(r, p.Batch, p.Packed.Keys)).using(queryLens,
			keyLens)
		s.packed = of
		counts := map[[2]int]int{}
		whole := func(spans []Span, row int) int {
			for i, at := range spansOf(spans) {
				if at.Begin <= row && row < at.End {
					return spans[i].Begin + row - at.Begin
				}
			}
			t.Fatal("a row of no chunk")
			return 0
		}
		count := func(q, k, b, i, j int) {
			if q != of.queries[b]+i || k != of.keys[b]+j {
				t.Fatalf("query %d and key %d of sequence %d are at rows %d and %d", i, j, b, q, k)
			}
			counts[[2]int{q, k}]++
		}
		pairs := 0.0
		for rank := range ranks {
			for _, st := range s.steps(rank) {
				row := func(l *launch, i, j int) (int, int) {
					return whole(s.queries.spans[rank], l.queries.Begin+i), whole(s.keys.spans[st.owner], l.keys.Begin+j)
				}
				for _, l := range st.launches {
					pairs += l.pairs
					if l.packed {
						starts := of.startsOf(&l)
						for b := range p.Batch {
							qs, ks := starts[b:b+2], starts[p.Batch+1+b:p.Batch+3+b]
							nq, nk := min(int(qs[1]-qs[0]), p.QueryLen), min(int(ks[1]-ks[0]), p.KeyLen)
							if queryLens != nil {
								nq = min(nq, int(queryLens[b]))
							}
							if keyLens != nil {
								nk = min(nk, int(keyLens[b]))
							}
							if nq <= 0 || nk <= 0 {
								continue
							}
							m := attn.Problem{QueryLen: nq, KeyLen: nk, ByPosition: within.ByPosition(p)}.Mask()
							for i := range nq {
								for j := m.KeysOf(i).Begin; j < m.KeysOf(i).End; j++ {
									q, k := row(&l, int(qs[0])+i, int(ks[0])+j)
									count(q, k, b, i, j)
								}
							}
						}
						continue
					}
					one, err := l.problem.Normalize()
					require.NoError(t, err)
					require.Equal(t, one.KeyLen, l.pad+l.keys.Len())
					if byBits(&p) {
						require.Zero(t, l.scores.key%8, "a part of a mask begins where a byte does")
					}
					m := attn.Problem{QueryLen: one.QueryLen, KeyLen: one.KeyLen, ByPosition: within.ByPosition(one),
						Within: attn.Within(one.Within)}.Mask()
					for i := range one.QueryLen {
						for j := max(m.KeysOf(i).Begin, l.pad); j < m.KeysOf(i).End; j++ {
							q, k := row(&l, i, j-l.pad)
							if !s.positional { // where only the distance matters
								counts[[2]int{q, k}]++
								continue
							}
							count(q, k, one.Within.Batch, one.Within.Query+i, one.Within.Key+j)
						}
					}
				}
			}
		}
		want := 0
		for b := range p.Batch {
			q, k := of.usedQueries(b), of.usedKeys(b)
			if q.Len() == 0 || k.Len() == 0 {
				continue
			}
			m := of.mask(&p, b)
			for i := range q.Len() {
				for j := m.KeysOf(i).Begin; j < m.KeysOf(i).End; j++ {
					want++
					if n := counts[[2]int{q.Begin + i, k.Begin + j}]; n != 1 {
						t.Fatalf("query %d and key %d of sequence %d are computed %d times: %v, %v and %v, %d ranks", i, j, b, n, p,
							of.queries, of.keys, ranks)
					}
				}
			}
		}
		require.Len(t, counts, want, "no other pair")
		require.Equal(t, s.pairs(), pairs)
	}
}

// passesOn runs both passes on ranks, one after the other for several starts, and gives o, lse, dq, dk and dv of all rows.
func passesOn(t *testing.T, devices []*flash.Device, s *sample, shard Shard, of []sequencesOf, accumulate bool) (out []results) {
	t.Helper()
	for range of {
		out = append(out, newResults(&s.problem, len(devices)))
	}
	comms, err := Local(len(devices))
	require.NoError(t, err)
	ctx := soon(t)
	require.NoError(t, errors.Join(each(comms, func(rank int, c Comm) error {
		r, err := New(c, devices[rank])
		if err != nil {
			return err
		}
		plan, err := r.Plan(ctx, s.problem, shard)
		if err != nil {
			return err
		}
		defer plan.Close()
		for i := range of {
			one := *s
			one.sequencesOf = of[i]
			if err := one.once(ctx, devices[rank], plan, &out[i], accumulate); err != nil {
				return err
			}
		}
		return nil
	})...))
	return out
}

// TestPackedLikeOneDevice: whatever starts say, and from pass to pass, ranks give what one device gives; rows of no sequence stay as they
// are.
func TestPackedLikeOneDevice(t *testing.T) {
	p := flash.Problem{Batch: 5, Heads: 2, QueryLen: 60, KeyLen: 70, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		Sinks:  true,
		Packed: flash.Packed{Queries: 180, Keys: 190}, QueryLengths: true, KeyLengths: true}
	whole := []int32{1000, 1000, 1000, 1000, 1000}
	starts := []sequencesOf{
		// longer than there can be, backwards, outside
		{[]int32{3, 90, 80, 95, 150, 400}, []int32{5, 100, 100, 101, 185, 188}, whole, whole},
		{[]int32{0, 0, 0, 0, 0, 0}, []int32{0, 10, 20, 30, 40, 190}, whole, whole}, // no queries
		{[]int32{0, 40, 80, 120, 160, 180}, []int32{0, 40, 80, 120, 160, 180}, []int32{40, 7, -5, 0, 20}, []int32{0, 31, 40, 12, 1 << 30}},
		{[]int32{-7, 50, 110, 110, 170, 175}, []int32{0, 0, 60, 61, 130, 190}, []int32{33, 50, 9, 59, 2}, []int32{3, 44, -1 << 31, 69, 17}},
	}
	n, err := p.Normalize()
	require.NoError(t, err)
	s := newInputs(rand.New(rand.NewPCG(3, 9)), n)
	for _, shard := range []Shard{{}, {Over: Heads}} {
		for _, accumulate := range []bool{false, true} {
			if shard.Over == Heads && accumulate {
				continue
			}
			one := passesOn(t, sharedDevices(t, 1), s, shard, starts, accumulate)
			ranks := passesOn(t, sharedDevices(t, 2+int(shard.Over)%2), s, shard, starts, accumulate)
			for i := range starts {
				for name, x := range map[string][2][]float64{"o": {one[i].o.Data, ranks[i].o.Data},
					"lse": {one[i].lse.Data, ranks[i].lse.Data}, "dq": {one[i].dq.Data, ranks[i].dq.Data},
					"dk": {one[i].dk.Data, ranks[i].dk.Data}, "dv": {one[i].dv.Data, ranks[i].dv.Data}} {
					near(t, x[1], x[0], "%v, %v: %s", shard, starts[i], name)
				}
				require.InDeltaSlice(t, one[i].dsinks[0], ranks[i].dsinks[1], 4e-3)
			}
		}
	}
}

// TestPackedBlocksOverHeads: over heads, where no sequence is cut, packed sequences have block masks.
func TestPackedBlocksOverHeads(t *testing.T) {
	p, err := flash.Problem{Batch: 3, Heads: 2, QueryLen: 60, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		Packed: flash.Packed{Queries: 110, Keys: 110}, Blocks: flash.Blocks{Queries: 16, Keys: 16, PerHead: true}}.Normalize()
	require.NoError(t, err)
	s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
	starts := []sequencesOf{{queryStarts: []int32{0, 50, 51, 110}, keyStarts: []int32{0, 50, 51, 110}}}
	one := passesOn(t, sharedDevices(t, 1), s, Shard{}, starts, false)[0]
	ranks := passesOn(t, sharedDevices(t, 2), s, Shard{Over: Heads}, starts, false)[0]
	near(t, ranks.o.Data, one.o.Data, "o")
	near(t, ranks.dq.Data, one.dq.Data, "dq")
	near(t, ranks.dk.Data, one.dk.Data, "dk")
}

// near compares what ranks give with what one device gives, which may have been added to what there was.
func near(t *testing.T, got, want []float64, what string, a ...any) {
	t.Helper()
	for i := range want {
		bound := 1e-4
		if math.Abs(want[i]) > poison/2 {
			bound = 4e-3
		}
		if got[i] != want[i] && !(math.Abs(got[i]-want[i]) < bound) {
			t.Fatalf("%s[%d] is %g, and %g on one device", fmt.Sprintf(what, a...), i, got[i], want[i])
		}
	}
}

// TestBiasAccumulate: gradients with respect to a bias, to sinks and to captured tensors are added to what there is.
func TestBiasAccumulate(t *testing.T) {
	bias := func(queries int) flash.PerScore {
		return flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: queries, Keys: 50}
	}
	plain := flash.Problem{Batch: 2, Heads: 2, QueryLen: 50, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight, Sinks: true,
		ScoreFunction: relative(2)}
	for _, queries := range []int{50, 1, -50} { // packed
		if queries != 1 && testing.Short() {
			continue
		}
		p, none := plain, []sequencesOf{{}}
		if p.Bias = bias(queries); queries < 0 {
			p.Bias, p.Packed, none = bias(-queries), flash.Packed{Queries: 90, Keys: 90},
				[]sequencesOf{{queryStarts: []int32{0, 41, 88}, keyStarts: []int32{0, 41, 88}}}
		}
		p, err := p.Normalize()
		require.NoError(t, err)
		s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
		for _, shard := range []Shard{{}, {Over: Heads}} {
			for heads := range min(2, 1+int(shard.Over)) { // over heads that have a bias each, and that share one
				if heads > 0 {
					p.Bias.Heads = 1
					s = newInputs(rand.New(rand.NewPCG(3, 9)), p)
				}
				one, ranks := passesOn(t, sharedDevices(t, 1), s, shard, none, true)[0],
					passesOn(t, sharedDevices(t, 3-int(shard.Over)/2), s, shard, none, true)[0]
				near(t, ranks.dbias.Data, one.dbias.Data, "dbias of %d queries, %v", queries, shard)
				near(t, ranks.dk.Data, one.dk.Data, "dk")
				for rank, values := range ranks.dsinks {
					require.InDeltaSlice(t, one.dsinks[0], values, 4e-3)
					require.InDeltaSlice(t, one.dcaptured[0][0], ranks.dcaptured[rank][0], 4e-3)
				}
			}
		}
	}
}

// TestEveryRankAsks: gradients with respect to what all queries share are of every rank, or of none.
func TestEveryRankAsks(t *testing.T) {
	_, ranks := rings(t, 2)
	p, err := flash.Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 8, Sinks: true}.Normalize()
	require.NoError(t, err)
	ctx := soon(t)
	for _, err := range each(ranks, func(rank int, r *Ring) error {
		plan, err := r.Plan(ctx, p, Shard{})
		if err != nil {
			return err
		}
		defer plan.Close()
		x, err := newInputs(rand.New(rand.NewPCG(3, 9)), p).place(ctx, r.Device(), plan)
		if err != nil {
			return err
		}
		defer x.close()
		b := flash.Backward{Forward: flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse, Sinks: x.sinks}, DO: x.do, DQ: x.dq,
			DK: x.dk, DV: x.dv}
		if rank == 1 {
			b.DSinks = x.dsinks
		}
		return plan.Backward(ctx, b)
	}) {
		var which *RankError
		require.ErrorAs(t, err, &which)
		require.ErrorContains(t, err, "Backward.DSinks")
	}
}

// TestStartsAgree: ranks that were given different starts, or lengths, say so, and compute nothing.
func TestStartsAgree(t *testing.T) {
	for _, x := range []struct {
		what       string
		first      int // what differs, of rank 0; rank 1 has one more
		keyStarts  func(rank int32) []int32
		keyLengths func(rank int32) []int32
	}{
		{"KeyStarts[1]", 12, func(rank int32) []int32 { return []int32{0, 12 + rank, 30} }, nil},
		{"KeyLengths[1]", 3, func(int32) []int32 { return []int32{0, 11, 30} }, func(rank int32) []int32 { return []int32{7, 3 + rank} }},
	} {
		_, ranks := rings(t, 2)
		p := flash.Problem{Batch: 2, Heads: 1, QueryLen: 20, HeadDim: 8, Packed: flash.Packed{Queries: 30, Keys: 30},
			KeyLengths: x.keyLengths != nil}
		n, err := p.Normalize()
		require.NoError(t, err)
		ctx := soon(t)
		for rank, err := range each(ranks, func(rank int, r *Ring) error {
			plan, err := r.Plan(ctx, p, Shard{})
			if err != nil {
				return err
			}
			defer plan.Close()
			s := newInputs(rand.New(rand.NewPCG(3, 9)), n)
			s.sequencesOf = sequencesOf{queryStarts: []int32{0, 11, 30}, keyStarts: x.keyStarts(int32(rank))}
			if x.keyLengths != nil {
				s.keyLengths = x.keyLengths(int32(rank))
			}
			out := newResults(&n, 2)
			return s.once(ctx, r.Device(), plan, &out, false)
		}) {
			var which *ShardError
			require.ErrorAs(t, err, &which)
			by := which.Rank // its own, or the other's, where that failed while this one was still waiting for it
			var failed *RankError
			require.Equal(t, by != rank, errors.As(err, &failed), err)
			require.Equal(t, Difference{Rank: 1 - by, What: x.what, Mine: fmt.Sprint(x.first + by),
				Their: fmt.Sprint(x.first + 1 - by)}, which.Differences[0])
		}
	}
}

// TestWhatCannotBeSpread is found when planning, by every rank.
func TestWhatCannotBeSpread(t *testing.T) {
	for name, c := range map[string]struct {
		p        flash.Problem
		shard    Shard
		argument string
	}{
		"packed queries alone": {flash.Problem{Batch: 2, Heads: 2, QueryLen: 20, HeadDim: 8, Packed: flash.Packed{Queries: 30}}, Shard{},
			"Problem.Packed.Keys"},
		"few packed rows": {flash.Problem{Batch: 2, Heads: 2, QueryLen: 20, HeadDim: 8,
			Packed: flash.Packed{Queries: 3, Keys: 30}}, Shard{Order: Zigzag}, "Problem.Packed.Queries"},
		"bits that begin inside": {flash.Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 8,
			Mask: flash.PerScore{DType: flash.Bit, Batch: 1, Heads: 1, Queries: 1, Keys: 20}}, Shard{}, "Problem.Mask"},
	} {
		_, ranks := rings(t, 2)
		for _, err := range each(ranks, func(_ int, r *Ring) error {
			_, err := r.Plan(context.Background(), c.p, c.shard)
			return err
		}) {
			var bad *flash.ArgumentError
			require.ErrorAs(t, err, &bad, name)
			require.Equal(t, c.argument, bad.Argument, name)
		}
	}
}

// TestPackedMoves: of sequences shorter than a rank's rows only neighbours' blocks travel, and a sequence as long as all rows is balanced
// by zigzag order.
func TestPackedMoves(t *testing.T) {
	const rows, ranks = 1 << 14, 8
	p, err := flash.Problem{Batch: rows / 512, Heads: 1, QueryLen: rows, HeadDim: 64, Causal: flash.CausalBottomRight,
		Packed: flash.Packed{Queries: rows, Keys: rows}}.Normalize()
	require.NoError(t, err)
	starts := func(n int) (out []int32) {
		for b := range p.Batch + 1 {
			out = append(out, int32(min(b*n, rows)))
		}
		return out
	}
	for _, c := range []struct {
		length int
		order  Order
		want   string // what the rank with most to do has, of the mean, and how many others' blocks one gets at most: as docs/scale.md says
	}{{480, Zigzag, "1.08 2"}, {480, Plain, "1.10 1"}, {5000, Zigzag, "1.36 6"}, {5000, Plain, "1.55 3"}, {rows, Zigzag, "1.00 7"},
		{rows, Plain, "1.87 7"}} {
		m, err := NewModel(p, Shard{Order: c.order}, ranks)
		require.NoError(t, err)
		m, err = m.Sequences(starts(c.length), starts(c.length))
		require.NoError(t, err)
		sum, largest, most := 0.0, 0.0, 0
		for rank := range ranks {
			own, others := 0.0, 0
			for _, x := range m.Steps(rank) {
				own += x.Pairs
				if x.Received > 0 {
					others++
				}
			}
			sum, largest, most = sum+own, max(largest, own), max(most, others)
		}
		require.Equal(t, c.want, fmt.Sprintf("%.2f %d", largest*ranks/sum, most), "%v, sequences of %d", c.order, c.length)
	}
}

// TestModelLengths: of slots that are used in part the model counts the pairs that are, and blocks that somebody sees.
func TestModelLengths(t *testing.T) {
	p := flash.Problem{Batch: 2, Heads: 3, QueryLen: 256, HeadDim: 8, Packed: flash.Packed{Queries: 512, Keys: 512}, KeyLengths: true}
	m, err := NewModel(p, Shard{}, 4)
	require.NoError(t, err)
	m, err = m.Sequences([]int32{0, 256, 512}, []int32{0, 256, 512})
	require.NoError(t, err)
	some, err := m.Lengths(nil, []int32{100, 200})
	require.NoError(t, err)
	pairs := func(m *Model, rank int) (n, received float64) {
		for _, x := range m.Steps(rank) {
			n += x.Pairs
			received += x.Received
		}
		return n, received
	}
	for rank := range 4 { // of 128 queries each, two ranks a sequence
		n, received := pairs(m, rank)
		require.Equal(t, 128.0*256*3, n)
		require.Positive(t, received)
		used := []float64{100, 200}[rank/2]
		n, received = pairs(some, rank)
		require.Equal(t, 128*used*3, n)
		if rank == 0 { // nobody's keys but its own are used
			require.Zero(t, received)
		}
	}
	for _, bad := range [][2][]int32{{nil, nil}, {{1, 2}, {1, 2}}, {nil, {1, 2, 3}}} {
		_, err := m.Lengths(bad[0], bad[1])
		require.ErrorIs(t, err, flash.ErrArgument)
	}
}

// bytesOf are numbers as a tensor of Int32 has them.
func bytesOf(numbers []int32) (raw []byte) {
	for _, n := range numbers {
		raw = binary.NativeEndian.AppendUint32(raw, uint32(n))
	}
	return raw
}
