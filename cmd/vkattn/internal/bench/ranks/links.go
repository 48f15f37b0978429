package ranks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/internal/plainjson"
)

// Link is how fast bytes move between a device and the host, or from one device to another over memory of the host: 10⁹ bytes a second,
// medians.
type Link struct {
	From     int     `json:"from"` // device, by its place among those measured; −1: the host
	To       int     `json:"to"`
	With     string  `json:"with,omitempty"` // what else moves at the same time: nothing, [Others] or [BothWays]
	GBps     float64 `json:"GBps"`
	Us       float64 `json:"us"`       // that a message of 64 bytes takes, 10⁻⁶ s
	Imported bool    `json:"imported"` // memory of the host is imported by both ends: no copy in between
	Apart    bool    `json:"apart"`    // copies have queues of their own, beside kernels
}

// What moves beside a link that is measured.
const (
	Others   = "others"    // every device does the same, to the next one where it is from device to device
	BothWays = "both ways" // every device sends to the host, and receives from it
)

const (
	linkPiece = 16 << 20
	linkRuns  = 5
	// smallMessage is what takes no longer than to begin and to end a copy.
	smallMessage = 64
)

// MeasureLink measures what a plan chooses from: the slowest link of devices of this process, or of those of other processes, with a comm.
// Every rank of a comm calls it, with one device.
func MeasureLink(ctx context.Context, comm ring.Comm, devices []*flash.Device) (Link, error) {
	bytes := 64 << 20
	if bench.IsCPU(devices[0].Info()) {
		bytes = 4 << 20
	}
	if comm != nil {
		return MeasureExchange(ctx, comm, devices[0], bytes)
	}
	links, err := MeasureLinks(ctx, devices, bytes)
	if err != nil {
		return Link{}, err
	}
	return Slowest(links)
}

// ReadLinks reads the lines that 'vkattn info --links --json' wrote, and gives the slowest.
func ReadLinks(path string) (l Link, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return l, err
	}
	var links []Link
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var x Link
		if err := plainjson.Unmarshal([]byte(line), &x); err != nil {
			return l, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		links = append(links, x)
	}
	if l, err = Slowest(links); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return l, err
}

// Slowest is what counts of links between devices: the slowest, and the longest latency, of those that were measured while every device
// sends, as ranks do, where there are such. Without any between devices, as of one, those with the host count.
func Slowest(links []Link) (Link, error) {
	between, together := false, false
	for _, l := range links {
		if l.From >= 0 && l.To >= 0 {
			between, together = true, together || l.With != ""
		}
	}
	out := Link{GBps: math.Inf(1)}
	for _, l := range links {
		if between != (l.From >= 0 && l.To >= 0) || together != (l.With != "") {
			continue
		}
		if !(l.GBps > 0) || math.IsInf(l.GBps, 0) || !(l.Us >= 0) || math.IsInf(l.Us, 0) {
			return out, fmt.Errorf("a link of %v GB/s and %v µs: 'vkattn info --links --json' writes them", l.GBps, l.Us)
		}
		out.GBps, out.Us = min(out.GBps, l.GBps), max(out.Us, l.Us)
	}
	if math.IsInf(out.GBps, 0) {
		return out, errors.New("no link: 'vkattn info --links --json' writes them")
	}
	return out, nil
}

// linkEnd is a device, with tensors and memory of the host: those that it sends, and those that it receives.
type linkEnd struct {
	mover   *hostmem.Mover
	out, in place
}

type place struct {
	tensor *flash.Tensor
	memory *hostmem.Memory
}

// MeasureLinks moves bytes from the host to each device, back, and from each device to each other: one is read in pieces while the pieces
// before are written to the other. Each link is measured by itself, and then with those of all devices at once, which share buses and the
// host's memory.
func MeasureLinks(ctx context.Context, devices []*flash.Device, bytes int) (out []Link, err error) {
	ends := make([]linkEnd, len(devices))
	for i, d := range devices {
		x := &ends[i]
		if x.mover, err = hostmem.NewMover(d); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, x.mover.Close()) }()
		for _, p := range []*place{&x.out, &x.in} {
			if p.tensor, err = d.NewTensor(flash.F32, 1, 1, 1, bytes/4); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, p.tensor.Close()) }()
			if p.memory, err = hostmem.New(bytes); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, p.memory.Close()) }()
		}
	}
	for _, set := range linkSets(len(devices)) {
		links, err := measureTogether(ctx, ends, set, uint64(bytes/4*4))
		if err != nil {
			return nil, err
		}
		out = append(out, links...)
	}
	return out, nil
}

// linkSets is which links are measured at once.
func linkSets(devices int) (sets [][]Link) {
	var in, out, both, round []Link
	for i := range devices {
		sets = append(sets, []Link{{From: -1, To: i}}, []Link{{From: i, To: -1}})
		in, out = append(in, Link{From: -1, To: i, With: Others}), append(out, Link{From: i, To: -1, With: Others})
		both = append(both, Link{From: -1, To: i, With: BothWays}, Link{From: i, To: -1, With: BothWays})
		round = append(round, Link{From: i, To: (i + 1) % devices, With: Others})
	}
	for i := range devices {
		for j := range devices {
			if i != j {
				sets = append(sets, []Link{{From: i, To: j}})
			}
		}
	}
	if devices == 1 {
		return append(sets, both)
	}
	return append(sets, in, out, both, round)
}

// measureTogether measures links that are used at the same time. The bytes of each are counted by its own time, so that a fast one that
// ends before the others is a little faster than it would be beside them for ever.
func measureTogether(ctx context.Context, ends []linkEnd, links []Link, bytes uint64) ([]Link, error) {
	long, short := make([][]float64, len(links)), make([][]float64, len(links))
	once := func(n uint64, times [][]float64, counts bool) error {
		var all errgroup.Group
		start := make(chan struct{})
		for i, l := range links {
			all.Go(func() error {
				<-start
				begin := time.Now()
				if err := l.move(ctx, ends, n); err != nil {
					return err
				}
				if counts {
					times[i] = append(times[i], time.Since(begin).Seconds())
				}
				return nil
			})
		}
		close(start)
		return all.Wait()
	}
	for i := range linkRuns + 1 { // the first imports memory
		if err := once(bytes, long, i > 0); err != nil {
			return nil, err
		}
		if err := once(min(bytes, smallMessage), short, i > 0); err != nil {
			return nil, err
		}
	}
	for i := range links {
		l := &links[i]
		l.GBps, l.Us = float64(bytes)/result.Median(long[i])/1e9, result.Median(short[i])*1e6
		l.Imported, l.Apart = true, true
		for _, at := range []int{l.From, l.To} {
			if at >= 0 {
				l.Imported = l.Imported && ends[at].mover.Imports(l.memory(ends))
				l.Apart = l.Apart && ends[at].mover.Apart()
			}
		}
	}
	return links, nil
}

// memory is the memory of the host that a link goes by.
func (l Link) memory(ends []linkEnd) *hostmem.Memory {
	if l.From < 0 {
		return ends[l.To].in.memory
	}
	return ends[l.From].out.memory
}

// move sends bytes over a link once.
func (l Link) move(ctx context.Context, ends []linkEnd, n uint64) error {
	switch {
	case l.From < 0:
		x := ends[l.To]
		return x.mover.ToDevice(ctx, x.in.tensor, 0, l.memory(ends), 0, n)
	case l.To < 0:
		x := ends[l.From]
		return x.mover.ToHost(ctx, l.memory(ends), 0, x.out.tensor, 0, n)
	default:
		return hand(ctx, ends[l.From], ends[l.To], n)
	}
}

// timeLink moves many bytes and few by turns, some times, and gives the speed in 10⁹ bytes a second and what a small message takes, in 10⁻⁶
// s: medians.
func timeLink(bytes uint64, once func(bytes uint64) (seconds float64, err error)) (gbps, us float64, err error) {
	var long, short []float64
	for i := range linkRuns + 1 {
		a, err := once(bytes)
		if err != nil {
			return 0, 0, err
		}
		b, err := once(min(bytes, smallMessage))
		if err != nil {
			return 0, 0, err
		}
		if i > 0 { // the first imports memory
			long, short = append(long, a), append(short, b)
		}
	}
	return float64(bytes) / result.Median(long) / 1e9, result.Median(short) * 1e6, nil
}

// hand moves a tensor of one device to another, by way of memory of the host.
func hand(ctx context.Context, x, y linkEnd, n uint64) error {
	pieces := make(chan [2]uint64, n/linkPiece+1)
	var read, written error
	var wait sync.WaitGroup
	wait.Go(func() {
		defer close(pieces)
		for at := uint64(0); at < n && read == nil; at += linkPiece {
			size := min(linkPiece, n-at)
			if read = x.mover.ToHost(ctx, x.out.memory, at, x.out.tensor, at, size); read == nil {
				pieces <- [2]uint64{at, size}
			}
		}
	})
	for p := range pieces {
		if written == nil {
			written = y.mover.ToDevice(ctx, y.in.tensor, p[0], x.out.memory, p[0], p[1])
		}
	}
	wait.Wait()
	return errors.Join(read, written)
}
