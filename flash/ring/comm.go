package ring

import (
	"context"
	"errors"
	"fmt"
)

// Comm connects the ranks of a group: 0 to Size()−1, each with a Comm of its own. It moves bytes of host memory and knows nothing of
// attention.
//
// Calls may come from several goroutines of a rank. Send and Receive meet by the pair of ranks and the tag: messages of one pair and tag
// arrive in the order sent, those of other tags pass them. AllGather and Barrier are called by every rank, in the same order, by one
// goroutine of each at a time.
//
// No call outlasts its context. Once a rank has failed, whether it said so by Abort, closed its Comm while others still wait for it, or
// vanished, every call of every rank, under way or later, returns an error that is [ErrRank], a [*RankError] where it is known which rank
// and why. A call that ran into the end of its context returns the context's error; the caller is expected to Abort then, for the ranks no
// longer agree on what was said.
type Comm interface {
	Rank() int // of the caller, from 0
	Size() int // number of ranks
	// Send gives data to a rank that receives it, and returns when data may be changed: the receiver may not have it yet. It may also wait
	// until that rank calls Receive.
	Send(ctx context.Context, to int, tag Tag, data []byte) error
	// Receive fills data with a message of another rank, which must be as long.
	Receive(ctx context.Context, from int, tag Tag, data []byte) error
	// AllGather gives every rank what each of them has, by rank; lengths may differ.
	AllGather(ctx context.Context, mine []byte) ([][]byte, error)
	// Barrier returns when every rank has called it.
	Barrier(ctx context.Context) error
	// Abort makes every call of every rank fail. The first cause counts. It does not wait.
	Abort(cause error)
	// Close leaves the group. Nobody may be waiting for this rank any more.
	Close() error
}

// Tag tells the messages between two ranks apart. It is from 0 to MaxTag.
type Tag int

// MaxTag is the largest tag: what every MPI library promises.
const MaxTag Tag = 32767

var (
	// ErrRank marks errors that come of another rank: it failed, or is gone. The error is a *RankError where it is known which.
	ErrRank = errors.New("ring: a rank failed")
	// ErrShards marks errors of ranks that do not agree on what they compute: a *ShardError.
	ErrShards = errors.New("ring: ranks disagree")
)

// RankError says which rank failed, and why.
type RankError struct {
	Rank int
	Err  error // of that rank; only its text where it comes from another process
}

// Error says which rank failed, and why.
func (e *RankError) Error() string { return fmt.Sprintf("ring: rank %d failed: %v", e.Rank, e.Err) }

// Unwrap makes the error ErrRank and what the rank failed with.
func (e *RankError) Unwrap() []error { return []error{ErrRank, e.Err} }

// checkMessage says what is wrong with the arguments of Send or Receive.
func checkMessage(c Comm, call string, other int, tag Tag) error {
	switch {
	case other < 0 || other >= c.Size() || other == c.Rank():
		return badArgument(call+": rank", other, "must be another of the %d ranks than %d", c.Size(), c.Rank())
	case tag < 0 || tag > MaxTag:
		return badArgument(call+": tag", tag, "must be from 0 to %d", MaxTag)
	}
	return nil
}
