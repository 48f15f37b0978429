package ring

import "context"

// subset is some ranks of a communicator, which all of its ranks are spread over in subsets as large: what gathers does so over all of
// them, who call the same in the same order. Tags of subsets that share two ranks differ.
type subset struct {
	of    Comm
	ranks []int // of the whole, in order
	mine  int
	tags  Tag // the first
}

// newSubset is a subset that a rank is in.
func newSubset(of Comm, ranks []int, tags Tag) Comm {
	s := &subset{of: of, ranks: ranks, tags: tags}
	for i, r := range ranks {
		if r == of.Rank() {
			s.mine = i
		}
	}
	if _, shares := of.(Sharer); shares {
		return &sharingSubset{s}
	}
	return s
}

func (s *subset) Rank() int { return s.mine }
func (s *subset) Size() int { return len(s.ranks) }

func (s *subset) Send(ctx context.Context, to int, tag Tag, data []byte) error {
	if err := checkMessage(s, "Send", to, tag); err != nil {
		return err
	}
	return s.of.Send(ctx, s.ranks[to], s.tags+tag, data)
}

func (s *subset) Receive(ctx context.Context, from int, tag Tag, data []byte) error {
	if err := checkMessage(s, "Receive", from, tag); err != nil {
		return err
	}
	return s.of.Receive(ctx, s.ranks[from], s.tags+tag, data)
}

func (s *subset) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	all, err := s.of.AllGather(ctx, mine)
	return some(all, s.ranks), err
}

func (s *subset) Barrier(ctx context.Context) error { return s.of.Barrier(ctx) }
func (s *subset) Abort(cause error)                 { s.of.Abort(cause) }

// Close does nothing: the whole is closed by who opened it.
func (s *subset) Close() error { return nil }

// some are those of some ranks; nil of nil.
func some[T any](all []T, ranks []int) (out []T) {
	for _, r := range ranks {
		if r < len(all) {
			out = append(out, all[r])
		}
	}
	return out
}

// sharingSubset is one of ranks in one process.
type sharingSubset struct{ *subset }

func (s *sharingSubset) Share(ctx context.Context, mine any) ([]any, error) {
	all, err := s.of.(Sharer).Share(ctx, mine)
	return some(all, s.ranks), err
}

// name is the number of a rank in the communicator that the caller has.
func (r *Ring) name(rank int) int {
	switch c := r.comm.(type) {
	case *subset:
		return c.ranks[rank]
	case *sharingSubset:
		return c.ranks[rank]
	}
	return rank
}
