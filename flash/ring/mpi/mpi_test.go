//go:build mpi && cgo

package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

const (
	roleVariable = "VKATTN_TEST_MPI_ROLE" // what a process that mpirun has started does instead of tests
	done         = "is as it should be"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play is one rank of a test.
func play(role string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	options := Options{Leave: 30 * time.Second}
	if role == "dies" || role == "killed" {
		options.Leave = time.Second
	}
	c, err := Open(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("rank %d: %w", c.Rank(), err)
			c.Abort(err)
		} else {
			fmt.Printf("rank %d of %d %s\n", c.Rank(), c.Size(), done)
		}
		if left := c.Close(); left != nil && role != "dies" && role != "killed" {
			err = errors.Join(err, left)
		}
	}()
	return map[string]func(context.Context, Comm) error{
		"messages": messages, "ring": compute, "elsewhere": elsewhere,
		"abort": abort, "leaves": leaves, "lengths": lengths, "missing": missing, "dies": dies,
		"killed": killed,
	}[role](ctx, c)
}

// start runs a role in n processes and gives what they have written.
func start(t *testing.T, role string, n int, flags ...string) (string, error) {
	t.Helper()
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		if os.Getenv("VKATTN_REQUIRE_MPI") == "1" {
			t.Fatal(err)
		}
		t.Skip("no mpirun (Debian, Ubuntu: apt-get install openmpi-bin):", err)
	}
	args := append([]string{"--oversubscribe", "--bind-to", "none", "-n", strconv.Itoa(n)}, flags...)
	if os.Getuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	args = append(append(args, strings.Fields(os.Getenv("VKATTN_EXEC"))...), os.Args[0])
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, mpirun, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

func TestWorlds(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, role := range []string{"messages", "ring", "elsewhere"} {
			if role == "elsewhere" && n == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", role, n), func(t *testing.T) {
				out, err := start(t, role, n)
				require.NoError(t, err, out)
				require.Equal(t, n, strings.Count(out, done), out)
			})
		}
	}
}

// TestFailures: however ranks fail, the others are told, and every process ends by itself.
func TestFailures(t *testing.T) {
	for _, role := range []string{"abort", "leaves", "lengths", "missing"} {
		t.Run(role, func(t *testing.T) {
			out, err := start(t, role, 3)
			require.NoError(t, err, out)
			require.Equal(t, 3, strings.Count(out, done), out)
		})
	}
}

// TestDeath: a process is killed, and the others have an error within their limit. mpirun is told to let them live.
func TestDeath(t *testing.T) {
	begun := time.Now()
	out, _ := start(t, "dies", 3, "--enable-recovery") // its status is that of the dead
	require.Equal(t, 2, strings.Count(out, done), out)
	require.Less(t, time.Since(begun), 5*time.Minute)
}

// TestSecondOpen: MPI begins once.
func TestSecondOpen(t *testing.T) {
	defer opened.Store(opened.Swap(true))
	_, err := Open(t.Context(), Options{})
	require.ErrorIs(t, err, ErrOpen)
}

func fill(n, from, to, tag int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>12 + from + 3*to + 5*tag)
	}
	return data
}

// messages: every pair of ranks at once, by several tags that are taken in another order, of lengths about those of pieces; and gatherings.
func messages(ctx context.Context, c Comm) error {
	lengths := []int{0, 1, 12345, piece - 1, piece, piece + 1, 6*piece + 17}
	rank, size := c.Rank(), c.Size()
	if r, n := c.Host(); r < 0 || r >= n || n != size {
		return fmt.Errorf("rank %d of %d on this host", r, n)
	}
	var wait sync.WaitGroup
	errs := make(chan error, 2*size*len(lengths)+size)
	for other := range size {
		if other == rank {
			continue
		}
		for tag, n := range lengths {
			wait.Go(func() { errs <- c.Send(ctx, other, ring.Tag(tag), fill(n, rank, other, tag)) })
		}
		wait.Go(func() {
			for tag := len(lengths) - 1; tag >= 0; tag-- {
				got := make([]byte, lengths[tag])
				if err := c.Receive(ctx, other, ring.Tag(tag), got); err != nil {
					errs <- err
				} else if !bytes.Equal(got, fill(lengths[tag], other, rank, tag)) {
					errs <- fmt.Errorf("tag %d of rank %d has brought something else", tag, other)
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	next, before := (rank+1)%size, (rank+size-1)%size
	for i := range 50 { // one route, in order, while others gather
		if size == 1 {
			break
		}
		sent := make(chan error, 1)
		go func() { sent <- c.Send(ctx, next, ring.MaxTag, []byte{byte(i)}) }()
		got := make([]byte, 1)
		if err := errors.Join(c.Receive(ctx, before, ring.MaxTag, got), <-sent); err != nil {
			return err
		}
		if got[0] != byte(i) {
			return fmt.Errorf("message %d came where %d should", got[0], i)
		}
	}
	for i := range 10 {
		if i == 5 {
			gatherMost = 700*size + 1
		}
		n := func(rank int) int { return (rank + i) % 3 * (1000 + rank) }
		all, err := c.AllGather(ctx, fill(n(rank), rank, 0, i))
		if err != nil {
			return err
		}
		for j, x := range all {
			if !bytes.Equal(x, fill(n(j), j, 0, i)) || len(all) != size {
				return fmt.Errorf("gathering %d: something else of rank %d", i, j)
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	for _, other := range []int{-1, rank, size} {
		if err := c.Send(ctx, other, 0, nil); !errors.Is(err, flash.ErrArgument) {
			return fmt.Errorf("sending to %d: %v", other, err)
		}
		if err := c.Receive(ctx, other, 0, nil); !errors.Is(err, flash.ErrArgument) {
			return fmt.Errorf("receiving from %d: %v", other, err)
		}
	}
	if size > 1 {
		if err := c.Send(ctx, next, ring.MaxTag+1, nil); !errors.Is(err, flash.ErrArgument) {
			return err
		}
	}
	return nil
}

// names says what is wrong with an error that should name a rank.
func names(err error, rank int, text string) error {
	var which *ring.RankError
	if !errors.Is(err, ring.ErrRank) || !errors.As(err, &which) || which.Rank != rank || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("%v: should name rank %d and %q", err, rank, text)
	}
	return nil
}

// others wait for rank 0 in all ways, of which the first error is given, and for one another.
func others(ctx context.Context, c Comm) error {
	var err error
	if c.Rank() == 1 {
		err = c.Receive(ctx, 0, 3, make([]byte, 100))
	} else {
		err = c.Barrier(ctx)
	}
	if again := c.Barrier(ctx); !errors.Is(again, ring.ErrRank) {
		return fmt.Errorf("after a failure: %v", again)
	}
	return err
}

func abort(ctx context.Context, c Comm) error {
	if c.Rank() == 0 {
		time.Sleep(50 * time.Millisecond)
		c.Abort(errors.New("the first cause"))
		c.Abort(errors.New("the second cause"))
		return names(c.Barrier(ctx), 0, "the first cause")
	}
	return names(others(ctx, c), 0, "the first cause")
}

// leaves: what a rank has sent before it left arrives; what it has not is an error.
func leaves(ctx context.Context, c Comm) error {
	if c.Rank() == 0 {
		return errors.Join(c.Send(ctx, 1, 1, fill(3*piece, 0, 1, 1)), c.Send(ctx, 1, 2, []byte{9}))
	}
	if c.Rank() == 1 {
		time.Sleep(20 * time.Millisecond)
		for i, n := range []int{3 * piece, 1} { // in the order they are sent: a long message is not over before it is taken
			if err := c.Receive(ctx, 0, ring.Tag(1+i), make([]byte, n)); err != nil {
				return err
			}
		}
	} else if err := c.Receive(ctx, 1, 0, nil); err != nil { // rank 1 needs nobody before it has all
		return err
	}
	if c.Rank() == 1 {
		if err := c.Send(ctx, 2, 0, nil); err != nil {
			return err
		}
	}
	return names(others(ctx, c), 0, "closed")
}

func lengths(ctx context.Context, c Comm) error {
	switch c.Rank() {
	case 0:
		if err := c.Send(ctx, 1, 0, make([]byte, 3)); err != nil { // it may be over before the other looks
			return names(err, 1, "3 bytes")
		}
	case 1:
		if err := c.Receive(ctx, 0, 0, make([]byte, 4)); !errors.Is(err, ring.ErrShards) {
			return err
		}
	}
	return names(c.Barrier(ctx), 1, "sends 3 bytes")
}

// missing: what does not come ends when the context says, and not before.
func missing(ctx context.Context, c Comm) error {
	next := (c.Rank() + 1) % 3
	for name, call := range map[string]func(context.Context) error{
		"receive": func(ctx context.Context) error { return c.Receive(ctx, next, 0, make([]byte, 9)) },
		"send":    func(ctx context.Context) error { return c.Send(ctx, next, 1, make([]byte, 9*piece)) },
		"route":   func(ctx context.Context) error { return c.Receive(ctx, next, 0, make([]byte, 9)) },
	} {
		limit := 50 * time.Millisecond
		begun := time.Now() // before the limit's own clock starts: a busy machine may stop the process between the two
		short, cancel := context.WithTimeout(ctx, limit)
		err := call(short)
		took := time.Since(begun)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprint("rank ", next)) || took < limit ||
			took > 1000*limit {
			return fmt.Errorf("%s: %v after %v", name, err, took)
		}
	}
	if err := c.Barrier(ctx); err != nil && !errors.Is(err, ring.ErrRank) { // another may be through, and have aborted
		return err
	}
	c.Abort(errors.New("enough"))
	return nil
}

func dies(ctx context.Context, c Comm) error {
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == 1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if c.Rank() == 2 { // waits for one that is well
		return names(c.Receive(ctx, 0, 0, make([]byte, 1)), 0, "waiting for rank 1")
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := c.Receive(short, 1, 0, make([]byte, 1))
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ring.ErrRank) || !strings.Contains(err.Error(), "rank 1") {
		return fmt.Errorf("%v: should name rank 1", err)
	}
	c.Abort(fmt.Errorf("waiting for rank 1: %w", err))
	return nil
}
