package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/ranks"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/flash/ring/mpi"
)

// rankFlags are the flags of bench that spread attention over devices.
type rankFlags struct {
	ranks int
	share bool
	host  bool
	mpi   bool
	over  []string
	hosts int // ranks of each
	links string
}

// overRing says whether a ring is asked for, and nothing else.
func (f *rankFlags) overRing() bool { return slices.Equal(f.over, []string{result.OverRing}) }

// about says whether flags are set that are about several devices.
func (f *rankFlags) about() bool { return !f.overRing() || f.links != "" || f.hosts != 0 }

func (f *rankFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.ranks, "ranks", 0, "spread each sequence over so many devices of this machine, beside the same on one: ring "+
		"attention (suite ring: as many as there are GPUs)")
	cmd.Flags().BoolVar(&f.mpi, "mpi", false, "ranks are the processes that mpirun has started, with the GPUs of their host in turn "+
		"(needs a vkattn built with -tags mpi)")
	cmd.Flags().BoolVar(&f.share, "share-device", false, "with --ranks or --mpi: ranks beyond the number of devices share them")
	cmd.Flags().StringSliceVar(&f.over, "over", []string{result.OverRing}, "`list` of what goes from rank to rank: ring (keys and "+
		"values), heads (all tokens of a rank's share of the heads), both (heads within hosts of --per-host ranks, keys and values "+
		"between hosts), auto: what the plan predicts to be faster, ring or heads, from the speed of one device and of the slowest link")
	cmd.Flags().IntVar(&f.hosts, "per-host", 0, "with --over both: `number` of ranks of a host, 0 to n-1 of the first; devices of one "+
		"machine can stand for several hosts")
	cmd.Flags().StringVar(&f.links, "links", "", "`file` of 'vkattn info --links --json', for predictions and --over auto (default: links "+
		"are measured)")
	cmd.Flags().BoolVar(&f.host, "from-host", false, "keys and values come from memory of the host in blocks, on one device, beside the "+
		"same with them resident")
}

// ringSuite is the name of the suite that needs several devices.
const ringSuite = "ring"

const ringAbout = "one sequence over all GPUs (--ranks), beside the same on one, forward and backward"

// ringDefaults are the sizes of the suite as flags, which are those of --ranks, --mpi and --from-host too where they are left out.
func ringDefaults() string {
	text := func(g result.Grid) string {
		return fmt.Sprintf("--heads %s --head-dim %s --seq %s", commas(g.Heads), commas(g.HeadDim), commas(g.Seq))
	}
	return text(ringGrid(false)) + " --causal --pass both,\nand on a CPU " + text(ringGrid(true))
}

// ringGrid is what it measures.
func ringGrid(cpu bool) result.Grid {
	g := result.Grid{Impls: []string{"flash2"}, Batch: []int{1}, Heads: []int{16}, HeadDim: []int{128},
		Seq: []int{32 << 10, 64 << 10, 128 << 10}, Causal: []bool{true}, Passes: result.Passes{Fwd: true, Bwd: true}}
	if cpu {
		g.Heads, g.HeadDim, g.Seq = []int{2}, []int{32}, []int{512}
	}
	return g
}

// spread says whether the flags ask for several devices.
func (f *benchFlags) spread() bool {
	return f.over.about() || f.over.ranks != 0 || f.over.share || f.over.host || f.over.mpi ||
		f.suite == ringSuite
}

// spreadAxes are the axes that problems over several devices have.
var spreadAxes = []string{"dtype", "heads", "kv-heads", "q-len", "seq", "head-dim", "value-dim", "emb-dim", "causal", "pass"}

// ofOneDevice are the flags that several devices do without.
func ofOneDevice() []string {
	names := []string{"peer", "peer-impl", "peer-timeout", "compare", "list", "tier", "rounds", "limit", "device"}
	for _, a := range result.Axes {
		if !slices.Contains(spreadAxes, a.Name) {
			names = append(names, a.Name)
		}
	}
	return names
}

// checkSpread says which flags do not go with several devices.
func (f *benchFlags) checkSpread(cmd *cobra.Command) error {
	for _, name := range ofOneDevice() {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is of attention on one device: it does not go with --ranks, --mpi and --from-host", name)
		}
	}
	switch {
	case f.over.mpi && (f.over.ranks != 0 || f.over.host):
		return errors.New("--mpi has as many ranks as mpirun has started: it does not go with --ranks and --from-host")
	case f.over.host && (f.over.ranks > 1 || f.over.share || f.suite == ringSuite):
		return errors.New("--from-host is of one device: it does not go with --ranks")
	case f.over.host && f.over.about():
		return errors.New("--over, --per-host and --links are about several devices: they do not go with --from-host")
	case f.over.mpi && f.appendTo:
		return errors.New("--append does not go with --mpi: one process alone knows the file's rows, and all measure")
	case f.appendTo && f.trace != "":
		return errors.New("--append does not go with --trace here: earlier rows have no times of devices")
	case f.over.ranks == 0 && f.over.share && !f.over.mpi && f.suite != ringSuite:
		return errors.New("--share-device is about --ranks, which is not given")
	case f.suite != "" && f.suite != ringSuite:
		return fmt.Errorf("--suite %s is of one device: --ranks takes sizes, or --suite %s", f.suite, ringSuite)
	case f.over.ranks == 0 && f.over.about() && !f.over.mpi && f.suite != ringSuite:
		return errors.New("--over, --per-host and --links are about --ranks, which is not given")
	}
	if err := f.over.checkOver(); err != nil {
		return err
	}
	switch {
	case f.over.ranks > 0 && f.over.checkHosts(f.over.ranks) != nil:
		return f.over.checkHosts(f.over.ranks)
	case f.format != "table" && f.format != "json":
		return fmt.Errorf("--format %s: with --ranks it must be table or json", f.format)
	}
	return f.checkOut()
}

// checkOver says what --over and --per-host cannot be, for whatever number of ranks.
func (f *rankFlags) checkOver() error {
	for i, over := range f.over {
		switch {
		case !slices.Contains(ranks.Overs, over):
			return fmt.Errorf("--over %q: it must be one of %s", over, strings.Join(ranks.Overs, ", "))
		case slices.Contains(f.over[:i], over):
			return fmt.Errorf("--over names %s twice", over)
		}
	}
	both := slices.Contains(f.over, result.OverBoth)
	switch {
	case len(f.over) == 0:
		return fmt.Errorf("--over is empty: it must be of %s", strings.Join(ranks.Overs, ", "))
	case both && f.hosts == 0:
		return errors.New("--over both needs --per-host, the number of ranks of a host")
	case !both && f.hosts != 0:
		return errors.New("--per-host is about --over both, which is not given")
	}
	return nil
}

// checkHosts says whether so many ranks are several hosts of several ranks.
func (f *rankFlags) checkHosts(n int) error {
	switch {
	case f.hosts == 0:
		return nil
	case f.hosts < 0 || n%f.hosts != 0:
		return fmt.Errorf("--per-host %d: it must divide the number of ranks, %d", f.hosts, n)
	case f.hosts == 1:
		return errors.New("--per-host 1: it must be at least 2, for hosts of one rank are --over ring")
	case f.hosts == n:
		return fmt.Errorf("--per-host %d: it must be less than the number of ranks, %d, for one host is --over heads", f.hosts, n)
	}
	return nil
}

// runSpread measures attention over several devices beside the same on one.
func runSpread(cmd *cobra.Command, f *benchFlags, args []string) (err error) {
	if args = f.axes.argument(cmd, args); len(args) > 0 {
		return usage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
	}
	if err := f.checkSpread(cmd); err != nil {
		return usage(cmd, err)
	}
	given, err := f.axes.grid()
	if err == nil && given.Passes.JVP {
		err = errors.New("--pass jvp is of attention on one device: it does not go with --ranks, --mpi and --from-host")
	}
	if err != nil {
		return usage(cmd, err)
	}
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	s := &spreadRun{f: f, first: true, stderr: stderr}
	if f.over.links != "" {
		if s.link, err = ranks.ReadLinks(f.over.links); err != nil {
			return err
		}
	}
	infos, err := flash.Devices(f.device.options()...)
	if err != nil {
		return err
	}
	s.n = f.over.ranks
	if f.over.mpi {
		var device *flash.Device
		if s.comm, device, err = joinMPI(ctx, f.over.share, f.device.options()); err != nil {
			return ranksError("--mpi", err)
		}
		defer func() { err = errors.Join(err, s.comm.Close()) }()
		s.devices, s.n, s.first = []*flash.Device{device}, s.comm.Size(), s.comm.Rank() == 0
	}
	if !s.first {
		stdout = io.Discard
	}
	if f.over.host {
		s.n = 1
	}
	if s.n == 0 {
		for _, d := range infos {
			if !bench.IsCPU(d) {
				s.n++
			}
		}
		s.n = max(s.n, 2)
	}
	if s.comm == nil {
		s.devices, err = ring.Open(s.n, f.over.share, f.device.options()...)
	}
	if err != nil {
		return ranksError("--ranks", err)
	}
	defer func() {
		for _, d := range s.devices {
			closeDevice(stderr, d)
		}
	}()
	if err := f.over.checkHosts(s.n); err != nil { // of --mpi and the suite, whose ranks were not known
		return usage(cmd, err)
	}
	s.cpu = bench.IsCPU(s.devices[0].Info())
	grid := ringGrid(s.cpu).Override(given)
	if given.Passes != (result.Passes{}) {
		grid.Passes = given.Passes
	}
	cases, err := grid.Expand()
	if err != nil {
		return usage(cmd, err)
	}
	for _, c := range cases {
		if _, err := c.Problem(); err != nil {
			return usage(cmd, err)
		}
	}
	if err := s.openFiles(ctx); err != nil {
		return err
	}
	defer s.close()
	results, runErr := s.run(ctx, cases, grid.Passes.Bwd, stdout)
	if f.format == "table" && len(results) > 0 {
		fmt.Fprintf(stdout, "%s, %s\n\n%s\n", s.devices[0].Info().Name, count(s.n, "rank"),
			report.RingText(results, screenOf(stdout, f.wide).Width))
	}
	runErr = errors.Join(runErr, s.finish(ctx))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case runErr != nil:
		return runErr
	}
	return complain(stderr, problemsOf(results, s.kept))
}

// problemsOf says what is wrong with rows of several devices, of which the file had some already.
func problemsOf(results []result.RingRow, kept int) (problems []string) {
	failed, measured := 0, kept
	for _, r := range results {
		if r.Failed() {
			failed++
		}
		if r.Error == "" {
			measured++
		}
	}
	if failed > 0 {
		problems = append(problems, fmt.Sprintf("%s of %d failed", count(failed, "row"), len(results)))
	}
	if measured == 0 {
		problems = append(problems, nothingMeasured)
	}
	return problems
}

// spreadRun is a run over several devices under way.
type spreadRun struct {
	f       *benchFlags
	comm    mpi.Comm // nil: ranks are of this process
	devices []*flash.Device
	n       int  // ranks
	first   bool // of the processes: it alone writes
	cpu     bool
	stderr  io.Writer

	link      ranks.Link
	header    result.Header
	out       *result.OutFile // nil: none
	earlier   []result.RingRow
	kept      int // rows that it has, and that are wanted again
	alone     ranks.Alone
	trace     bench.Trace
	traceFile *result.OutFile // nil: none
}

// openFiles opens what is written, before anything is measured, and writes the header.
func (s *spreadRun) openFiles(ctx context.Context) (err error) {
	if !s.first || s.f.out == "" && s.f.trace == "" {
		return nil
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.header, err = headerOf(ctx, s.devices[0]); err != nil {
		return err
	}
	if s.out, _, err = s.f.earlier(s.stderr); err != nil {
		return err
	}
	if s.out == nil && s.f.out != "" {
		mode := result.CreateNew
		if s.f.force {
			mode = result.Force
		}
		if s.out, err = result.CreateFile(s.f.out, mode); err != nil {
			return err
		}
	}
	if s.f.trace != "" {
		if s.traceFile, err = s.f.createTrace(); err != nil {
			return err
		}
	}
	if s.out == nil {
		return nil
	}
	if s.out.Earlier != nil {
		s.earlier = s.out.Earlier.Rings
		s.know(s.out.Earlier)
	}
	return result.NewWriter(s.out).Line(s.header)
}

// know takes over what earlier rows have of one device, where this program and this driver have measured all of the file.
func (s *spreadRun) know(file *result.File) {
	for _, h := range file.Headers {
		if h.VKAttn != s.header.VKAttn || h.Device != s.header.Device || h.Driver != s.header.Driver {
			return
		}
	}
	for i := range file.Rings {
		s.alone.Add(&file.Rings[i])
	}
}

func (s *spreadRun) close() {
	for _, f := range []*result.OutFile{s.out, s.traceFile} {
		if f != nil {
			f.Close() // again where finish has closed it
		}
	}
}

// had says whether the --out file has a row already.
func (s *spreadRun) had(p flash.Problem, over string, backward bool) bool {
	p, err := p.Normalize()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.earlier, func(r result.RingRow) bool {
		same := r.Over == over && !r.Chosen && (over != result.OverBoth || r.PerHost == s.f.over.hosts)
		switch {
		case s.f.over.host:
			same = r.Over == result.OverHost
		case over == ranks.OverAuto:
			same = r.Chosen
		}
		return same && r.Error == "" && r.Of(s.devices[0].Info().Name, p.String(), s.n) && (r.Bwd.Ranks > 0 || !backward)
	})
}

// run measures the cases one after the other, each with all that goes from rank to rank, and writes each.
func (s *spreadRun) run(ctx context.Context, cases []result.Case, backward bool, stdout io.Writer) (results []result.RingRow, err error) {
	bar := newBar(s.stderr, s.f.quiet || !s.first)
	defer bar.done()
	n := len(cases) * len(s.f.over.over)
	for i, c := range cases {
		p, err := c.Problem()
		if err != nil {
			return results, err
		}
		for j, over := range s.f.over.over {
			bar.step(i*len(s.f.over.over)+j+1, n, c.String())
			if s.had(p, over, backward) {
				s.kept++
				continue
			}
			r, err := s.row(ctx, p, over, backward, stdout)
			if err != nil || ctx.Err() != nil {
				return results, err
			}
			results = append(results, r)
			if r.Error != "" && s.comm != nil {
				return results, nil // the communicator serves no more
			}
		}
	}
	bar.done()
	if s.kept > 0 {
		fmt.Fprintf(s.stderr, "%s of %d in %s already\n", count(s.kept, "row"), n, s.f.out)
	}
	return results, nil
}

// row measures one case, and writes it.
func (s *spreadRun) row(ctx context.Context, p flash.Problem, over string, backward bool, stdout io.Writer) (r result.RingRow, err error) {
	if s.link == (ranks.Link{}) && !s.f.over.host {
		if err := s.measureLink(ctx); err != nil {
			return r, err
		}
	}
	o := ranks.Options{Backward: backward, Stream: s.f.over.host, Runs: 5, Least: time.Second, Most: 10 * time.Second,
		Timeout: 5 * time.Minute, Over: over, PerHost: s.f.over.hosts, Link: s.link, Alone: &s.alone}
	var lanes [2][]result.RingLane
	o.Lanes = func(backward bool, all []result.RingLane) {
		if backward {
			lanes[1] = all
		} else {
			lanes[0] = all
		}
	}
	if s.comm != nil {
		r = ranks.MeasureProcesses(ctx, s.comm, s.devices[0], p, o)
	} else {
		r = ranks.Measure(ctx, s.devices, p, o)
	}
	if ctx.Err() != nil {
		return r, nil
	}
	r.Library = "vkattn " + version()
	for i, all := range lanes {
		if all != nil && s.traceFile != nil {
			s.trace.AddRing(r, i == 1, all)
		}
	}
	if s.out != nil {
		if err := result.NewWriter(s.out).Line(r); err != nil {
			return r, err
		}
	}
	if s.f.format == "json" {
		err = result.NewWriter(stdout).Line(r)
	}
	return r, err
}

// measureLink measures what predictions and choices are made from; other processes are waited for a minute.
func (s *spreadRun) measureLink(ctx context.Context) (err error) {
	if s.comm == nil {
		s.link, err = ranks.MeasureLink(ctx, nil, s.devices)
		return err
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.link, err = ranks.MeasureLink(limited, s.comm, s.devices); err != nil {
		s.comm.Abort(err)
	}
	return err
}

// ranksError names the flags, where there are more ranks on a host than devices.
func ranksError(flag string, err error) error {
	var bad *flash.ArgumentError
	if errors.As(err, &bad) && bad.Argument == "ranks" {
		return fmt.Errorf("%s, %s on this host: %s (--share-device)", flag, bad.Value, bad.Rule)
	}
	return err
}

// finish writes the trace and closes the files.
func (s *spreadRun) finish(ctx context.Context) (err error) {
	if s.traceFile != nil {
		if ctx.Err() != nil {
			s.f.dropTrace(s.stderr, s.traceFile)
		} else {
			err = errors.Join(s.trace.Write(s.traceFile, s.header), s.traceFile.Close())
		}
	}
	if s.out != nil {
		err = errors.Join(err, s.out.Close())
	}
	return err
}
