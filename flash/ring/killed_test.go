package ring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/vk"
)

// ending is how a rank ends in the middle of a pass.
type ending int

const (
	aborts  ending = iota // it says that it failed
	closes                // it closes its Comm
	stops                 // nothing more comes of it, and it says nothing
	cancels               // its caller cancels the context
	loses                 // its device is lost
	endings
)

func (e ending) String() string {
	return [...]string{"aborts", "closes", "stops", "cancels", "loses its device"}[e]
}

// errKilled is what calls of a rank give that has ended.
var errKilled = errors.New("this rank was killed")

// mortal is a rank's communicator. It counts calls by phase, which is the pass and what is moved, and in one of them the rank ends.
type mortal struct {
	Comm
	by     ending
	phase  string // in which the rank ends; "": in none
	at     int    // in which call of the phase, from 1
	cancel context.CancelFunc
	lose   func() error

	mu    sync.Mutex
	pass  string
	calls map[string]int
	ended time.Time
}

func (m *mortal) begin(pass string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pass = pass
}

// call is one of the Comm's, unless the rank has ended.
func (m *mortal) call(ctx context.Context, what string, do func() error) error {
	m.mu.Lock()
	phase := m.pass + ": " + what
	m.calls[phase]++
	now := phase == m.phase && m.calls[phase] == m.at
	if now {
		m.ended = time.Now()
	}
	ended := !m.ended.IsZero()
	m.mu.Unlock()
	switch {
	case !ended:
		return do()
	case m.by == aborts && now:
		m.Comm.Abort(errKilled)
		return errKilled
	case m.by == closes:
		if now {
			_ = m.Comm.Close()
		}
		return errKilled
	case m.by == stops:
		// It waits for what never comes, as long as a Comm lets it: until its context ends, or the others have given up.
		return m.Comm.Receive(ctx, (m.Rank()+1)%m.Size(), MaxTag, nil)
	case m.by == cancels && now:
		m.cancel()
	case m.by == loses && now:
		if err := m.lose(); err != nil {
			return err
		}
	}
	return do()
}

func (m *mortal) Send(ctx context.Context, to int, tag Tag, data []byte) error {
	return m.call(ctx, "send "+tagName(tag), func() error { return m.Comm.Send(ctx, to, tag, data) })
}

func (m *mortal) Receive(ctx context.Context, from int, tag Tag, data []byte) error {
	return m.call(ctx, "receive "+tagName(tag), func() error { return m.Comm.Receive(ctx, from, tag, data) })
}

func (m *mortal) AllGather(ctx context.Context, mine []byte) (all [][]byte, err error) {
	err = m.call(ctx, "gather in "+gathers(), func() error {
		var err error
		all, err = m.Comm.AllGather(ctx, mine)
		return err
	})
	return all, err
}

// Abort says nothing of a rank that has closed or stopped.
func (m *mortal) Abort(cause error) {
	m.mu.Lock()
	silent := !m.ended.IsZero() && (m.by == closes || m.by == stops)
	m.mu.Unlock()
	if !silent {
		m.Comm.Abort(cause)
	}
}

// mortalSharer is one whose ranks share memory.
type mortalSharer struct{ *mortal }

func (m mortalSharer) Share(ctx context.Context, mine any) (all []any, err error) {
	err = m.call(ctx, "share in "+gathers(), func() error {
		var err error
		all, err = m.Comm.(Sharer).Share(ctx, mine)
		return err
	})
	return all, err
}

// messages is a Comm whose ranks share nothing.
type messages struct{ Comm }

// tagName says what goes by a tag, and within a host or between hosts, where there are such.
func tagName(t Tag) string {
	of := [...]string{tagBlock: "a block", tagTaken: "that a block was taken", tagGradients: "gradients home",
		tagHome: "that they were taken", tagHeads: "heads in", tagHeadsTaken: "that heads were taken", tagTokens: "heads out",
		tagTokensTaken: "that tokens were taken"}
	switch {
	case t >= tagsOfHosts:
		return of[t-tagsOfHosts] + ", between hosts"
	case t >= tagsOfHost:
		return of[t-tagsOfHost] + ", within a host"
	}
	return of[t]
}

// gathers is the function that a gathering is for.
func gathers() string {
	var at [16]uintptr
	frames := runtime.CallersFrames(at[:runtime.Callers(3, at[:])])
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
		if !slices.Contains([]string{"AllGather", "Share"}, name) || !more {
			return name
		}
	}
}

// killed is what is computed while ranks are killed.
type killed struct {
	name   string
	ranks  int
	shard  Shard
	shares bool // ranks are goroutines that show one another memory
	maps   bool // others map it
	sample *sample

	clean  results
	phases []map[string]int // calls of each rank
	took   time.Duration
}

// everything is a problem for which ranks exchange all that there is.
var everything = flash.Problem{Batch: 1, Heads: 4, KeyHeads: 4, QueryLen: 96, HeadDim: 8, DType: flash.F32,
	Causal: flash.CausalBottomRight, Sinks: true, MaxLogit: true, ScoreFunction: relative(4),
	Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: 96, Keys: 96}}

func killedOnes(t *testing.T) []*killed {
	one := func(name string, ranks int, shard Shard, shares bool) *killed {
		return &killed{name: name, ranks: ranks, shard: shard, shares: shares,
			sample: newSample(t, rand.New(rand.NewPCG(1, uint64(ranks))), everything)}
	}
	all := []*killed{one("ring", 3, Shard{}, true), one("ring of messages", 3, Shard{}, false), one("heads", 2, Shard{Over: Heads}, true),
		one("both", 4, Shard{Over: Both, PerHost: 2}, true), one("both by messages", 4, Shard{Over: Both, PerHost: 2}, false)}
	for _, x := range []*killed{one("ring of processes", 2, Shard{}, false),
		one("both by processes", 4, Shard{Over: Both, PerHost: 2}, false)} {
		x.maps = true
		all = append(all, x)
	}
	packed := one("packed ring", 2, Shard{}, true)
	p := everything
	p.Batch, p.QueryLen, p.Bias, p.Packed = 2, 60, flash.PerScore{}, flash.Packed{Queries: 96, Keys: 96}
	packed.sample = newPackedSample(t, rand.New(rand.NewPCG(1, 9)), p, sequencesOf{queryStarts: []int32{0, 40, 96},
		keyStarts: []int32{0, 40, 96}})
	return append(all, packed)
}

// comms are those of the ranks, all mortal.
func (k *killed) comms(t *testing.T) ([]Comm, []*mortal) {
	mapsMemory = k.maps
	comms, err := Local(k.ranks)
	require.NoError(t, err)
	all := make([]*mortal, k.ranks)
	for i, c := range comms {
		all[i] = &mortal{Comm: c, calls: map[string]int{}}
		if k.shares {
			comms[i] = mortalSharer{all[i]}
		} else {
			all[i].Comm = messages{c}
			comms[i] = all[i]
		}
	}
	return comms, all
}

// passes are those of one rank, in ctx; what it has computed goes into out.
func (k *killed) passes(ctx context.Context, c Comm, m *mortal, d *flash.Device, out *results) (err error) {
	r, err := New(c, d)
	if err != nil {
		return err
	}
	m.begin("plan")
	plan, err := r.Plan(ctx, k.sample.problem, k.shard)
	if err != nil {
		return err
	}
	defer func() {
		if e := plan.Close(); !errors.Is(e, flash.ErrDeviceLost) {
			err = errors.Join(err, e)
		}
	}()
	x, err := k.sample.place(context.WithoutCancel(ctx), d, plan)
	if err != nil {
		c.Abort(err) // the ring knows nothing of the caller's copies
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	m.begin("forward")
	if err := plan.Forward(ctx, k.sample.forward(&x)); err != nil {
		return err
	}
	m.begin("backward")
	if err := plan.Backward(ctx, k.sample.backward(&x, false)); err != nil {
		return err
	}
	m.begin("after")
	if m.by == loses && m.phase != "" {
		return nil // the loss may come now
	}
	return k.sample.collect(context.WithoutCancel(ctx), plan, &x, out)
}

// count runs the passes with nobody killed, which compiles what they need, and counts calls.
func (k *killed) count(t *testing.T) {
	var comms []Comm
	var all []*mortal
	k.clean = newResults(&k.sample.problem, k.ranks)
	ctx := soon(t)
	devices := sharedDevices(t, k.ranks)
	for range 2 { // the first compiles
		comms, all = k.comms(t)
		begun := time.Now()
		require.NoError(t, errors.Join(each(comms, func(rank int, c Comm) error {
			return k.passes(ctx, c, all[rank], devices[rank], &k.clean)
		})...))
		k.took = time.Since(begun)
	}
	k.sample.judge(t, &k.clean)
	for _, m := range all {
		k.phases = append(k.phases, m.calls)
	}
}

// fates is what became of the ranks that were left, added up.
type fates struct {
	kills, late     int // late: the killed rank's passes were over
	told, timed     int // have an error that names the rank; have one of their own time
	done            int // were done before, with the right result
	longest, summed time.Duration
}

// kill ends one rank in a phase, and checks the others.
func (k *killed) kill(t *testing.T, r *rand.Rand, by ending, phase string, to *fates) {
	var may []int
	for rank := range k.ranks {
		if k.phases[rank][phase] > 0 {
			may = append(may, rank)
		}
	}
	victim := may[r.IntN(len(may))]
	devices := slices.Clone(sharedDevices(t, k.ranks))
	comms, all := k.comms(t)
	limit := time.Minute // others are told long before
	m := all[victim]
	m.by, m.phase, m.at = by, phase, 1+r.IntN(k.phases[victim][phase])
	switch by {
	case stops:
		limit = max(stopped, 20*k.took)
	case loses:
		limit = 4 * time.Minute // its kernels are compiled anew
		faults := vk.NewFaults()
		devices[victim] = openDevice(t, flash.WithFaults(faults), flash.WithDevice(strconv.Itoa(devices[victim].Info().Index)))
		kind, n := [...]string{"submit", "wait"}[r.IntN(2)], 1+r.IntN(3)
		m.lose = func() error { return faults.Arm(kind, n, vk.ErrDeviceLost) }
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, when := k.clean.clone(), make([]time.Time, k.ranks)
	errs := each(comms, func(rank int, c Comm) error {
		own, stop := context.WithCancel(ctx)
		if rank == victim && by == stops {
			own, stop = context.WithTimeout(t.Context(), time.Minute) // the others give up first
		}
		defer stop()
		all[rank].cancel = stop
		err := k.passes(own, c, all[rank], devices[rank], &out)
		when[rank] = time.Now()
		return err
	})

	what := fmt.Sprintf("%s, rank %d %v, %s, call %d", k.name, victim, by, phase, m.at)
	require.False(t, m.ended.IsZero(), "%s: it was not reached: %v", what, errs)
	to.kills++
	late := errs[victim] == nil
	if late {
		require.Contains(t, []ending{cancels, loses}, by, what)
		to.late++
	}
	if by == loses && !late {
		require.ErrorIs(t, errs[victim], flash.ErrDeviceLost, what)
	}
	for rank, err := range errs {
		if rank == victim {
			continue
		}
		var named *RankError
		switch {
		case err == nil: // nothing of the killed rank was missing
			to.done++
		case errors.As(err, &named) && (named.Rank == victim || by == stops):
			to.told++
			require.True(t, by != loses || errors.Is(err, flash.ErrDeviceLost), "%s: %v", what, err)
			require.True(t, by != cancels || errors.Is(err, context.Canceled), "%s: %v", what, err)
		case by == stops && errors.Is(err, context.DeadlineExceeded):
			to.timed++
		default:
			t.Errorf("%s: rank %d: %v", what, rank, err)
		}
		if err != nil {
			require.False(t, late, "%s: rank %d: %v", what, rank, err)
			took := when[rank].Sub(m.ended)
			to.summed += took
			to.longest = max(to.longest, took)
			require.Less(t, when[rank].Sub(begun), limit+slack, "%s: rank %d: %v", what, rank, err)
		}
	}
	if by != loses {
		require.Equal(t, k.clean, out, "%s: results of those that were done", what)
	}

	// The devices of those that are left work on.
	left := slices.Delete(devices, victim, victim+1)
	comms, err := Local(len(left))
	require.NoError(t, err)
	s := newSample(t, r, small)
	got, err := s.run(soon(t), left, comms, Shard{}, 1, nil)
	require.NoError(t, err, what)
	s.judge(t, &got[0])
}

const (
	stopped = 1500 * time.Millisecond // how long ranks wait for one that has stopped, at least
	slack   = 30 * time.Second        // of a busy machine
)

// clone is a copy that shares nothing.
func (r *results) clone() results {
	out := *r
	for _, a := range []*ref.Array{&out.o, &out.lse, &out.dq, &out.dk, &out.dv, &out.dbias} {
		a.Data = slices.Clone(a.Data)
	}
	out.dsinks, out.dcaptured, out.maxLogit = slices.Clone(r.dsinks), slices.Clone(r.dcaptured), slices.Clone(r.maxLogit)
	return out
}

// kills is how many ranks are killed: VKATTN_KILLS (tools/killtest.sh), else some.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("VKATTN_KILLS")); err == nil {
		return n
	}
	if testing.Short() {
		return 8
	}
	return 40
}

// TestKilledRanks ends ranks in every phase of a pass, in every way: the others have errors that name the rank, or where it says nothing,
// errors within their time; those that needed nothing more of it have the right result; and the others' devices work on.
func TestKilledRanks(t *testing.T) {
	old := pieceBytes
	pieceBytes = 512 // several pieces of each block
	t.Cleanup(func() { pieceBytes, mapsMemory = old, true })
	type way struct {
		*killed
		by    ending
		phase string
	}
	ones := killedOnes(t)
	byEnding := make([][]way, endings)
	for _, k := range ones {
		k.count(t)
		if t.Failed() {
			return
		}
		phases := map[string]bool{}
		for _, calls := range k.phases {
			for phase := range calls {
				phases[phase] = true
			}
		}
		for _, phase := range slices.Sorted(maps.Keys(phases)) {
			for by := range endings {
				byEnding[by] = append(byEnding[by], way{k, by, phase})
			}
		}
	}
	r := rand.New(rand.NewPCG(20261128, 200))
	var ways []way // by turns of each ending
	for by := range byEnding {
		r.Shuffle(len(byEnding[by]), func(i, j int) { byEnding[by][i], byEnding[by][j] = byEnding[by][j], byEnding[by][i] })
	}
	for i := range byEnding[0] {
		for by := range byEnding {
			ways = append(ways, byEnding[by][i])
		}
	}
	table, phases := map[string]*fates{}, map[string]int{}
	for i := range kills() {
		w := ways[i%len(ways)]
		name := fmt.Sprintf("%s %v", w.name, w.by)
		if table[name] == nil {
			table[name] = &fates{}
		}
		ok := t.Run(fmt.Sprintf("%d/%s/%s", i, name, w.phase), func(t *testing.T) { w.kill(t, r, w.by, w.phase, table[name]) })
		if !ok {
			break
		}
		phases[w.phase]++
	}
	var sum fates
	for _, name := range slices.Sorted(maps.Keys(table)) {
		x := table[name]
		t.Logf("%s: %v", name, x)
		sum.kills, sum.late, sum.told, sum.timed, sum.done = sum.kills+x.kills, sum.late+x.late, sum.told+x.told, sum.timed+x.timed,
			sum.done+x.done
		sum.longest, sum.summed = max(sum.longest, x.longest), sum.summed+x.summed
	}
	t.Logf("all: %v", &sum)
	names := slices.SortedFunc(maps.Keys(phases), func(a, b string) int { return cmp.Or(phases[b]-phases[a], strings.Compare(a, b)) })
	t.Logf("%d phases of %d ways: %v", len(names), len(ways), names)
}

func (f *fates) String() string {
	mean := time.Duration(0)
	if n := f.told + f.timed; n > 0 {
		mean = f.summed / time.Duration(n)
	}
	return fmt.Sprintf("%d killed, %d of them after their passes; others: %d named the rank, %d ran into their time, %d were done; errors "+
		"%v after the kill, %v at most", f.kills, f.late, f.told, f.timed, f.done, mean.Round(time.Millisecond),
		f.longest.Round(time.Millisecond))
}
