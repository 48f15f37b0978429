package main

import (
	"fmt"
	"io"
	"time"
)

// progress is the last line of a terminal, rewritten as tests run. A nil one shows nothing.
type progress struct {
	out   io.Writer
	width func() int
	last  time.Time
	shown bool
}

var noProgress *progress

const progressEvery = 100 * time.Millisecond

func newProgress(out io.Writer, width func() int) *progress {
	return &progress{out: out, width: width}
}

// show shows a line, cut to the terminal's width, at most ten times a second.
func (p *progress) show(now time.Time, line func() string) {
	if p == nil || now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	text := []rune(line())
	if most := max(p.width()-1, 10); len(text) > most {
		text = append(text[:most-1], '…')
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", string(text))
}

// clear takes the line away.
func (p *progress) clear() {
	if p != nil && p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
		p.last = time.Time{}
	}
}
