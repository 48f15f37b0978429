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
	GBps     float64 `json:"GBps"`
	Us       float64 `json:"us"`       // that a message of 64 bytes takes, 10⁻⁶ s
	Imported bool    `json:"imported"` // memory of the host is imported by both ends: no copy in between
	Apart    bool    `json:"apart"`    // copies have queues of their own, beside kernels
}

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

// Slowest is what counts of links between devices: the slowest, and the longest latency. Without any between devices, as of one, those with
// the host count.
func Slowest(links []Link) (Link, error) {
	between := false
	for _, l := range links {
		between = between || l.From >= 0 && l.To >= 0
	}
	out := Link{GBps: math.Inf(1)}
	for _, l := range links {
		if between && (l.From < 0 || l.To < 0) {
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

// MeasureLinks moves bytes from the host to each device, back, and from each device to each other: one is read in pieces while the pieces
// before are written to the other.
func MeasureLinks(ctx context.Context, devices []*flash.Device, bytes int) (out []Link, err error) {
	h, err := hostmem.New(bytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	type end struct {
		mover  *hostmem.Mover
		tensor *flash.Tensor
	}
	ends := make([]end, len(devices))
	for i, d := range devices {
		if ends[i].mover, err = hostmem.NewMover(d); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ends[i].mover.Close()) }()
		if ends[i].tensor, err = d.NewTensor(flash.F32, 1, 1, 1, bytes/4); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ends[i].tensor.Close()) }()
	}
	measure := func(from, to int, run func(n uint64) error) error {
		l := Link{From: from, To: to, Imported: true, Apart: true}
		var err error
		if l.GBps, l.Us, err = timeLink(uint64(bytes/4*4), func(n uint64) (seconds float64, err error) {
			start := time.Now()
			err = run(n)
			return time.Since(start).Seconds(), err
		}); err != nil {
			return err
		}
		for _, at := range []int{from, to} {
			if at >= 0 {
				l.Imported, l.Apart = l.Imported && ends[at].mover.Imports(h), l.Apart && ends[at].mover.Apart()
			}
		}
		out = append(out, l)
		return nil
	}
	for i := range ends {
		x := ends[i]
		if err := measure(-1, i, func(n uint64) error { return x.mover.ToDevice(ctx, x.tensor, 0, h, 0, n) }); err != nil {
			return nil, err
		}
		if err := measure(i, -1, func(n uint64) error { return x.mover.ToHost(ctx, h, 0, x.tensor, 0, n) }); err != nil {
			return nil, err
		}
	}
	for i := range ends {
		for j := range ends {
			if i == j {
				continue
			}
			if err := measure(i, j, func(n uint64) error {
				return hand(ctx, ends[i].mover, ends[i].tensor, ends[j].mover, ends[j].tensor, h, n)
			}); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
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

// hand moves a tensor of one device to another.
func hand(ctx context.Context, from *hostmem.Mover, x *flash.Tensor, to *hostmem.Mover, y *flash.Tensor, h *hostmem.Memory,
	n uint64) error {
	pieces := make(chan [2]uint64, n/linkPiece+1)
	var read, written error
	var wait sync.WaitGroup
	wait.Go(func() {
		defer close(pieces)
		for at := uint64(0); at < n && read == nil; at += linkPiece {
			size := min(linkPiece, n-at)
			if read = from.ToHost(ctx, h, at, x, at, size); read == nil {
				pieces <- [2]uint64{at, size}
			}
		}
	})
	for p := range pieces {
		if written == nil {
			written = to.ToDevice(ctx, y, p[0], h, p[0], p[1])
		}
	}
	wait.Wait()
	return errors.Join(read, written)
}
