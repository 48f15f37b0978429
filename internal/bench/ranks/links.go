package ranks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
)

// Link is how fast bytes move between a device and the host, or from one device to another over memory of the host: 10⁹ bytes a second, medians.
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

// MeasureLinks moves bytes from the host to each device, back, and from each device to each other: one is read in pieces while the pieces before are written
// to the other.
func MeasureLinks(ctx context.Context, devices []*flash.Device, bytes int) (out []Link, err error) {
	h, err := flash.NewHostMemory(bytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	type end struct {
		mover  *flash.Mover
		tensor *flash.Tensor
	}
	ends := make([]end, len(devices))
	for i, d := range devices {
		if ends[i].mover, err = d.NewMover(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ends[i].mover.Close()) }()
		if ends[i].tensor, err = d.NewTensor(flash.F32, 1, 1, 1, bytes/4); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ends[i].tensor.Close()) }()
	}
	n := uint64(bytes / 4 * 4)
	time1 := func(from, to int, run func(n uint64) error) error {
		var long, short []float64
		for i := range linkRuns + 1 {
			for _, x := range []struct {
				bytes uint64
				to    *[]float64
			}{{n, &long}, {min(n, smallMessage), &short}} {
				start := time.Now()
				if err := run(x.bytes); err != nil {
					return err
				}
				if i > 0 { // the first imports
					*x.to = append(*x.to, time.Since(start).Seconds())
				}
			}
		}
		l := Link{From: from, To: to, GBps: float64(n) / bench.Median(long) / 1e9, Us: bench.Median(short) * 1e6, Imported: true, Apart: true}
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
		if err := time1(-1, i, func(n uint64) error { return x.mover.ToDevice(ctx, x.tensor, 0, h, 0, n) }); err != nil {
			return nil, err
		}
		if err := time1(i, -1, func(n uint64) error { return x.mover.ToHost(ctx, h, 0, x.tensor, 0, n) }); err != nil {
			return nil, err
		}
	}
	for i := range ends {
		for j := range ends {
			if i == j {
				continue
			}
			if err := time1(i, j, func(n uint64) error {
				return hand(ctx, ends[i].mover, ends[i].tensor, ends[j].mover, ends[j].tensor, h, n)
			}); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// hand moves a tensor of one device to another.
func hand(ctx context.Context, from *flash.Mover, x *flash.Tensor, to *flash.Mover, y *flash.Tensor, h *flash.HostMemory, n uint64) error {
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
