package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// TestDump writes what the cases' passes record into the file that VKATTN_DUMP names: labels, kernels with their constants, push constants,
// bindings and barriers, of all cases that a device runs, with -short of the cover. Nothing runs. So a change that is to leave commands as
// they are can be shown to do so: dump before it and after it, and compare the files with diff. VKATTN_DUMP_ONLY is an expression for
// "case on target" that narrows them. Without a file, one case is dumped on two handles of the device, which must not differ.
func TestDump(t *testing.T) {
	path := os.Getenv("VKATTN_DUMP")
	if path == "" {
		one := regexp.MustCompile("^core/gqa/f16 on flash2/scalar")
		everywhere := func(cases []*Case, targets []Target) [][]Target {
			return slices.Repeat([][]Target{targets}, len(cases))
		}
		var first bytes.Buffer
		dump(t, &first, everywhere, one)
		require.Contains(t, first.String(), `dispatch "scalar_forward"`)
		require.Contains(t, first.String(), "kernel scalar_backward_kv.f16")
		require.Contains(t, first.String(), "operand DQ")
		require.Contains(t, first.String(), "workspace 0")
		var second bytes.Buffer
		dump(t, &second, everywhere, one)
		require.Equal(t, first.String(), second.String())
		return
	}
	file, err := os.Create(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	dump(t, file, chosenOf, regexp.MustCompile(os.Getenv("VKATTN_DUMP_ONLY")))
}

// dump writes what the chosen cases that match record, on devices of its own.
func dump(t *testing.T, to io.Writer, choose func([]*Case, []Target) [][]Target, only *regexp.Regexp) {
	device(t)
	d := newDumper(t)
	defer func() { d.close(t) }()
	o := Options{Seed: 1, Vectors: os.DirFS(goldenFolder)}
	targets := Targets(d.dev, o)
	cases, err := Cases(d.dev, o)
	require.NoError(t, err)
	for at, chosen := range choose(cases, targets) {
		c, fresh := cases[at], true
		c.prepared = d.prepared
		for _, target := range chosen {
			what := fmt.Sprintf("%s on %v", c.Name, target)
			if !only.MatchString(what) {
				continue
			}
			if fresh && d.served == casesOfDevice {
				d.close(t)
				d = newDumper(t)
				c.prepared = d.prepared
			}
			if fresh {
				d.served, fresh = d.served+1, false
			}
			d.text.Reset()
			r := c.Run(context.Background(), d.dev, target)
			require.Empty(t, r.Failure, what)
			if r.Skipped != "" {
				continue
			}
			_, err := fmt.Fprintf(to, "=== %s: %s\n%s\n", what, r.Kernel, d.text.String())
			require.NoError(t, err)
		}
		c.release()
	}
}

// dumper is a device whose recordings are listed.
type dumper struct {
	dev     *flash.Device
	pool    *vk.CommandPool
	cmd     *vk.CommandBuffer
	writing bool // a case's recording; else a self-check's
	text    bytes.Buffer
	served  int // cases
}

func newDumper(t *testing.T) *dumper {
	dev, err := flash.Open(flash.WithoutDiskCache())
	require.NoError(t, err)
	d := &dumper{dev: dev}
	env, err := access.Get[*flash.Device, *flash.Plan, flash.Problem, *flash.Tensor, *flash.Recording]().Env(dev)
	require.NoError(t, err)
	env.Ctx.List(func(l *pipeline.Listing) {
		if d.writing {
			_, _ = l.WriteTo(&d.text) // which takes everything
		}
	})
	d.pool, err = env.Dev.NewCommandPool()
	require.NoError(t, err)
	d.cmd, err = d.pool.Allocate()
	require.NoError(t, err)
	return d
}

// prepared writes the recording into a command buffer that nobody submits: then it has its last barrier, and is listed.
func (d *dumper) prepared(rec *flash.Recording) error {
	if err := d.cmd.Begin(false); err != nil {
		return err
	}
	d.text.WriteString("--- recording\n")
	d.writing = true
	err := rec.Record(d.cmd.Handle())
	d.writing = false
	return errors.Join(err, d.cmd.End())
}

func (d *dumper) close(t *testing.T) {
	require.NoError(t, d.pool.Close())
	require.NoError(t, d.dev.Close())
}
