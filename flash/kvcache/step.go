package kvcache

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Request asks for room for new tokens of a sequence. The zero value leaves a row without a sequence.
type Request struct {
	Sequence Sequence
	Tokens   int // from 0 to the tokens of the batch
}

// Step makes room for the new tokens of requests[i], whose row is i, and writes what the device has to know of it: lengths, entries of
// tables that changed since the row's last step, and pages to copy. Rows without a request have no sequence. All get room or none does:
// after any error sequences are as they were, and the latest step with them. It allocates nothing.
//
// The error is an [*OutOfPagesError], matches [ErrUnknownSequence], or is an [*flash.ArgumentError]: too many requests or tokens, a length
// beyond MaxLength, a sequence that two requests name, or a step of the cache that was not submitted. It is [flash.ErrInFlight] as long as
// the device is not done with the batch's step before the last: where that was submitted is waited for by Wait, or by waiting for anything
// submitted later.
func (b *Batch) Step(requests []Request) (err error) {
	defer within.During("Batch.Step", &err)
	if err := b.lock(); err != nil {
		return err
	}
	c := b.cache
	defer c.mu.Unlock()
	if len(requests) > b.rows {
		return badArgument("len(requests)", len(requests), "must be at most %d, the rows of the batch", b.rows)
	}
	for i := range requests {
		r := &requests[i]
		if r.Tokens < 0 || r.Tokens > b.tokens {
			return badArgument(fmt.Sprintf("requests[%d].Tokens", i), r.Tokens, "must be from 0 to %d, the tokens of the batch", b.tokens)
		}
		b.requests[i].Sequence, b.requests[i].Tokens = r.Sequence, r.Tokens
	}
	clear(b.requests[len(requests):])
	if c.staged != nil {
		return badArgument("Cache", "with a step that was not submitted", "needs Submit, or Record, before the next step")
	}
	next := (b.now + 1) % len(b.slots)
	idle, err := within.Idle(b.slots[next].Recording)
	if err != nil {
		return err
	}
	if !idle {
		return flash.ErrInFlight
	}
	if err := c.pages.Append(b.requests, &b.step); err != nil {
		return within.Public(err)
	}
	if err := b.write(&b.slots[next]); err != nil { // the device was closed or lost, and the sequences with it
		return within.Fail(c.dev, err)
	}
	b.now, b.stepped = next, true
	if !b.foreign {
		c.staged = b
	}
	if err := b.flush(); b.foreign { // else Submit tries again
		return err
	}
	return nil
}

// write writes the step to memory.
func (b *Batch) write(s *stepSlot) error {
	return s.staging.Write(func(bytes []byte) {
		w := b.program.Write(bytes)
		for _, c := range b.step.Copies {
			w.Copy(c.From, c.To)
		}
		for i := range b.requests {
			b.writeRow(&w, i)
		}
		b.written = w.End()
	})
}

// flush makes what was written visible to the device. It fails where the host has no memory for that, and can be tried again.
func (b *Batch) flush() error {
	if b.written == 0 {
		return nil
	}
	err := b.slots[b.now].staging.Flush(0, b.written)
	if err == nil {
		b.written = 0
	}
	return within.Fail(b.cache.dev, err)
}

// writeRow writes the edits of a row.
func (b *Batch) writeRow(w *kernel.StepWriter, i int) {
	r, p, known := &b.requests[i], &b.step.Placed[i], &b.known[i]
	w.Edit(b.lengthsAt+i, int32(p.First+r.Tokens))
	w.Edit(b.atAt+i, int32(p.First))
	w.Edit(b.queriesAt+i, int32(r.Tokens))
	if r.Sequence == (Sequence{}) { // what the device knows of the row's last one stays true
		return
	}
	c := b.cache
	first, _ := c.pages.First(r.Sequence) // there is the sequence: it has just been appended to
	version := &c.versions[r.Sequence.Slot()]
	before := *version
	if p.Changed.Len() > 0 {
		*version++
	}
	size := c.options.Page
	if known.sequence == r.Sequence && known.version == before {
		// Entries of pages that were dropped have to go before the pages are written again, for rows that no query sees may be read.
		b.writeEntries(w, i, attn.Span{Begin: known.first / size, End: first / size})
		b.writeEntries(w, i, p.Changed)
	} else {
		b.writeEntries(w, i, attn.Span{End: attn.CeilDiv(p.First+r.Tokens, size)})
	}
	*known = rowState{r.Sequence, *version, first}
}

// writeEntries writes entries of the table of a row's sequence.
func (b *Batch) writeEntries(w *kernel.StepWriter, row int, of attn.Span) {
	if of.Len() <= 0 {
		return
	}
	entries := b.entries[:of.Len()]
	if b.cache.pages.Entries(entries, b.requests[row].Sequence, of) != nil {
		return // not possible: the span is within the table of a sequence that there is
	}
	for j, page := range entries {
		w.Edit(row*b.width+of.Begin+j, page)
	}
}

// lock says why nothing can be done with the batch, or locks its cache.
func (b *Batch) lock() error {
	if err := b.made(); err != nil {
		return err
	}
	if err := b.cache.lock(); err != nil {
		return err
	}
	if b.closed {
		b.cache.mu.Unlock()
		return fmt.Errorf("%w: Batch", flash.ErrClosed)
	}
	return nil
}

// Submit brings the latest step to the device: what is submitted after it sees the batch's tensors as the step left them. It returns
// without waiting. The commands are the same ones for every step.
func (b *Batch) Submit() (err error) {
	defer within.During("Batch.Submit", &err)
	if err := b.lock(); err != nil {
		return err
	}
	c := b.cache
	defer c.mu.Unlock()
	if c.staged != b {
		return badArgument("Batch", "without a step that was not submitted", "needs Step first")
	}
	if err := b.flush(); err != nil {
		return err
	}
	if _, err := b.slots[b.now].Submit(); err != nil {
		return err
	}
	c.staged = nil
	return nil
}

// Record writes the commands of Submit into a command buffer of the caller's, as [flash.Recording.Record] does. Steps have memory in turn,
// of which there are two: commands that were written after a step serve every second one from there on, so that a program can keep two
// command buffers and execute them in turn. From then on it is the caller's to execute the commands of each step once, in order, and to
// wait for those of the step before the last before a step is made; an error of the driver that Step gives then, where the host has no
// memory, leaves the step made and the device without it.
func (b *Batch) Record(cmd uintptr) (err error) {
	defer within.During("Batch.Record", &err)
	if err := b.lock(); err != nil {
		return err
	}
	c := b.cache
	defer c.mu.Unlock()
	if !b.stepped { // or its commands would read memory that nobody has written
		return badArgument("Batch", "without a step", "needs Step first")
	}
	if err := b.flush(); err != nil {
		return err
	}
	if err := b.slots[b.now].Record(cmd); err != nil {
		return err
	}
	if b.foreign = true; c.staged == b {
		c.staged = nil
	}
	return nil
}

// Wait waits for what Submit has submitted. A cancelled context makes it return the context's error, but not before the device has finished
// with the memory. Without a submission it returns at once.
func (b *Batch) Wait(ctx context.Context) (err error) {
	defer within.During("Batch.Wait", &err)
	if err := b.made(); err != nil {
		return err
	}
	for i := range b.slots {
		if e := within.Wait(b.slots[i].Recording, ctx); err == nil {
			err = e
		}
	}
	return err
}
