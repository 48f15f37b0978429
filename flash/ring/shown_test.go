package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// counted counts the bytes that a Comm of messages carries, and may change what it gathers.
type counted struct {
	Comm
	sent     *atomic.Int64
	announce func(mine []byte) []byte // nil: as it is
}

func (c counted) Send(ctx context.Context, to int, tag Tag, data []byte) error {
	c.sent.Add(int64(len(data)))
	return c.Comm.Send(ctx, to, tag, data)
}

func (c counted) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if c.announce != nil {
		mine = c.announce(mine)
	}
	return c.Comm.AllGather(ctx, mine)
}

// shows says whether ranks of this host that are no goroutines of one process show one another memory.
func shows(t *testing.T, devices []*flash.Device) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		return false
	}
	for _, d := range devices {
		m, err := hostmem.NewMover(d)
		require.NoError(t, err)
		h, err := hostmem.NewShared(1)
		require.NoError(t, err)
		imports := m.Imports(h)
		require.NoError(t, errors.Join(m.Close(), h.Close()))
		if !imports {
			return false
		}
	}
	return true
}

// send has ranks that are no goroutines of one process send bytes during a test, and gather nothing about memory.
func send(t *testing.T) {
	mapsMemory = false
	t.Cleanup(func() { mapsMemory = true })
}

// TestProcessesShow: ranks whose Comm only carries messages, as those of processes do, map one another's memory, and no bytes are sent;
// where one rank cannot, all send them. Results are the same bits, those of ranks that share a process.
func TestProcessesShow(t *testing.T) {
	old := pieceBytes
	pieceBytes = 512
	t.Cleanup(func() { pieceBytes, mapsMemory = old, true })
	host := func() string {
		m, err := hostmem.NewShared(1)
		require.NoError(t, err)
		defer m.Close()
		if d := m.Descriptor(); d != nil {
			return d.Host
		}
		return "none"
	}()
	elsewhere := func(mine []byte) []byte { return bytes.ReplaceAll(mine, []byte(host), []byte("another")) }
	closed := func(mine []byte) []byte { return bytes.ReplaceAll(mine, []byte(`"PID":`), []byte(`"PID":9`)) }
	for _, x := range []struct {
		name  string
		ranks int
		shard Shard
	}{{"ring", 3, Shard{}}, {"heads", 2, Shard{Over: Heads}}, {"both", 4, Shard{Over: Both, PerHost: 2}}} {
		devices := sharedDevices(t, x.ranks)
		s := newSample(t, rand.New(rand.NewPCG(5, uint64(x.ranks))), everything)
		// run gives results, and by rank whether it and its host among hosts copy directly.
		run := func(t *testing.T, wrap func(rank int, c Comm) Comm) (results, []bool) {
			comms, err := Local(x.ranks)
			require.NoError(t, err)
			for i := range comms {
				comms[i] = wrap(i, comms[i])
			}
			direct := make([]bool, 2*x.ranks)
			got, err := s.run(soon(t), devices, comms, x.shard, 2, func(p *Plan) {
				rank := p.ring.name(p.ring.Rank())
				direct[rank], direct[x.ranks+rank] = p.Direct(), p.hosts != nil && p.hosts.Direct()
			})
			require.NoError(t, err)
			s.judge(t, &got[0])
			require.Equal(t, got[0], got[1], "again, with the same memory")
			return got[0], direct
		}
		want, _ := run(t, func(_ int, c Comm) Comm { return c })
		for _, way := range []struct {
			name     string
			maps     bool
			announce func([]byte) []byte // by the last rank
		}{{"mapped", true, nil}, {"sent", false, nil}, {"another host", true, elsewhere}, {"gone", true, closed}} {
			t.Run(fmt.Sprint(x.name, "/", way.name), func(t *testing.T) {
				mapsMemory = way.maps
				var sent atomic.Int64
				got, direct := run(t, func(rank int, c Comm) Comm {
					m := counted{Comm: messages{c}, sent: &sent}
					if rank == x.ranks-1 {
						m.announce = way.announce
					}
					return m
				})
				require.Equal(t, want, got)
				maps := way.maps && shows(t, devices)
				wants := make([]bool, 2*x.ranks)
				for rank := range x.ranks { // all of a group with the last rank, where that is announced wrongly, or none
					together := way.announce == nil
					if x.shard.Over == Both {
						wants[rank] = maps && (together || rank/2 == 0)
						wants[x.ranks+rank] = maps && (together || rank%2 == 0)
						continue
					}
					wants[rank] = maps && together
				}
				require.Equal(t, wants, direct)
				require.Equal(t, maps && way.announce == nil, sent.Load() == 0, "%d bytes were sent", sent.Load())
			})
		}
	}
	mapsMemory = true
	if runtime.GOOS == "linux" { // plans are closed, and what they mapped with them
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		require.NotContains(t, string(maps), "memfd:vkattn")
	}
}

// TestRecorderSends: where one rank writes down what is sent, all send, goroutines of one process or not.
func TestRecorderSends(t *testing.T) {
	goroutine := func(c Comm) Comm { return c }
	process := func(c Comm) Comm { return messages{c} }
	for _, x := range []struct {
		ranks int
		shard Shard
		wrap  func(Comm) Comm
	}{{2, Shard{}, goroutine}, {4, Shard{Over: Both, PerHost: 2}, goroutine}, {2, Shard{}, process},
		{4, Shard{Over: Both, PerHost: 2}, process}} {
		comms, err := Local(x.ranks)
		require.NoError(t, err)
		for i, c := range comms {
			comms[i] = x.wrap(c)
		}
		r := Record(comms[0])
		comms[0] = r
		s := newSample(t, rand.New(rand.NewPCG(6, uint64(x.ranks))), everything)
		got, err := s.run(soon(t), sharedDevices(t, x.ranks), comms, x.shard, 1, nil)
		require.NoError(t, err)
		s.judge(t, &got[0])
		bytes := 0
		for _, x := range r.Sent() {
			bytes += x.Bytes
		}
		require.Positive(t, bytes)
	}
}

// TestNoSharerAmongSharers: a rank whose Comm hides that it is one of this process is named by those who share memory.
func TestNoSharerAmongSharers(t *testing.T) {
	comms, err := Local(2)
	require.NoError(t, err)
	comms[1] = messages{comms[1]}
	s := newSample(t, rand.New(rand.NewPCG(6, 2)), everything)
	_, err = s.run(soon(t), sharedDevices(t, 2), comms, Shard{}, 1, nil)
	var which *RankError
	require.ErrorAs(t, err, &which)
	require.ErrorContains(t, err, "no Sharer")
}
