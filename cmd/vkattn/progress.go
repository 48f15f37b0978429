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
	width    int // of the terminal
	bar      *progressbar.ProgressBar

	began, told time.Time
	now         func() time.Time
}

func newBar(stderr io.Writer, quiet bool) *bar {
	b := &bar{terminal: onTerminal(stderr), width: widthOf(stderr), now: time.Now}
	if !quiet {
		b.w = stderr
	}
	return b
}

func (f *benchFlags) bar(stderr io.Writer) *bar { return newBar(stderr, f.quiet) }

// Of a line of a bar, besides its description and the bar itself: " 100% ||", the count " (1234/1234)", and the times " [12m34s:1h23m]".
const besideBar = 8 + 12 + 16

// layout shares a line of a terminal out between what is measured and the bar, so that the line never breaks: a line that does is not
// drawn over, and fills the screen with rubble.
func (b *bar) layout() (description, length int) {
	width := b.width
	if width == 0 {
		width = 80
	}
	length = min(max((width-besideBar)/3, 4), 24)
	return min(max(width-besideBar-length-1, 0), 48), length
}

// describe is what is measured, as long as there is room for.
func (b *bar) describe(what string) string {
	room, _ := b.layout()
	if r := []rune(what); len(r) > room {
		if room == 0 {
			return ""
		}
		return string(r[:room-1]) + "…"
	}
	return fmt.Sprintf("%-*s", room, what)
}

// step says that measurement step of total begins, or goes on with what.
func (b *bar) step(step, total int, what string) {
	switch {
	case b.w == nil:
	case b.terminal:
		if b.bar == nil {
			_, length := b.layout()
			b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(b.w), progressbar.OptionClearOnFinish(),
				progressbar.OptionShowCount(), progressbar.OptionSetWidth(length), progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(50*time.Millisecond))
		}
		b.bar.Describe(b.describe(what))
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
