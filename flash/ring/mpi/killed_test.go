//go:build mpi

package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

// killVariable says which rank of a "killed" world is killed in which of its calls of the Comm, and how ranks are spread: "way rank call";
// call 0 kills nobody.
const killVariable = "VKATTN_TEST_MPI_KILL"

// killedWays are what ranks compute when one of them is killed.
var killedWays = []struct {
	name  string
	ranks int
	shard ring.Shard
}{
	{"ring", 2, ring.Shard{}}, {"ring", 3, ring.Shard{}}, {"heads", 2, ring.Shard{Over: ring.Heads}}, {"ring", 4, ring.Shard{}},
	{"both", 4, ring.Shard{Over: ring.Both, PerHost: 2}},
}

// killedVariant has gatherings too, of sinks' gradients.
var killedVariant = variant{flash.Problem{Batch: 1, Heads: 2, QueryLen: 151, HeadDim: 16, DType: flash.F32,
	Causal: flash.CausalBottomRight, Sinks: true}, nil}

const (
	killedLimit = 3 * time.Second  // of all that a rank does while another is killed, at least
	killedSlack = 60 * time.Second // of a busy machine
)

// mortal is a Comm whose process is killed in one of its calls.
type mortal struct {
	ring.Comm
	at int // from 1; 0: in none

	mu    sync.Mutex
	pass  string // "" counts nothing
	calls int
}

func (m *mortal) begin(pass string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pass = pass
}

func (m *mortal) call(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pass == "" {
		return
	}
	if m.calls++; m.calls == m.at {
		fmt.Printf("killed in %s: %s.\n", m.pass, what)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) Send(ctx context.Context, to int, tag ring.Tag, data []byte) error {
	m.call("send " + tagName(tag))
	return m.Comm.Send(ctx, to, tag, data)
}

func (m *mortal) Receive(ctx context.Context, from int, tag ring.Tag, data []byte) error {
	m.call("receive " + tagName(tag))
	return m.Comm.Receive(ctx, from, tag, data)
}

// tagName says what package ring sends by a tag, for the list of phases alone.
func tagName(t ring.Tag) string {
	what := [...]string{"a block", "that it was taken", "gradients home", "that they were taken", "heads in", "that they were taken",
		"heads out", "that they were taken"}
	return [...]string{"", "within a host, ", "between hosts, "}[t/16] + what[t%16]
}

func (m *mortal) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	m.call("gather")
	return m.Comm.AllGather(ctx, mine)
}

// killed is a rank of a world of which one is killed: it has an error within its time, or was done with the right result, and its device
// works on.
func killed(ctx context.Context, c Comm) (err error) {
	var way, rank, call int
	if _, err := fmt.Sscan(os.Getenv(killVariable), &way, &rank, &call); err != nil {
		return err
	}
	d, err := flash.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m := &mortal{Comm: c}
	if rank == c.Rank() {
		m.at = call
	}
	r, err := ring.New(m, d)
	if err != nil {
		return err
	}
	once := func(ctx context.Context, counts bool) (values [][]float32, err error) {
		pass := func(name string) {
			if counts {
				m.begin(name)
			}
		}
		pass("plan")
		plan, err := r.Plan(ctx, killedVariant.problem, killedWays[way].shard)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, plan.Close()) }()
		x, err := killedVariant.place(context.WithoutCancel(ctx), c.Size(), d, plan)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, x.close()) }()
		pass("forward")
		if err := plan.Forward(ctx, x.forward); err != nil {
			return nil, err
		}
		pass("backward")
		if err := plan.Backward(ctx, x.backward); err != nil {
			return nil, err
		}
		m.begin("")
		return x.download(context.WithoutCancel(ctx))
	}
	var clean [][]float32
	limit := killedLimit
	for i := range 2 { // the first compiles kernels
		begun := time.Now()
		if clean, err = once(ctx, false); err != nil {
			return err
		}
		if i > 0 {
			limit = max(limit, 20*time.Since(begun))
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	values, err := once(limited, true)
	took := time.Since(begun)
	fate := ""
	switch {
	case err == nil && !reflect.DeepEqual(values, clean):
		return errors.New("other results than without a kill")
	case err == nil && call == 0:
		fmt.Printf("rank %d made %d calls\n", c.Rank(), m.calls)
		return nil
	case err == nil:
		fate = "was done"
	case took > limit+killedSlack:
		return fmt.Errorf("an error after %v: %w", took, err)
	case errors.Is(err, ring.ErrRank):
		fate = "was told"
	case errors.Is(err, context.DeadlineExceeded):
		fate = "ran into its time"
	default:
		return fmt.Errorf("neither of another rank nor of its time: %w", err)
	}
	c.Abort(fmt.Errorf("no more of rank %d: %w", rank, cmp.Or(err, errors.New("it is done"))))
	fmt.Printf("rank %d %s after %d ms of %d\n", c.Rank(), fate, took.Milliseconds(), limit.Milliseconds())
	alone, err := ring.Local(1)
	if err != nil {
		return err
	}
	one, err := ring.New(alone[0], d)
	if err != nil {
		return err
	}
	return killedVariant.compute(ctx, alone[0], one, ring.Shard{}, func(*ring.Plan) error { return nil })
}

// killOne runs a world of a way in which a rank is killed.
func killOne(t *testing.T, way, rank, call int, flags ...string) (string, error) {
	t.Helper()
	t.Setenv(killVariable, fmt.Sprint(way, " ", rank, " ", call))
	return start(t, "killed", killedWays[way].ranks, flags...)
}

// calls gives the number of calls of each rank with nobody killed.
func killedCalls(t *testing.T, way int) (calls []int) {
	t.Helper()
	out, err := killOne(t, way, 0, 0)
	require.NoError(t, err, out)
	for rank := range killedWays[way].ranks {
		found := regexp.MustCompile(fmt.Sprintf(`(?m)^rank %d made (\d+) calls$`, rank)).FindStringSubmatch(out)
		require.NotNil(t, found, out)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		calls = append(calls, n)
	}
	return calls
}

// kills is how many processes are killed: VKATTN_KILLS (tools/killtest.sh), else a few.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("VKATTN_KILLS")); err == nil {
		return n
	}
	return 5
}

var (
	killedPhase = regexp.MustCompile(`(?m)^killed in (.*)\.$`)
	killedFate  = regexp.MustCompile(`(?m)^rank \d+ (was done|was told|ran into its time) after (\d+) ms of (\d+)$`)
)

// TestKilledProcesses kills a process in a call of a pass, drawn over all calls. mpirun is told to let the others live: each has an error
// within its time, or needed nothing more, and computes what is right on its device.
func TestKilledProcesses(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	r := rand.New(rand.NewPCG(20261128, 9))
	calls := map[int][]int{}
	fates, phases := map[string]int{}, map[string]int{}
	var over []int // ms beyond their time; below 0: within it
	for i := range kills() {
		way := i % len(killedWays)
		if calls[way] == nil {
			calls[way] = killedCalls(t, way)
		}
		ranks := killedWays[way].ranks
		rank := r.IntN(ranks)
		call := 1 + r.IntN(calls[way][rank])
		out, _ := killOne(t, way, rank, call, "--enable-recovery") // its status is that of the killed
		what := fmt.Sprintf("%s of %d, rank %d of %v in call %d: %s", killedWays[way].name, ranks, rank, calls[way], call, out)
		in := killedPhase.FindStringSubmatch(out)
		require.NotNil(t, in, what)
		phases[killedWays[way].name+" "+in[1]]++
		all := killedFate.FindAllStringSubmatch(out, -1)
		require.Len(t, all, ranks-1, what)
		require.Equal(t, ranks-1, strings.Count(out, done), what)
		for _, x := range all {
			fates[x[1]]++
			took, err := strconv.Atoi(x[2])
			require.NoError(t, err)
			limit, err := strconv.Atoi(x[3])
			require.NoError(t, err)
			over = append(over, took-limit)
		}
		if (i+1)%20 == 0 {
			t.Logf("%d killed, others: %v, at most %d ms beyond their time", i+1, fates, slices.Max(over))
		}
	}
	t.Logf("%d killed, in %d phases: %v", kills(), len(phases), slices.Sorted(maps.Keys(phases)))
	t.Logf("others: %v, at most %d ms beyond their time", fates, slices.Max(over))
}

// TestKilledByDefault: mpirun that is not told to let ranks live ends the others, and says of the one that it was killed.
func TestKilledByDefault(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	calls := killedCalls(t, 0)
	begun := time.Now()
	out, err := killOne(t, 0, 1, 1+calls[1]/2)
	require.Error(t, err)
	require.NotNil(t, killedPhase.FindStringSubmatch(out), out)
	require.Contains(t, out, "signal 9")
	require.NotContains(t, out, done)
	require.Less(t, time.Since(begun), 5*time.Minute)
}
