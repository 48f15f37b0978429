//go:build mpi && cgo

package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/flash/ring"
)

// notice is what a rank says of itself, or of one that it has found to be gone, on a communicator of its own. It has a fixed length, so
// that one request waits for whoever says something.
type notice struct {
	kind             byte
	rank             int // that failed
	sent, gatherings int64
	text             string
}

const (
	saysFailed = 1 + iota
	saysLeft

	noticeBytes = 1024
	noticeHead  = 32
)

func (n notice) write(to []byte) {
	clear(to)
	to[0] = n.kind
	binary.LittleEndian.PutUint32(to[4:], uint32(n.rank))
	binary.LittleEndian.PutUint64(to[8:], uint64(n.sent))
	binary.LittleEndian.PutUint64(to[16:], uint64(n.gatherings))
	binary.LittleEndian.PutUint32(to[24:], uint32(copy(to[noticeHead:], n.text)))
}

func readNotice(from []byte) notice {
	return notice{kind: from[0], rank: int(binary.LittleEndian.Uint32(from[4:])), sent: int64(binary.LittleEndian.Uint64(from[8:])),
		gatherings: int64(binary.LittleEndian.Uint64(from[16:])),
		text:       string(from[noticeHead : noticeHead+binary.LittleEndian.Uint32(from[24:])])}
}

// say tells every other rank. It does not wait.
func (c *comm) say(what func(to int) notice) {
	all := func() {
		for to := range c.lib.size {
			if to == c.lib.rank {
				continue
			}
			r := newRequest(noticeBytes, to)
			what(to).write(r.op.bytes())
			r.release()
			c.start(r, func(o op) error { return c.lib.tell(o, to) })
		}
	}
	select {
	case c.calls <- all:
	default: // also when the thread itself says it
		go c.post(all)
	}
}

// listen waits on the thread for the next notice, and for those after it.
func (c *comm) listen() {
	if c.lib.size == 1 {
		return
	}
	r := newRequest(noticeBytes, -1)
	r.then = func(r *request) {
		defer r.op.free()
		if r.err != nil {
			c.broken(r.err)
			return
		}
		n, from := readNotice(r.op.bytes()), r.op.source()
		switch n.kind {
		case saysFailed:
			c.fail(n.rank, errors.New(n.text), false)
		case saysLeft:
			if c.departed(from, n) == c.lib.size-1 { // who has left says no more
				return
			}
		}
		c.listen()
	}
	c.start(r, c.lib.listen)
}

// departed notes that a rank has closed its Comm, and gives how many have.
func (c *comm) departed(rank int, n notice) int {
	d := &c.left[rank]
	d.sent, d.gatherings = n.sent, n.gatherings
	close(d.closed)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone++; c.gone == 1 {
		close(c.someLeft)
	}
	return c.gone
}

// Close tells the others, waits for them to close theirs, and ends MPI.
func (c *comm) Close() error {
	c.closing.Do(func() { c.closeErr = c.depart() })
	return c.closeErr
}

func (c *comm) depart() error {
	c.say(func(to int) notice {
		return notice{kind: saysLeft, sent: c.sent[to].Load(), gatherings: c.gatherings.Load()}
	})
	limit := time.NewTimer(c.leave)
	defer limit.Stop()
	ended := make(chan error, 1)
	defer close(c.closed)
	for i := range c.left {
		if i == c.lib.rank {
			continue
		}
		select {
		case <-c.left[i].closed:
		case <-limit.C:
			return &ring.RankError{Rank: i, Err: fmt.Errorf("it has not closed its Comm in %v, so MPI was not ended", c.leave)}
		}
	}
	c.post(func() {
		c.ended = true
		// What is left is this rank's notices, and after a failure what nobody takes any more.
		for until := time.Now().Add(grace); len(c.active) > 0 && time.Now().Before(until); {
			if !c.test() {
				time.Sleep(shortSleep)
			}
		}
		ended <- c.lib.finalize()
	})
	select {
	case err := <-ended:
		return err
	case <-limit.C:
		return fmt.Errorf("mpi: MPI_Finalize has not returned in %v", c.leave)
	}
}
