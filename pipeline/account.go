package pipeline

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/vkattn/vkattn/internal/tally"
)

// compiled is a kernel in the account of a test run.
type compiled struct {
	line tally.Line
	ran  atomic.Bool
}

// account tells the summary of a test run, if this is one, that a kernel was compiled, and how long that took.
func (i *KernelInfo) account(took time.Duration) *compiled {
	if !tally.On() {
		return nil
	}
	c := &compiled{line: tally.Line{Kind: tally.Pipeline, Name: i.Name, Seconds: took.Seconds()}}
	if i.Constants != nil {
		c.line.Detail = strings.TrimSpace(i.Constants.String())
	}
	tally.Add(c.line)
	return c
}

// expect notes a kernel that has not run yet: a CPU's driver makes machine code of it then.
func (r *Recording) expect(k *Kernel) {
	if k.compiled != nil && !k.compiled.ran.Load() {
		r.first = append(r.first, k.compiled)
	}
}

// accountFirst tells how long the recording took, from its submission, for the kernels that it ran first, in proportion to what
// compiling them took.
func (r *Recording) accountFirst() {
	if len(r.first) == 0 {
		return
	}
	took := time.Since(r.run.began).Seconds()
	var first []*compiled
	var all float64
	for _, c := range r.first {
		if c.ran.CompareAndSwap(false, true) {
			first = append(first, c)
			all += c.line.Seconds
		}
	}
	r.first = r.first[:0]
	for _, c := range first {
		l := c.line
		l.Kind, l.Seconds = tally.FirstRun, took*l.Seconds/all
		tally.Add(l)
	}
}
