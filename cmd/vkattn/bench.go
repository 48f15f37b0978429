package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
)

// benchFlags are the flags of bench as given.
type benchFlags struct {
	axes                         axisFlags
	device                       deviceChoice
	over                         rankFlags
	suite, tier, format, out     string
	appendTo, force, quiet, list bool
	wide                         bool
	peer, compare, trace         string
	peerImpls                    []string
	rounds                       int
	limit, peerTimeout           time.Duration
	firstCache                   string
	firstWarm                    bool
}

// recordedRounds is how often the rows of a result file are measured: of three rounds one that something disturbed does not count.
const recordedRounds = 3

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure attention on the GPU, with the error of the very outputs that were timed",
		Long: `Measure attention on the GPU: time, TFLOP/s, memory, and the error against a float64 reference of the
very outputs that were timed.

Comma lists sweep. The embedding width is heads × head dimension: two of the three are enough. Without
--suite and without any size the suite "quick" runs; with a size, the others have the defaults below. With
--suite, the axes given by flags replace the suite's own. --ranks, --mpi and --from-host have defaults of their own,
` + ringDefaults() + `.

Each row is warmed up, then repeated for at least 100 ms and 10 runs; every run stands between two
device timestamps with full barriers. Times are medians. Inputs are random and rotate between several
sets where they would fit a cache. A backward pass starts from a forward pass, whose output and
log-sum-exp are checked before the gradients are.

--score, --bias, --mask, --sinks, --window and --listed say what becomes of the scores; --packed,
--used, --page and --cache where rows lie, how many keys count, and how keys and values are stored.
Rates count the pairs that masks, windows and lists leave visible; "× plain" is the rate relative to that of the same problem
without any of these. Where reading keys takes most of the time, "MB" is the least that must be read and
written, "% copy" the bandwidth that this makes, of the bandwidth of copying, and "tokens/s" how many
queries of the batch this attention alone would do in a second.

Appending to caches, rotation and merging are not attention: 'vkattn rows' measures them.

Suites:
` + suiteHelp(),
		Example: `  vkattn bench
  vkattn bench --suite papers --head-dim 64,128 --out papers.jsonl
  vkattn bench --impl flash --batch 4 --heads 32 --kv-heads 8 --seq 1k,2k,4k --head-dim 128 --causal
  vkattn bench --suite reports --format md > reports.md
  vkattn bench --suite papers --peer 'python3 tools/torch_baseline.py --peer' --peer-impl fa2,cudnn --rounds 3
  vkattn bench --suite papers --head-dim 64 --pass both --compare torch.jsonl
  vkattn bench --suite papers --list | python3 tools/torch_baseline.py > torch.jsonl
  vkattn bench --suite dropout --dropout 0,0.1,0.2 --out dropout.jsonl
  vkattn bench --suite block-sparsity --density 100%,25%,5%
  vkattn bench --suite scores --head-dim 64 --out scores.jsonl
  vkattn bench --suite packed --peer 'python3 tools/torch_baseline.py --peer' --peer-impl fa2 --rounds 3
  vkattn bench --suite decode --out decode.jsonl
  vkattn bench --suite guard --out guard.jsonl && vkattn compare --relative --tolerance 5% recorded.jsonl guard.jsonl
  vkattn bench --impl flash --batch 8 --heads 32 --kv-heads 8 --q-len 1 --seq 16k --head-dim 128 --page 0,16 --cache none,q8_0
  vkattn bench --impl flash --seq 4k --score none,alibi,softcap=30 --bias none,heads --pass both
  vkattn bench --impl flash --seq 1k --tuning br=64,bc=64 --tuning br=128,bc=64
  vkattn bench --ranks 2 --heads 16 --head-dim 128 --seq 32k,128k --causal --pass both --out rings.jsonl
  vkattn bench --ranks 2 --over auto --seq 32k --causal --trace trace.json
  vkattn bench --ranks 4 --over ring,heads,both --per-host 2 --seq 128k --causal --pass both --out rings.jsonl --append
  mpirun -n 2 vkattn bench --mpi --heads 16 --head-dim 128 --seq 32k --causal
  vkattn bench --from-host --heads 16 --head-dim 128 --seq 256k --causal --pass both`,
		RunE: func(cmd *cobra.Command, args []string) error { return runBench(cmd, &f, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.suite, "suite", "", "`name` of a sweep (see above; default: quick, where no size is given)")
	sizes := usual(result.Defaults, nil)
	sizes["impl"] = strings.Join(result.Defaults.Impls, ",")
	f.axes.add(cmd, sizes)
	deviceFlags(cmd, &f.device)
	f.over.add(cmd)
	fl.StringVar(&f.tier, "tier", "", "insist on one kernel `tier`: scalar or matrix (default: the fastest that can)")
	fl.StringVar(&f.format, "format", "table", "`form` to print: "+strings.Join(report.Formats, ", "))
	fl.StringVar(&f.out, "out", "", "result `file` to write (JSON lines), besides what is printed")
	fl.BoolVar(&f.appendTo, "append", false, "add to the --out file; rows it has already are not measured again")
	fl.BoolVar(&f.force, "force", false, "replace the --out file")
	fl.StringVar(&f.peer, "peer", "", "`command` that measures the same cases, asked row by row (JSON lines on stdin and stdout)")
	fl.StringSliceVar(&f.peerImpls, "peer-impl", []string{"fa2"}, "`list` of the peer's implementations to compare with")
	fl.DurationVar(&f.peerTimeout, "peer-timeout", 2*time.Minute, "longest wait for one answer of the peer")
	fl.IntVar(&f.rounds, "rounds", 0, fmt.Sprintf("measure every row so many `times`, interleaved with the peer; the middle one counts "+
		"(default: %d for a result file, else 1)", recordedRounds))
	fl.StringVar(&f.compare, "compare", "", "result `file` to compare with: the peer's, or an earlier run's")
	fl.DurationVar(&f.limit, "limit", time.Minute, "time limit of a row in each round: fewer runs, or skipped when one run of its passes "+
		"is predicted to take longer; 0: none (suite reports: 5s)")
	fl.StringVar(&f.trace, "trace", "", "`file` for a profiled run of every row, each dispatch with its device time and bytes "+
		"(chrome://tracing, ui.perfetto.dev); made at the end, of earlier rows too where --append continues a sweep")
	fl.BoolVar(&f.list, "list", false, "print the cases as JSON, one a line, and measure nothing (without --device: those of a GPU)")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress bar")
	wideFlag(cmd, &f.wide)
	fl.StringVar(&f.firstCache, firstCache, "", "")
	fl.BoolVar(&f.firstWarm, firstWarm, false, "")
	for _, name := range []string{firstCache, firstWarm} {
		_ = fl.MarkHidden(name)
	}
	return cmd
}

func suiteHelp() string {
	var b strings.Builder
	for _, s := range result.Suites() {
		fmt.Fprintf(&b, "  %-16s %s\n", s.Name, s.About)
	}
	fmt.Fprintf(&b, "  %-16s %s\n", ringSuite, ringAbout)
	fmt.Fprintf(&b, "  %-16s %s\n", firstSuite, firstAbout)
	return strings.TrimRight(b.String(), "\n")
}

// suiteOf is the sweep that the flags name; false: they name sizes of their own.
func (f *benchFlags) suiteOf() (result.Suite, bool, error) {
	if f.suite == "" && f.axes.sized() {
		return result.Suite{}, false, nil
	}
	name := f.suite
	if name == "" {
		name = "quick"
	}
	if movesRows(name) {
		return result.Suite{}, true, fmt.Errorf("--suite %q: appending to caches, rotation and merging parts are measured by 'vkattn rows'",
			name)
	}
	s, err := result.FindSuite(name)
	if err != nil {
		err = fmt.Errorf("--%w", err)
	}
	return s, true, err
}

// jobs are the rows to measure on a device of that kind.
func (f *benchFlags) jobs(g result.Grid, cpu bool) ([]result.Job, error) {
	s, named, err := f.suiteOf()
	if err != nil {
		return nil, err
	}
	if named {
		return s.Jobs(cpu, g)
	}
	cases, err := g.Expand()
	return result.JobsOf(cases, g.Passes), err
}

// limits gives the time limit of a row: the flag's, or the suite's own.
func (f *benchFlags) limits(cmd *cobra.Command) time.Duration {
	if s, named, err := f.suiteOf(); err == nil && named && s.Limit > 0 && !cmd.Flags().Changed("limit") {
		return s.Limit
	}
	return f.limit
}

// check finds mistakes before a device is opened.
func (f *benchFlags) check(cmd *cobra.Command, args []string) (result.Grid, error) {
	args = f.axes.argument(cmd, args)
	var none result.Grid
	if len(args) > 0 {
		err := fmt.Errorf("unexpected argument %q", args[0])
		if cmd.Flags().Changed("causal") { // it may be meant for that
			err = fmt.Errorf("%w (--causal takes true, false or both)", err)
		} else if cmd.Flags().Changed("sinks") {
			err = fmt.Errorf("%w (--sinks takes its value after an equals sign: --sinks=both)", err)
		}
		return none, err
	}
	if err := report.CheckFormat(f.format); err != nil {
		return none, fmt.Errorf("--%w", err)
	}
	if _, err := f.tierOption(); err != nil {
		return none, err
	}
	if !cmd.Flags().Changed("rounds") {
		if f.rounds = 1; f.out != "" {
			f.rounds = recordedRounds
			if s, named, err := f.suiteOf(); err == nil && named && s.Rounds > 0 {
				f.rounds = s.Rounds
			}
		}
	}
	switch {
	case f.rounds < 1 || f.rounds > 1000:
		return none, fmt.Errorf("--rounds is %d: it must be from 1 to 1000", f.rounds)
	case f.limit < 0:
		return none, fmt.Errorf("--limit is %v: it must not be negative", f.limit)
	case f.peer != "" && f.compare != "":
		return none, errors.New("--peer and --compare are both given: compare with one of them")
	case len(f.peerImpls) == 0 || slices.Contains(f.peerImpls, ""):
		return none, errors.New("--peer-impl is empty: it must name what to compare with, such as fa2,cudnn")
	}
	if err := f.checkOut(); err != nil {
		return none, err
	}
	g, err := f.axes.grid()
	if err != nil {
		return g, err
	}
	_, err = f.jobs(g, false)
	return g, err
}

// tierOption is what --tier asks of a plan.
func (f *benchFlags) tierOption() ([]flash.PlanOption, error) {
	switch tier := flash.Tier(f.tier); tier {
	case "":
		return nil, nil
	case flash.TierScalar, flash.TierMatrix:
		return []flash.PlanOption{flash.WithTier(tier)}, nil
	}
	return nil, fmt.Errorf("--tier %q: it must be scalar or matrix", f.tier)
}

// checkOut says what is wrong with the flags about files.
func (f *benchFlags) checkOut() error {
	switch {
	case f.appendTo && f.out == "", f.force && f.out == "" && f.trace == "":
		return errors.New("--append and --force are about the --out file, and there is none")
	case f.appendTo && f.force:
		return errors.New("--append and --force are both given: either add to the file or replace it")
	}
	switch ext := filepath.Ext(f.out); ext {
	case ".csv", ".md", ".txt", ".html":
		return fmt.Errorf("--out %s: result files are JSON lines; for another form print it: --format %s > %s", f.out,
			strings.TrimPrefix(ext, "."), f.out)
	}
	return nil
}

func runBench(cmd *cobra.Command, f *benchFlags, args []string) error {
	if cmd.Flags().Changed("ranks") && f.over.ranks < 1 {
		return usage(cmd, fmt.Errorf("--ranks is %d: it must be at least 1", f.over.ranks))
	}
	if f.suite == firstSuite {
		return runFirst(cmd, f, args)
	}
	if f.spread() {
		return runSpread(cmd, f, args)
	}
	g, err := f.check(cmd, args)
	if err != nil {
		return usage(cmd, err)
	}
	if f.list {
		return f.listCases(cmd, g)
	}
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()

	// Whatever can be refused is refused before anything is measured.
	file, earlier, err := f.earlier(stderr)
	if err != nil {
		return err
	}
	if file != nil {
		defer file.Close() // again where the sink has closed it
	}
	var peers []result.Row
	if f.compare != "" {
		other, err := readResults(stderr, f.compare)
		if err != nil {
			return err
		}
		peers = other.Rows
	}
	dev, err := f.device.open()
	if err != nil {
		return err
	}
	defer closeDevice(stderr, dev)
	jobs, err := f.jobs(g, bench.IsCPU(dev.Info()))
	if err != nil {
		return usage(cmd, err)
	}
	if f.trace != "" && !dev.Info().Timestamps() {
		return bench.ErrNoTimestamps
	}
	header, err := headerOf(ctx, dev)
	if err != nil {
		return err
	}
	header.Rounds = f.rounds

	var traceFile *result.OutFile
	if f.trace != "" {
		if traceFile, err = f.createTrace(); err != nil {
			return err
		}
		defer traceFile.Close() // which leaves none where none was written
	}
	var peer *bench.Peer
	if f.peer != "" {
		if peer, err = bench.StartPeer(f.peer); err != nil {
			return err
		}
		peer.Timeout = f.peerTimeout
	}
	opts, err := f.tierOption()
	if err != nil {
		return usage(cmd, err)
	}
	measurer := bench.NewDevice(dev, version(), header.Peaks, opts...)
	limit := f.limits(cmd)
	measurer.Limit = limit

	r := &report.Results{Header: header, Peers: peers, PeerImpls: f.peerImpls}
	if f.peer == "" && f.compare == "" {
		r.PeerImpls = nil
	}
	before := newEarlier(earlier, dev.Info().Name)
	if err := before.keep(r, jobs, f); err != nil {
		return err
	}
	sink, err := f.newSink(file, header, peers, jobs)
	if err != nil {
		if peer != nil {
			peer.Close()
		}
		return err
	}
	bar := f.bar(stderr)
	if peer != nil {
		peer.OnLost = func(err error) {
			bar.done()
			fmt.Fprintf(stderr, "vkattn: %v; its other rows have this error too\n", err)
		}
	}
	var fresh, asked []result.Row // ours and the peer's that this call measures
	sweep := bench.Sweep{
		Bench: measurer, Jobs: jobs, Rounds: f.rounds, Peer: peer, PeerImpls: f.peerImpls, Limit: limit,
		Known:    ownRows(earlier, dev.Info().Name),
		Have:     func(c result.Case) bool { return has(r.Rows, c) },
		HavePeer: before.hasPeer,
		Progress: bar.step,
		OnRow: func(row result.Row) error {
			if report.IsOurs(row) {
				r.Rows, fresh = append(r.Rows, row), append(fresh, row)
			} else {
				asked = append(asked, row)
			}
			if before.says(row) {
				return nil // one line of it will do
			}
			return sink.row(row)
		},
	}
	if had := len(r.Rows); had > 0 {
		fmt.Fprintf(stderr, "%s of %d in %s already\n", count(had, "row"), len(jobs), f.out)
	}
	runErr := sweep.Run(ctx)
	bar.done()
	var peerErr error
	if peer != nil {
		peerErr = peer.Close()
		runErr = errors.Join(runErr, sink.peer(peer.Header()))
	}
	if traceFile != nil && ctx.Err() == nil {
		runErr = errors.Join(runErr, writeTrace(ctx, traceFile, measurer, header, r.Rows))
	}
	if traceFile != nil && ctx.Err() != nil {
		f.dropTrace(stderr, traceFile)
	}
	runErr = errors.Join(runErr, sink.close())
	r.Peers = slices.Concat(r.Peers, before.beside(r, fresh, asked), asked)
	sortLike(r.Rows, jobs)
	if runErr == nil || ctx.Err() != nil || len(r.Rows) > 0 { // what was measured is printed, whatever went wrong after that
		if err := f.print(stdout, r); err != nil {
			return errors.Join(runErr, err)
		}
	}
	if runErr != nil && ctx.Err() == nil {
		return runErr
	}
	if ctx.Err() != nil {
		fmt.Fprintf(stderr, "%d of %s measured\n", len(r.Rows), count(len(jobs), "row"))
		return ctx.Err()
	}
	return verdict(stderr, r, f, peerErr)
}

// print prints results in the format asked for.
func (f *benchFlags) print(w io.Writer, r *report.Results) error {
	if f.format == "table" {
		return report.WriteTable(w, r, screenOf(w, f.wide))
	}
	return report.Write(w, f.format, r, false)
}

// verdict decides the exit status and says why.
func verdict(stderr io.Writer, r *report.Results, f *benchFlags, peerErr error) error {
	var problems []string
	failed, measured := 0, 0
	for _, row := range r.Rows {
		if row.Failed() {
			failed++
		}
		if row.Fwd.Ms > 0 || row.Bwd.Ms > 0 {
			measured++
		}
	}
	if failed > 0 {
		problems = append(problems, fmt.Sprintf("%s of %d failed", count(failed, "row"), len(r.Rows)))
	}
	if measured == 0 {
		problems = append(problems, nothingMeasured)
	}
	if peerErr != nil {
		problems = append(problems, peerErr.Error())
	}
	if f.compare != "" && !slices.ContainsFunc(report.Summaries(r), func(s report.Summary) bool { return s.Against != "standard" }) {
		problems = append(problems, fmt.Sprintf("%s has no row to compare with (--peer-impl %s)", f.compare,
			strings.Join(f.peerImpls, ",")))
	}
	return complain(stderr, problems)
}

const nothingMeasured = "nothing was measured"

// complain says what is wrong, and fails where anything is.
func complain(stderr io.Writer, problems []string) error {
	for _, p := range problems {
		fmt.Fprintln(stderr, "vkattn: "+p)
	}
	if len(problems) > 0 {
		return errSilent
	}
	return nil
}
