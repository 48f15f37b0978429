package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/plainjson"
)

// Peer is another program that measures the same cases on the same GPU: it is
// started once, reads one JSON case a line from its standard input and answers
// each with one JSON line. tools/torch_baseline.py --peer is one.
//
// Question: a Job as JSON, the very object that `vkattn bench --list` prints;
// causal is aligned to the bottom right, as everywhere here; passes is ["fwd"],
// ["bwd"] or both. What the peer cannot do it answers with an error, and
// "unsupported" as the reason.
// Answer: a result row, that is the same keys and library, fwd_ms, fwd_tflops,
// fwd_peak_MiB, bwd_ms and so on for the passes asked for, or error; where only
// backward cannot be done, forward's figures and bwd_error. Before its first answer, and after its last, it may
// write header lines: objects without "impl". Lines that are no objects are
// passed on to Log.
type Peer struct {
	Timeout time.Duration // for one answer; 0 is two minutes
	OnLost  func(error)   // called once, when it happens, with why the peer is not asked again

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string   // what it wrote; closed at the end of what is read of it
	unread error         // why its output was not read to the end; written before lines is closed
	ended  chan struct{} // closed at the end of its output
	errs   tail          // the end of what it complained
	header []string
	err    error // sticky: after it the peer is not asked again
	empty  int   // answers with neither figures nor an error

	wait    sync.Once
	waitErr error
}

// StartPeer runs a command line of the system's shell.
func StartPeer(command string) (*Peer, error) {
	if strings.TrimSpace(command) == "" {
		return nil, errors.New("peer command is empty: it must be a command line such as 'python3 tools/torch_baseline.py --peer'")
	}
	p := &Peer{cmd: shell(command), lines: make(chan string, 64), ended: make(chan struct{})}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	p.cmd.Stderr = &p.errs
	p.cmd.WaitDelay = 2 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("peer: cannot start: %w", err)
	}
	go p.read(stdout)
	return p, nil
}

func (p *Peer) read(stdout io.Reader) {
	in := result.NewLines("its output", stdout, 0)
	for text, ok := in.Next(); ok; text, ok = in.Next() {
		if line := strings.TrimSpace(string(text)); line != "" {
			p.lines <- line
		}
	}
	if err := in.Err(); err != nil && !errors.Is(err, fs.ErrClosed) {
		p.unread = fmt.Errorf("peer: %w", err)
	}
	close(p.lines)
	_, _ = io.Copy(io.Discard, stdout) // so that it can end
	close(p.ended)
}

const mostHeaders = 1000

// Header returns the header lines read so far.
func (p *Peer) Header() []string { return p.header }

// Measure asks for one job and waits for the answer. What goes wrong is in
// the row's Error; a peer that ended or fell silent is not asked again.
func (p *Peer) Measure(ctx context.Context, j result.Job) result.Row {
	c, passes := j.Case, j.Passes.OrDefault()
	row := result.Row{Origin: result.Origin{Library: "peer"}, Case: c}
	fail := func(reason result.Reason, format string, a ...any) result.Row {
		row.Failure = result.Failure{Error: fmt.Sprintf(format, a...), Reason: reason}
		return row
	}
	if p.err != nil {
		return fail(result.ReasonFailed, "%v", p.err)
	}
	text, err := json.Marshal(result.Job{Case: c, Passes: passes})
	if err != nil {
		return fail(result.ReasonFailed, "%v", err)
	}
	lose := func(err error) result.Row {
		p.err = err
		if p.OnLost != nil {
			p.OnLost(err)
		}
		return fail(result.ReasonFailed, "%v", err)
	}
	if _, err := p.stdin.Write(append(text, '\n')); err != nil {
		return lose(p.exitError()) // says more than the broken pipe
	}
	timeout := p.Timeout
	if timeout == 0 {
		timeout = 2 * time.Minute
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			p.err = fmt.Errorf("peer: interrupted")
			return fail(result.ReasonFailed, "%v", p.err)
		case <-timer.C:
			return lose(fmt.Errorf("peer: no answer within %v", timeout))
		case line, open := <-p.lines:
			if !open {
				if p.unread != nil {
					return lose(p.unread)
				}
				return lose(p.exitError())
			}
			answer, ok, err := p.parse(line)
			switch {
			case err != nil:
				return lose(err)
			case !ok:
				continue
			}
			if answer.Shape() != c.Shape() || answer.Impl != c.Impl {
				return lose(fmt.Errorf("peer: asked for %s, answered for %s", c, answer.Case))
			}
			if !complete(&answer, passes) {
				p.empty++
			}
			return answer
		}
	}
}

// complete says what an answer lacks, and drops figures that an error denies. It is false where figures and error both lack.
func complete(r *result.Row, passes result.Passes) bool {
	answered := true
	switch {
	case r.Error != "":
	case passes.Fwd && r.Fwd.Ms == 0:
		r.Failure, answered = result.Failure{Error: "peer: the answer has neither fwd_ms nor error", Reason: result.ReasonFailed}, false
	case passes.Bwd && r.Bwd.Ms == 0 && r.BwdFailure.Error == "":
		r.BwdFailure = result.Failure{Error: "peer: the answer has neither bwd_ms nor bwd_error", Reason: result.ReasonFailed}
		answered = false
	}
	if r.Error == "" && !passes.Fwd && r.BwdFailure.Error != "" { // backward was all that was asked for
		r.Failure, r.BwdFailure = r.BwdFailure, result.Failure{}
	}
	if r.Error != "" {
		r.Fwd, r.Bwd = result.Pass{}, result.Pass{}
	}
	if r.BwdFailure.Error != "" {
		r.Bwd = result.Pass{}
	}
	for _, f := range []*result.Failure{&r.Failure, &r.BwdFailure} {
		if strings.Contains(f.Error, "OutOfMemory") || strings.Contains(f.Error, "out of memory") {
			f.Reason = result.ReasonMemory
		}
	}
	return answered
}

// parse reads one line of the peer: an answer (ok), or a header or chatter.
func (p *Peer) parse(line string) (row result.Row, ok bool, err error) {
	if !strings.HasPrefix(line, "{") {
		return row, false, nil // libraries print; only objects are the protocol's
	}
	var keys map[string]json.RawMessage
	if err := plainjson.Unmarshal([]byte(line), &keys); err != nil {
		return row, false, fmt.Errorf("peer: wrote %q, which is not a JSON object: %w", clip(line, 80), err)
	}
	if _, isRow := keys["impl"]; !isRow {
		if len(p.header) == mostHeaders {
			return row, false, fmt.Errorf("peer: wrote more than %d header lines, objects without impl", mostHeaders)
		}
		p.header = append(p.header, line)
		return row, false, nil
	}
	if err := row.UnmarshalJSON([]byte(line)); err != nil {
		return row, false, fmt.Errorf("peer: wrote a bad answer: %w", err)
	}
	return row, true, nil
}

// exitError says how the peer ended, with the last line that it complained with.
func (p *Peer) exitError() error {
	p.finish(500 * time.Millisecond)
	text := "peer: ended before it answered"
	if p.waitErr != nil {
		text += " (" + p.waitErr.Error() + ")"
	}
	if said := p.errs.lastLine(); said != "" {
		text += ": " + said
	}
	return errors.New(text)
}

// finish waits for the peer's end, and kills it when that takes longer than grace.
func (p *Peer) finish(grace time.Duration) {
	p.wait.Do(func() {
		p.stdin.Close()
		kill := time.AfterFunc(grace, func() { killTree(p.cmd) })
		defer kill.Stop()
		go func() { // unblock the reader
			for range p.lines {
			}
		}()
		<-p.ended
		p.waitErr = p.cmd.Wait()
	})
}

// Close ends the peer: its input is closed, and if it has not ended three
// seconds later it is killed. The error says what went wrong with the peer, if
// anything did: answers that were none too.
func (p *Peer) Close() error {
	if p.err != nil { // it no longer keeps to the protocol
		p.finish(0)
		return p.err
	}
	p.finish(3 * time.Second)
	if p.waitErr != nil {
		return fmt.Errorf("peer: %w: %s", p.waitErr, p.errs.lastLine())
	}
	if p.empty > 0 {
		return fmt.Errorf("peer: answers with neither figures nor an error: %d", p.empty)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, b...)
	if extra := len(t.data) - 4096; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(b), nil
}

func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.data)
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return clip(string(bytes.TrimSpace(text)), 200)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
