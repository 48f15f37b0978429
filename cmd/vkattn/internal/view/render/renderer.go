// Package render draws what cmd/vkattn/internal/view describes, on the device that computes attention: attention, maps, their peaks and
// colours, letters and lines are commands of one command buffer of one VkDevice, and pixels lie in a buffer of it. Nothing of the picture
// passes through the host; four numbers do, those of the pair under the pointer and the peak of the scale.
package render

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/picture"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// Options say how a renderer computes.
type Options struct {
	DType  flash.DType          // storage type of q and k
	Attach []flash.DeviceOption // of flash.Attach
}

// Renderer draws a subject. It belongs to one goroutine.
type Renderer struct {
	dev       *vk.Device
	attention *flash.Device // attached to dev
	subject   *view.Subject
	dtype     flash.DType

	draw, peak      *vk.ComputePipeline
	tables, letters *vk.Buffer
	font            *view.Font
	cells, peaks    *vk.Buffer
	slots           []*Slot

	layer   *layer
	problem *problem
	done    view.Work // what cells and peaks hold
	places  places    // of maps in cells
	failed  view.AttentionWork
	note    string // why it failed
	facts   view.Facts
}

// New makes a renderer for a device that the caller owns, which must outlive it. Attention is attached to the same device.
func New(dev *vk.Device, subject *view.Subject, o Options) (_ *Renderer, err error) {
	r := &Renderer{dev: dev, subject: subject, dtype: o.DType}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.attention, err = flash.Attach(dev.External(), o.Attach...); err != nil {
		return r, err
	}
	r.facts.Device = dev.Facts().Name
	for i, to := range []**vk.ComputePipeline{&r.draw, &r.peak} {
		p := &modules[i]
		code, err := shaders.Module(p.name)
		if err != nil {
			return r, err
		}
		*to, err = dev.NewComputePipeline(vk.PipelineInfo{Name: p.name, Code: code, Bindings: p.bindings, PushBytes: p.push,
			Spec: []vk.SpecConstant{{ID: 0, Value: groupSize}}})
		if err != nil {
			return r, err
		}
	}
	var colors []uint32
	for _, c := range picture.Scales {
		table := c.Table()
		for i := 0; i < len(table); i += 4 {
			colors = append(colors, uint32(table[i])<<16|uint32(table[i+1])<<8|uint32(table[i+2]))
		}
	}
	r.tables, err = r.filled(bytesOf(colors))
	return r, err
}

// groupSize is the number of invocations of a workgroup.
const groupSize = 64

// modules are those that draw, and what their pipelines are made with: draw, then peak.
var modules = [...]struct {
	name     string
	bindings int
	push     int // bytes
}{{"view_draw", 7, 16}, {"view_peak", 2, 20}}

// bytesOf gives words as bytes of the host's order, which is the device's.
func bytesOf[T uint32 | float32](words []T) []byte {
	if len(words) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 4*len(words))
}

// filled makes a buffer that the host has written.
func (r *Renderer) filled(content []byte) (*vk.Buffer, error) {
	b, err := r.dev.NewBuffer(uint64(max(len(content), 4)), vk.Upload)
	if err != nil {
		return nil, err
	}
	copy(b.Mapped(), content)
	return b, b.Flush(0, vk.WholeSize)
}

// grown makes sure that a buffer has so many bytes: it is replaced, when nothing uses it, by one with some to spare.
func (r *Renderer) grown(b **vk.Buffer, size uint64, kind vk.MemoryKind) error {
	if *b != nil && (*b).Size() >= size {
		return nil
	}
	if err := r.idle(); err != nil {
		return err
	}
	bigger, err := r.dev.NewBuffer(max(size+size/4, 256), kind)
	if err != nil {
		return err
	}
	if *b != nil {
		(*b).Close()
	}
	*b = bigger
	return nil
}

// idle waits for all frames.
func (r *Renderer) idle() error {
	for _, s := range r.slots {
		if err := s.wait(); err != nil {
			return err
		}
	}
	return nil
}

// Facts are what the last finished frames told.
func (r *Renderer) Facts() view.Facts {
	f := r.facts
	f.Note = r.note
	return f
}

// Close frees everything that the renderer made, when the device has done with it. That the device is lost is no error any more.
func (r *Renderer) Close() error {
	if r == nil {
		return nil
	}
	err := r.dev.Queue().WaitIdle()
	for _, s := range r.slots {
		s.close()
	}
	r.slots = nil
	if r.problem != nil {
		err = errors.Join(err, r.problem.close())
	}
	if r.attention != nil {
		err = errors.Join(err, r.attention.Close())
	}
	for _, b := range []*vk.Buffer{r.tables, r.letters, r.cells, r.peaks} {
		b.Close()
	}
	for _, p := range []*vk.ComputePipeline{r.draw, r.peak} {
		p.Close()
	}
	if r.dev.Lost() != nil {
		return nil // whoever drew was told
	}
	return err
}

// places is where maps lie in the buffer of cells, counted in cells, and how many there are in all.
type places struct{ large, grid, hover, cells int }

// Peaks: one for all heads, those of heads, and the large map's.
const jointPeak = 0

func headPeak(head int) int   { return 1 + head }
func largePeak(heads int) int { return 1 + heads }
func peakCount(heads int) int { return 2 + heads }

// align is a multiple of cells at which maps begin.
func align(cells int) int { return (cells + 63) &^ 63 }

func placesOf(w view.Work) (p places) {
	p.grid = align(w.Large.Rows * w.Large.Columns)
	p.hover = p.grid + align(w.Grid.Heads*w.Grid.Rows*w.Grid.Columns)
	p.cells = p.hover + 64
	return p
}

// prepare makes what the state's work takes, before commands are recorded, and gives that work. Where the device does not take it, r.note
// says why.
func (r *Renderer) prepare(s *view.State) (view.Work, error) {
	w := s.Work()
	if w.Attention == r.failed && r.note != "" {
		return r.prepared(w)
	}
	if r.layer == nil || r.layer.number != w.Attention.Layer {
		if err := r.load(w.Attention.Layer); err != nil {
			return w, err
		}
	}
	if r.problem == nil || r.problem.of != w.Attention {
		if err := r.idle(); err != nil {
			return w, err
		}
		p, err := r.plan(w.Attention)
		if err != nil {
			if r.dev.Lost() != nil || errors.Is(err, flash.ErrDeviceLost) {
				return w, err
			}
			// What this device cannot compute is told in place of the maps.
			r.failed, r.note = w.Attention, err.Error()
			return r.prepared(w)
		}
		if r.problem != nil {
			if err := r.problem.close(); err != nil {
				return w, errors.Join(err, p.close())
			}
		}
		r.problem = p
		r.facts.FLOPs, r.facts.Kernel = p.flops, p.plan.ForwardInfo().KernelName
		r.facts.Attention, r.facts.Map = 0, 0 // not of this one
	}
	r.failed, r.note = view.AttentionWork{}, ""
	return r.prepared(w)
}

// prepared finds room for the maps of the work. Maps that have moved are no longer there.
func (r *Renderer) prepared(w view.Work) (view.Work, error) {
	heads := r.subject.Layers[w.Attention.Layer].Heads
	p := placesOf(w)
	before := r.cells
	if err := r.grown(&r.cells, uint64(4*p.cells), vk.DeviceLocal); err != nil {
		return w, err
	}
	if r.cells != before || p != r.places {
		r.places, r.done.Large, r.done.Grid, r.done.Hover = p, view.MapWork{}, view.MapWork{}, view.HoverWork{}
	}
	before = r.peaks
	if err := r.grown(&r.peaks, uint64(4*peakCount(heads)), vk.DeviceLocal); err != nil {
		return w, err
	}
	if r.peaks != before {
		r.done.Large, r.done.Grid = view.MapWork{}, view.MapWork{}
	}
	return w, nil
}

// scene is the picture with what is known of it.
func (r *Renderer) scene(s *view.State) *view.Scene {
	f := r.facts
	f.Note = r.note
	heads := s.LayerShown().Heads
	f.LargeAt, f.GridAt, f.LargePeak = r.places.large, r.places.grid, largePeak(heads)
	if r.note != "" {
		return s.Scene(&f)
	}
	f.PeakOf = func(head int) int {
		if head < 0 {
			return jointPeak
		}
		return headPeak(head)
	}
	return s.Scene(&f)
}

// Cells gives a copy of the cells of the large map, or of a head's small one, for tests. Nothing may be in flight.
func (r *Renderer) Cells(ctx context.Context, w view.MapWork, grid bool, head int) ([]float32, error) {
	at := r.places.large
	if grid {
		at = r.places.grid + head*w.Rows*w.Columns
	}
	t, err := r.attention.TensorOn(ref(r.cells), uint64(4*at), flash.F32, [4]int{1, 1, w.Rows, w.Columns}, [4]int{})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	out := make([]float32, w.Rows*w.Columns)
	return out, t.Download(ctx, out)
}

func ref(b *vk.Buffer) flash.BufferRef { return flash.BufferRef{Handle: b.Handle(), Size: b.Size()} }

// waitForFrame is how long a frame may take before the device counts as stuck.
const waitForFrame = time.Minute

func stuck(err error) error {
	if errors.Is(err, vk.Timeout) {
		return fmt.Errorf("the device did not finish a frame within %v", waitForFrame)
	}
	return err
}
