package pipeline

import (
	"context"
	"fmt"
	"sync"

	"github.com/vkattn/vkattn/vk"
)

// stagingRing is a pair of host-visible buffers: while the device copies one, the host copies the other.
type stagingRing struct {
	ctx   *Context
	kind  vk.MemoryKind
	label string
	// sync makes what the host wrote visible to the device, or the other way round, where memory is not coherent.
	sync func(b *vk.Buffer, offset, size uint64) error

	mu    sync.Mutex // one transfer at a time
	slots [2]stagingSlot
}

type stagingSlot struct {
	ring *stagingRing
	buf  *Buffer
	rec  *Recording
	host []byte   // what a download still has to deliver; nil when idle
	busy *Pending // what it does, or did when its wait failed
}

// ready makes the ring's buffers at first use, large enough for transfers of n bytes in chunks.
func (s *stagingRing) ready(n uint64) error {
	n = min(s.ctx.options.StagingBytes, max(n, 64<<10))
	for i := range s.slots {
		slot := &s.slots[i]
		slot.ring = s
		if slot.rec == nil {
			var err error
			if slot.rec, err = s.ctx.NewRecording(RecordingInfo{MaxDispatches: 1}); err != nil {
				return err
			}
		}
		if slot.buf == nil || slot.buf.Size() < n {
			slot.buf.Close()
			slot.buf = nil
			b, err := s.ctx.Alloc(s.label, n, s.kind)
			if err != nil {
				return err
			}
			slot.buf = b
		}
	}
	return nil
}

// settle waits for a slot's copy and delivers what it downloaded. Where it cannot wait, the slot stays busy: the next transfer waits again,
// and delivers nothing, for its memory is the caller's once the call has failed.
func (s *stagingSlot) settle() error {
	if s.busy == nil {
		return nil
	}
	err := s.busy.wait()
	host := s.host
	s.host = nil
	if err != nil && s.busy.InFlight() {
		return err
	}
	s.busy = nil
	if err != nil || host == nil {
		return err
	}
	if err := s.ring.sync(s.buf.Buffer, 0, uint64(len(host))); err != nil {
		return err
	}
	copy(host, s.buf.Mapped())
	return nil
}

// transfer moves all chunks of data to or from the binding, start doing one of them.
func (s *stagingRing) transfer(ctx context.Context, call string, b Binding, data []byte,
	start func(slot *stagingSlot, part Binding, host []byte) error) (err error) {
	if err := s.ctx.usable(); err != nil {
		return err
	}
	if name, value, rule := s.ctx.check(&b, 1); rule != "" {
		return argErr(call, name, value, rule)
	}
	if uint64(len(data)) != b.Size {
		return argErr(call, "len(data)", len(data), fmt.Sprintf("it must be the binding's size, %d bytes", b.Size))
	}
	if s.kind == vk.Upload && s.ctx.options.CompileOnly { // nothing will read it
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots { // of a transfer before this one whose wait failed
		if err := s.slots[i].settle(); err != nil {
			return err
		}
	}
	if err := s.ready(b.Size); err != nil {
		return err
	}
	defer func() { // whatever happened, nothing stays in flight
		for i := range s.slots {
			if e := s.slots[i].settle(); err == nil {
				err = e
			}
		}
	}()
	for i, at := 0, uint64(0); at < b.Size; i++ {
		if ctx != nil && ctx.Err() != nil {
			return fmt.Errorf("pipeline: %s: %w", call, context.Cause(ctx))
		}
		slot := &s.slots[i%len(s.slots)]
		if err := slot.settle(); err != nil {
			return err
		}
		n := min(b.Size-at, slot.buf.Size())
		if err := slot.rec.Reset(); err != nil {
			return err
		}
		if err := start(slot, Binding{Buffer: b.Buffer, Offset: b.Offset + at, Size: n}, data[at:at+n]); err != nil {
			return err
		}
		if slot.busy, err = s.ctx.Submit(slot.rec); err != nil {
			slot.busy, slot.host = nil, nil
			return err
		}
		at += n
	}
	return nil
}

func (s *stagingRing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots {
		slot := &s.slots[i]
		slot.rec.Close()
		if !slot.busy.InFlight() { // else Context.Close frees the buffer, after waiting for the device
			slot.buf.Close()
		}
		*slot = stagingSlot{}
	}
}

// Upload copies data, as long as the binding, into it and returns when it is there: everything submitted later sees it.
// Earlier submissions of the queue that compute or transfer are waited for by the device. When ctx is cancelled, the rest of
// the data is left out and the context's error returned, with nothing left in flight.
func (c *Context) Upload(ctx context.Context, b Binding, data []byte) error {
	if c == nil || c.dev == nil {
		return ErrClosed
	}
	return c.upload.transfer(ctx, "Upload", b, data, func(slot *stagingSlot, part Binding, host []byte) error {
		copy(slot.buf.Mapped(), host)
		if err := c.upload.sync(slot.buf.Buffer, 0, part.Size); err != nil {
			return err
		}
		staged := slot.buf.Range(0, part.Size)
		if err := slot.rec.Prior(staged, Untouched); err != nil {
			return err
		}
		return slot.rec.Copy(part, staged, c.upload.label)
	})
}

// Download copies the binding into data, which must be as long, after earlier submissions of the queue that compute or
// transfer have finished. When ctx is cancelled, the rest of data is left as it was and the context's error returned.
func (c *Context) Download(ctx context.Context, b Binding, data []byte) error {
	if c == nil || c.dev == nil {
		return ErrClosed
	}
	return c.down.transfer(ctx, "Download", b, data, func(slot *stagingSlot, part Binding, host []byte) error {
		slot.host = host
		staged := slot.buf.Range(0, part.Size)
		if err := slot.rec.Prior(staged, Untouched); err != nil {
			return err
		}
		if err := slot.rec.Next(staged, Use{Stages: vk.StageHost, Accesses: vk.AccessHostRead}); err != nil {
			return err
		}
		return slot.rec.Copy(staged, part, c.down.label)
	})
}
