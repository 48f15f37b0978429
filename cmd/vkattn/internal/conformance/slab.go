package conformance

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Slab is one buffer on the device for all tensors of a case, each with its guards: one copy brings everything there, and one fetches the
// outputs. It is made once for many cases, of one goroutine, and grows when one needs more.
type Slab struct {
	dev   *flash.Device
	whole *flash.Tensor // the buffer, in words
	sent  []byte        // what was copied to it
	back  []byte        // what was fetched
	in    int           // bytes of inputs, which come first
	used  int           // bytes of the case
}

// NewSlab makes a slab of this number of bytes.
func NewSlab(dev *flash.Device, bytes int) (*Slab, error) {
	s := &Slab{dev: dev}
	return s, s.grow(bytes)
}

// Close frees the buffer.
func (s *Slab) Close() error { return s.whole.Close() }

func (s *Slab) grow(bytes int) error {
	if bytes <= len(s.sent) {
		return nil
	}
	if err := s.whole.Close(); err != nil {
		return err
	}
	words := (bytes + 3) / 4
	whole, err := s.dev.NewTensor(flash.F32, 1, 1, 1, words)
	if err != nil {
		return err
	}
	s.whole, s.sent, s.back = whole, make([]byte, 4*words), make([]byte, 4*words)
	return nil
}

// part is a tensor in a slab.
type part struct {
	placement
	at     int // bytes from the slab's start
	tensor *flash.Tensor
}

// slabAlignment keeps every part aligned as a buffer of its own is.
const slabAlignment = 256

// lay gives every placement its room, inputs first.
func (s *Slab) lay(inputs, outputs []placement) ([]part, error) {
	var parts []part
	at := 0
	add := func(places []placement) {
		for _, p := range places {
			parts = append(parts, part{placement: p, at: at})
			at += (p.bytes() + slabAlignment - 1) / slabAlignment * slabAlignment
		}
	}
	add(inputs)
	s.in = at
	add(outputs)
	s.used = at
	if err := s.grow(s.used); err != nil {
		return nil, err
	}
	for i := range parts {
		p := &parts[i]
		var err error
		if p.tensor, err = s.whole.View(uint64(p.at+p.offset*p.dtype.Size()), p.dtype, p.shape, p.strides); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// bytes are those of a part in what is sent.
func (s *Slab) bytes(p *part) []byte { return s.sent[p.at:][:p.placement.bytes()] }

// send copies everything to the device.
func (s *Slab) send(ctx context.Context) error {
	t, err := s.words(0, s.used)
	if err != nil {
		return err
	}
	return t.UploadBytes(ctx, s.sent[:s.used])
}

// fetch copies the outputs back.
func (s *Slab) fetch(ctx context.Context) error {
	t, err := s.words(s.in, s.used)
	if err != nil {
		return err
	}
	return t.DownloadBytes(ctx, s.back[s.in:s.used])
}

// words is a range of the buffer as a tensor; both ends are multiples of four.
func (s *Slab) words(from, to int) (*flash.Tensor, error) {
	if from >= to {
		return nil, fmt.Errorf("conformance: bytes %d to %d of a slab are none", from, to)
	}
	n := (to - from) / 4
	return s.whole.View(uint64(from), flash.F32, [4]int{1, 1, 1, n}, [4]int{n, n, n, 1})
}

// collect takes a part's elements, packed, out of what was fetched; see placement.collect.
func (s *Slab) collect(p *part, name string, run int) ([]byte, error) {
	return p.placement.collect(s.back[p.at:], name, run)
}
