package render

import (
	"image"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/vk"
)

// Offscreen draws frames that nobody sees.
type Offscreen struct {
	r    *Renderer
	slot *Slot
	back *vk.Buffer
}

// NewOffscreen makes it on a renderer, which must outlive it.
func NewOffscreen(r *Renderer) (*Offscreen, error) {
	slot, err := r.NewSlot()
	if err != nil {
		return nil, err
	}
	return &Offscreen{r: r, slot: slot}, nil
}

// Close frees what it made.
func (o *Offscreen) Close() error { return o.back.Close() }

// Times are a frame's.
type Times struct {
	Attention, Maps, Frame time.Duration // of the device: attention, maps and the whole frame; 0: not computed, or not timed
	Host                   time.Duration // from beginning to prepare the frame until it is done
}

// Draw draws a frame and gives its times. The picture stays on the device.
func (o *Offscreen) Draw(s *view.State) (t Times, err error) {
	begin := time.Now()
	if err := o.slot.Begin(s, false); err != nil {
		return t, err
	}
	if err := o.slot.Submit(nil, nil); err != nil {
		return t, err
	}
	if err := o.slot.Wait(); err != nil {
		return t, err
	}
	t.Host = time.Since(begin)
	f := o.r.facts
	if t.Frame = f.Frame; o.slot.timed.attention {
		t.Attention = f.Attention
	}
	if o.slot.timed.maps {
		t.Maps = f.Map
	}
	return t, nil
}

// Picture draws a frame and gives it.
func (o *Offscreen) Picture(s *view.State) (*image.RGBA, error) {
	if err := o.r.grown(&o.back, uint64(4*s.Width*s.Height), vk.Readback); err != nil {
		return nil, err
	}
	if err := o.slot.Begin(s, false); err != nil {
		return nil, err
	}
	n := uint64(4 * s.Width * s.Height)
	st := o.slot.Stream()
	st.Copy(o.back, 0, o.slot.Pixels, 0, n)
	st.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageHost, vk.AccessHostRead)
	if err := o.slot.Submit(nil, nil); err != nil {
		return nil, err
	}
	if err := o.slot.Wait(); err != nil {
		return nil, err
	}
	if err := o.back.Invalidate(0, vk.WholeSize); err != nil {
		return nil, err
	}
	picture := image.NewRGBA(image.Rect(0, 0, s.Width, s.Height))
	copy(picture.Pix, o.back.Mapped()[:n])
	return picture, nil
}
