package ring

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// moved adds up what a recorder saw, keys and values apart from gradients.
func moved(of []Transfer) (blocks, gradients float64) {
	for _, x := range of {
		switch x.Tag {
		case tagBlock:
			blocks += float64(x.Bytes)
		case tagGradients:
			gradients += float64(x.Bytes)
		}
	}
	return blocks, gradients
}

// model counts the sample's problem.
func (s *sample) model(t *testing.T, shard Shard, ranks int) *Model {
	t.Helper()
	m, err := NewModel(s.problem, shard, ranks)
	require.NoError(t, err)
	if s.queryStarts != nil {
		m, err = m.Sequences(s.queryStarts, s.keyStarts)
		require.NoError(t, err)
	}
	if s.queryStarts != nil || hasLengths(&s.problem) {
		m, err = m.Lengths(s.queryLengths, s.keyLengths)
		require.NoError(t, err)
	}
	if s.blockBits != nil {
		m, err = m.BlockMask(s.blockBits)
		require.NoError(t, err)
	}
	return m
}

// recorded are ranks over messages, and what counts those of each.
func recorded(t *testing.T, ranks int) ([]*Recorder, []Comm) {
	t.Helper()
	send(t)
	comms, err := Local(ranks)
	require.NoError(t, err)
	recorders, wrapped := make([]*Recorder, ranks), make([]Comm, ranks)
	for i := range comms {
		recorders[i] = Record(comms[i])
		wrapped[i] = recorders[i]
	}
	return recorders, wrapped
}

// requireRight runs ranks twice, the same both times and as the oracle says; three over messages too, whose bytes are the model's.
func (s *sample) requireRight(t *testing.T, devices []*flash.Device, shard Shard, ranks int) {
	t.Helper()
	comms, err := Local(ranks)
	require.NoError(t, err)
	got, err := s.run(soon(t), devices, comms, shard, 2, nil)
	require.NoError(t, err)
	s.judge(t, &got[0])
	require.Equal(t, got[0], got[1], "the second run")
	if ranks == 3 {
		require.Equal(t, got[0], requireModelOfBytes(t, s, devices, shard, ranks), "over messages, not memory that ranks share")
	}
}

// requireModelOfBytes runs ranks over messages, compares the model with what they send and receive, and gives their results.
func requireModelOfBytes(t *testing.T, s *sample, devices []*flash.Device, shard Shard, ranks int) results {
	t.Helper()
	m := s.model(t, shard, ranks)
	recorders, wrapped := recorded(t, ranks)
	got, err := s.run(soon(t), devices, wrapped, shard, 1, nil)
	require.NoError(t, err)
	agreed, err := json.Marshal(statement{Fields: stated(s.problem, shard, ranks)})
	require.NoError(t, err)
	for rank, r := range recorders {
		b := m.Moved(rank)
		require.Equal(t, float64((ranks-1)*len(agreed))+b.ForwardGathered+b.BackwardGathered, float64(r.Gathered()),
			"gathered by rank %d", rank)
		var want Step
		for _, x := range m.Steps(rank) {
			want.Received += x.Received
			want.Sent += x.Sent
			want.Gave += x.Gave
			want.Got += x.Got
		}
		blocks, gradients := moved(r.Sent()) // of a forward and a backward pass
		require.Equal(t, 2*want.Sent, blocks, "blocks sent by rank %d", rank)
		require.Equal(t, want.Gave, gradients, "gradients sent by rank %d", rank)
		blocks, gradients = moved(r.Received())
		require.Equal(t, 2*want.Received, blocks, "blocks received by rank %d", rank)
		require.Equal(t, want.Got, gradients, "gradients received by rank %d", rank)
	}
	return got[0]
}

// simulate has ranks exchange what the schedule says, without devices, and gives what each recorded.
func simulate(t *testing.T, p flash.Problem, ranks int) ([]*Recorder, *Model) {
	m, err := NewModel(p, Shard{}, ranks)
	require.NoError(t, err)
	comms, err := Local(ranks)
	require.NoError(t, err)
	recorders := make([]*Recorder, ranks)
	ctx := t.Context()
	var mu sync.Mutex
	var failed error
	fail := func(err error) {
		if err != nil {
			mu.Lock()
			failed = err
			mu.Unlock()
			comms[0].Abort(err)
		}
	}
	var wait sync.WaitGroup
	for rank := range ranks {
		recorders[rank] = Record(comms[rank])
		c := recorders[rank]
		steps := m.Steps(rank)
		wait.Go(func() {
			for _, x := range steps {
				if x.Sent > 0 {
					fail(c.Send(ctx, (rank+x.Number)%ranks, tagBlock, make([]byte, int(x.Sent))))
				}
				if x.Gave > 0 {
					fail(c.Send(ctx, (rank-x.Number+ranks)%ranks, tagGradients, make([]byte, int(x.Gave))))
				}
			}
		})
		wait.Go(func() {
			for _, x := range steps {
				if x.Received > 0 {
					fail(c.Receive(ctx, (rank-x.Number+ranks)%ranks, tagBlock, make([]byte, int(x.Received))))
				}
				if x.Got > 0 {
					fail(c.Receive(ctx, (rank+x.Number)%ranks, tagGradients, make([]byte, int(x.Got))))
				}
			}
		})
	}
	wait.Wait()
	require.NoError(t, failed)
	return recorders, m
}

// TestSimulation: of 8 to 1024 ranks each receives from every other, once, what the formulas of docs/scale.md say.
func TestSimulation(t *testing.T) {
	counts := []int{8, 64}
	if !testing.Short() {
		counts = append(counts, 256, 1024)
	}
	for _, ranks := range counts {
		p := flash.Problem{Batch: 1, Heads: 1, QueryLen: 2 * granule * ranks, HeadDim: 1, DType: flash.F16, Causal: flash.CausalBottomRight}
		recorders, _ := simulate(t, p, ranks)
		block := float64(2 * granule * 2 * 2) // tokens, keys and values of one column, two bytes
		for rank, r := range recorders {
			blocks, gradients := moved(r.Received())
			require.Equal(t, float64(ranks-1)*block, blocks, "rank %d of %d", rank, ranks)
			// What later ranks see of a block is its first chunk alone, and what earlier ones see is all of it.
			require.Equal(t, (float64(ranks-1-rank)/2+float64(rank))*block, gradients, "rank %d of %d", rank, ranks)
		}
	}
}

// links are those of docs/scale.md.
var links = []struct {
	name  string
	speed Speeds
}{
	{"PCIe 5 x16, by the host", Speeds{Link: 45e9, Latency: 60e-6}},
	{"NVLink 4", Speeds{Link: 400e9, Latency: 10e-6}},
	{"400 Gb/s", Speeds{Link: 45e9, Latency: 15e-6}},
}

// scaleTable predicts speed-ups, as docs/scale.md has them.
func scaleTable(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| link | tokens | ranks | forward × | of ideal | backward × | of ideal | GiB a rank |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|")
	for _, l := range links {
		for _, tokens := range []int{128 << 10, 1 << 20} {
			for _, ranks := range []int{2, 8, 64, 256, 1024} {
				m, err := NewModel(flash.Problem{Batch: 1, Heads: 16, QueryLen: tokens, HeadDim: 128, DType: flash.F16,
					Causal: flash.CausalBottomRight}, Shard{}, ranks)
				if err != nil {
					continue // too short
				}
				v := l.speed
				v.Forward, v.Backward = 350e12, 270e12
				f, g := m.Forward(v), m.Backward(v)
				fmt.Fprintf(&b, "| %s | %dk | %d | %.4g | %.0f %% | %.4g | %.0f %% | %.2g |\n", l.name, tokens>>10, ranks, f.One/f.Ranks,
					100*f.One/f.Ranks/float64(ranks),
					g.One/g.Ranks, 100*g.One/g.Ranks/float64(ranks), m.Memory()/(1<<30))
			}
		}
	}
	return b.String()
}

// TestScaleTable: the table in docs/scale.md is what the model says.
func TestScaleTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	require.Contains(t, string(page), scaleTable(t), "docs/scale.md must have this table")
}

// TestModelMemory: memory of a rank falls with their number, as buffers on a device do.
func TestModelMemory(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 2, QueryLen: 4096, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight}
	of := func(ranks int) float64 {
		m, err := NewModel(p, Shard{}, ranks)
		require.NoError(t, err)
		return m.Memory()
	}
	for _, ranks := range []int{2, 4, 8, 16} {
		require.InEpsilon(t, of(ranks)/2, of(2*ranks), 0.01)
	}
}

// TestMemoryOfARank: what a rank allocates on its device falls with the number of ranks, and is what the model says.
func TestMemoryOfARank(t *testing.T) {
	vktest.Long(t, "memory of ranks that divide heads in TestHeadsMemory")
	p := flash.Problem{Batch: 1, Heads: 2, QueryLen: 2048, HeadDim: 16, DType: flash.F32, Causal: flash.CausalBottomRight}
	var peaks []float64
	for _, ranks := range []int{3, 6} { // with fewer, not every place for blocks is used
		devices := make([]*flash.Device, ranks)
		for i := range devices {
			devices[i] = openDevice(t)
		}
		m, err := NewModel(p, Shard{}, ranks)
		require.NoError(t, err)
		comms, err := Local(ranks)
		require.NoError(t, err)
		s := newSample(t, rand.New(rand.NewPCG(1, 9)), p)
		_, err = s.run(soon(t), devices, comms, Shard{}, 1, func(plan *Plan) {
			u := plan.ring.dev.Usage()
			staged := u.ByLabel["staging upload"].Peak + u.ByLabel["staging download"].Peak
			peaks = append(peaks, float64(u.Current-staged))
		})
		require.NoError(t, err)
		for _, peak := range peaks[len(peaks)-ranks:] {
			require.InEpsilon(t, m.Memory(), peak, 0.35, "%d ranks: model %.0f, device %.0f", ranks, m.Memory(), peak)
		}
	}
	require.Less(t, peaks[len(peaks)-1], 0.6*peaks[0])
}
