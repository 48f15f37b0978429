package ring

import (
	"context"
	"slices"
	"sync"
)

// Transfer is one message between two ranks.
type Transfer struct {
	From, To int
	Tag      Tag
	Bytes    int
}

// Recorder is a communicator that writes down what a rank sends and receives, and passes it on. It is what tests and the model of bytes
// compare with. With one of them all ranks send bytes, and copy from no memory that they share.
type Recorder struct {
	Comm
	mu       sync.Mutex
	sent     []Transfer
	received []Transfer
	gathered int
}

// Record wraps a communicator.
func Record(c Comm) *Recorder { return &Recorder{Comm: c} }

// Send sends, and writes it down.
func (r *Recorder) Send(ctx context.Context, to int, tag Tag, data []byte) error {
	err := r.Comm.Send(ctx, to, tag, data)
	if err == nil {
		r.mu.Lock()
		r.sent = append(r.sent, Transfer{r.Rank(), to, tag, len(data)})
		r.mu.Unlock()
	}
	return err
}

// Receive receives, and writes it down.
func (r *Recorder) Receive(ctx context.Context, from int, tag Tag, data []byte) error {
	err := r.Comm.Receive(ctx, from, tag, data)
	if err == nil {
		r.mu.Lock()
		r.received = append(r.received, Transfer{from, r.Rank(), tag, len(data)})
		r.mu.Unlock()
	}
	return err
}

// AllGather gathers, and adds up the bytes of the others.
func (r *Recorder) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	all, err := r.Comm.AllGather(ctx, mine)
	r.mu.Lock()
	for i, x := range all {
		if i != r.Rank() {
			r.gathered += len(x)
		}
	}
	r.mu.Unlock()
	return all, err
}

// Sent and Received are the messages so far, each in the order in which they were done.
func (r *Recorder) Sent() []Transfer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// Received is what was received so far.
func (r *Recorder) Received() []Transfer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

// Gathered is the bytes that gatherings brought from other ranks.
func (r *Recorder) Gathered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gathered
}

// Reset forgets what was written down.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.received, r.gathered = nil, nil, 0
}
