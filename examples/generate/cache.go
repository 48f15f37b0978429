package main

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// kvCache keeps the keys and values of sequences on the device, those of all layers. A pass over new tokens of some of the sequences is a begin, and
// then an attend for each layer in order, which adds the tokens' keys and values to what is there and attends over all of it.
type kvCache interface {
	attention
	// add begins an empty sequence and gives its number. Where there is no room for another it is an error.
	add() (int, error)
	// remove forgets a sequence; its number may come again.
	remove(sequence int)
	// begin says which tokens the next pass is over: the next n of each sequence named, in that order.
	begin(ctx context.Context, batch []part) error
	close() error
}

// part is n new tokens of a sequence.
type part struct{ sequence, n int }

// slots is a kvCache with as many slots as sequences may run at once, each with room for the longest one. That is simple, and wasteful: memory is
// taken for what sequences may become, not for what they are.
type slots struct {
	config
	owned
	room         int // tokens of a sequence
	lengths      []int
	used         []bool
	keys, values []*flash.Tensor // of each layer, [slots, keyHeads, room, dim]
	decode       *lane           // for one new token in each sequence
	prefill      *lane           // for up to chunk
	now          *lane           // of the pass that began latest
	batch        []part
	host         []float32
}

// chunk is how many tokens of a prompt are taken in at once.
const chunk = 32

// lane is plans and tensors for passes of up to rows tokens a slot. Two of them serve everything: how long each sequence is, and how many tokens are
// new, are numbers in device memory, so that no plan is made while text is generated.
type lane struct {
	rows              int
	qkv               packed
	out, o            *flash.Tensor
	at, keys, queries *flash.Tensor // lengths before the pass, lengths after it, new tokens
	positions         *flash.Tensor
	plans             []*flash.Plan // of each layer
	appending, turn   *flash.RowPlan
}

func newSlots(dev *flash.Device, c config, t flash.DType, n, room int) (s *slots, err error) {
	s = &slots{config: c, room: room, lengths: make([]int, n), used: make([]bool, n)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for range c.layers {
		for _, to := range []*[]*flash.Tensor{&s.keys, &s.values} {
			x, err := dev.NewTensor(t, n, c.keyHeads, room, c.dim)
			if err != nil {
				return s, err
			}
			s.owned, *to = append(s.owned, x), append(*to, x)
		}
	}
	if s.decode, err = s.newLane(dev, t, 1); err != nil {
		return s, err
	}
	s.prefill, err = s.newLane(dev, t, chunk)
	return s, err
}

func (s *slots) newLane(dev *flash.Device, t flash.DType, rows int) (l *lane, err error) {
	l = &lane{rows: rows}
	n := len(s.lengths)
	if l.qkv, err = s.packed(dev, t, s.config, n, rows); err != nil {
		return l, err
	}
	if l.out, err = s.rows(dev, t, n, rows, s.heads*s.dim); err != nil {
		return l, err
	}
	if l.o, err = headsOf(l.out, 0, s.heads, s.dim); err != nil {
		return l, err
	}
	for _, x := range []struct {
		to   **flash.Tensor
		a, b int
	}{{&l.at, 1, n}, {&l.keys, 1, n}, {&l.queries, 1, n}, {&l.positions, n, rows}} {
		if *x.to, err = s.ints(dev, x.a, x.b); err != nil {
			return l, err
		}
	}
	shared := map[flash.Window]*flash.Plan{}
	for i := range s.layers {
		w := s.windowOf(i)
		if shared[w] == nil {
			shared[w], err = s.plan(dev, flash.Problem{Batch: n, Heads: s.heads, KeyHeads: s.keyHeads, QueryLen: rows, KeyLen: s.room, HeadDim: s.dim, DType: t,
				Causal: flash.CausalBottomRight, Window: w, KeyLengths: true, QueryLengths: true})
			if err != nil {
				return l, err
			}
		}
		l.plans = append(l.plans, shared[w])
	}
	// Keys are turned by their positions on their way into the cache: once, not whenever they are read.
	if l.appending, err = dev.PlanAppend(flash.AppendProblem{Batch: n, KeyHeads: s.keyHeads, Rows: rows, CacheRows: s.room, HeadDim: s.dim, DType: t,
		Rotary: &flash.Rotary{}}); err != nil {
		return l, err
	}
	s.owned = append(s.owned, l.appending)
	l.turn, err = s.rotation(dev, flash.RotateProblem{Batch: n, Heads: s.heads, Rows: rows, HeadDim: s.dim, DType: t,
		Rotary: flash.Rotary{Positions: true}})
	return l, err
}

func (s *slots) add() (int, error) {
	for i, used := range s.used {
		if !used {
			s.used[i], s.lengths[i] = true, 0
			return i, nil
		}
	}
	return 0, fmt.Errorf("all of the %d slots are in use", len(s.used))
}

func (s *slots) remove(sequence int) { s.used[sequence] = false }

func (s *slots) begin(ctx context.Context, batch []part) error {
	s.now, s.batch = s.decode, batch
	for _, p := range batch {
		switch {
		case !s.used[p.sequence]:
			return fmt.Errorf("there is no sequence %d", p.sequence)
		case s.lengths[p.sequence]+p.n > s.room:
			return fmt.Errorf("sequence %d would have %d tokens, and there is room for %d", p.sequence, s.lengths[p.sequence]+p.n, s.room)
		case p.n > chunk:
			return fmt.Errorf("%d tokens of sequence %d at once: at most %d", p.n, p.sequence, chunk)
		case p.n > 1:
			s.now = s.prefill // a pass of one token in each is the other kind, a prompt's last one too
		}
	}
	l, n := s.now, len(s.lengths)
	at, keys, queries, positions := make([]int, n), make([]int, n), make([]int, n), make([]int, n*l.rows)
	for i := range at {
		at[i] = s.room // slots that have no part in this pass: what would be written behind their end is not
	}
	for _, p := range batch {
		from := s.lengths[p.sequence]
		s.lengths[p.sequence] += p.n
		// Rows past the new tokens, of a sequence that has fewer than the lane takes, are written too. The next pass writes over them.
		at[p.sequence], keys[p.sequence], queries[p.sequence] = from, from+p.n, p.n
		for i := range p.n {
			positions[p.sequence*l.rows+i] = from + i
		}
	}
	for _, x := range []struct {
		to     *flash.Tensor
		values []int
	}{{l.at, at}, {l.keys, keys}, {l.queries, queries}, {l.positions, positions}} {
		if err := upload(ctx, x.to, x.values); err != nil {
			return err
		}
	}
	return nil
}

func (s *slots) attend(ctx context.Context, layer int, qkv, o []float32) error {
	l := s.now
	if err := l.qkv.all.Upload(ctx, s.spread(qkv, s.columns())); err != nil {
		return err
	}
	if err := l.turn.Rotate(ctx, flash.Rotation{X: l.qkv.q, Positions: l.positions}); err != nil {
		return err
	}
	if err := l.appending.Append(ctx, flash.Append{K: l.qkv.k, V: l.qkv.v, KeyCache: s.keys[layer], ValueCache: s.values[layer], At: l.at}); err != nil {
		return err
	}
	if err := l.plans[layer].Forward(ctx, flash.Forward{Q: l.qkv.q, K: s.keys[layer], V: s.values[layer], O: l.o,
		KeyLengths: l.keys, QueryLengths: l.queries}); err != nil {
		return err
	}
	cols := s.heads * s.dim
	s.host = append(s.host[:0], make([]float32, len(s.lengths)*l.rows*cols)...)
	if err := l.out.Download(ctx, s.host); err != nil {
		return err
	}
	for _, p := range s.batch {
		from := s.host[p.sequence*l.rows*cols:]
		copy(o[:p.n*cols], from)
		o = o[p.n*cols:]
	}
	return nil
}

// spread puts the rows of the sequences, which lie one after the other, into the slots' places.
func (s *slots) spread(rows []float32, cols int) []float32 {
	s.host = append(s.host[:0], make([]float32, len(s.lengths)*s.now.rows*cols)...)
	for _, p := range s.batch {
		copy(s.host[p.sequence*s.now.rows*cols:], rows[:p.n*cols])
		rows = rows[p.n*cols:]
	}
	return s.host
}
