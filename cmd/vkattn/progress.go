package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// lineEvery is the time between two lines of progress where there is no terminal.
const lineEvery = 10 * time.Second

// bar shows progress: a bar on a terminal, a line now and then elsewhere, so that a log tells how far a long sweep is.
type bar struct {
	w        io.Writer // nil: quiet
	terminal bool
	bar      *progressbar.ProgressBar

	began, told time.Time
	now         func() time.Time
}

func (f *benchFlags) bar(stderr io.Writer) *bar {
	b := &bar{terminal: onTerminal(stderr), now: time.Now}
	if !f.quiet {
		b.w = stderr
	}
	return b
}

// step says that measurement step of total begins, or goes on with what.
func (b *bar) step(step, total int, what string) {
	switch {
	case b.w == nil:
	case b.terminal:
		if b.bar == nil {
			b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(b.w), progressbar.OptionClearOnFinish(),
				progressbar.OptionShowCount(), progressbar.OptionSetWidth(24), progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(50*time.Millisecond))
		}
		b.bar.Describe(fmt.Sprintf("%-44s", what))
		_ = b.bar.Set(step - 1)
	default:
		b.line(step, total, what)
	}
}

func (b *bar) line(step, total int, what string) {
	now := b.now()
	if b.began.IsZero() {
		b.began, b.told = now, now
	}
	if now.Sub(b.told) < lineEvery {
		return
	}
	b.told = now
	spent := now.Sub(b.began)
	text := fmt.Sprintf("%d of %d after %v", step-1, total, spent.Round(time.Second))
	if done := step - 1; done > 0 {
		left := time.Duration(float64(spent) / float64(done) * float64(total-done))
		text += fmt.Sprintf(", about %v to go", left.Round(time.Second))
	}
	fmt.Fprintf(b.w, "%s: %s\n", text, what)
}

func (b *bar) done() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
