package render

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// Timestamps of a frame.
const (
	timeBegin = iota
	timeAttention
	timeMaps
	timeDrawn
	timestamps
)

// Slot is what a frame needs for itself while the device works on it. Two of them let the host prepare one frame while the device draws the
// other.
type Slot struct {
	Pixels *vk.Buffer // of the frame that is being recorded

	r        *Renderer
	commands *vk.CommandPool
	cmd      *vk.CommandBuffer
	fence    *vk.Fence
	pool     *vk.DescriptorPool
	queries  *vk.QueryPool // nil without timestamps
	items    *vk.Buffer
	back     *vk.Buffer // what the host learns: peak; weight, entropy and distance under the pointer
	stream   vk.Stream
	words    []uint32
	busy     bool // submitted, and not waited for
	timed    struct{ attention, maps bool }
	hover    bool // a weight is in back
}

// NewSlot makes a slot, which the renderer frees.
func (r *Renderer) NewSlot() (_ *Slot, err error) {
	s := &Slot{r: r}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.commands, err = r.dev.NewCommandPool(); err != nil {
		return nil, err
	}
	if s.cmd, err = s.commands.Allocate(); err != nil {
		return nil, err
	}
	if s.fence, err = r.dev.NewFence(false); err != nil {
		return nil, err
	}
	if s.pool, err = r.dev.NewDescriptorPool(2, 9); err != nil {
		return nil, err
	}
	if s.back, err = r.dev.NewBuffer(16, vk.Readback); err != nil {
		return nil, err
	}
	if r.dev.Queue().TimestampValidBits() > 0 {
		if s.queries, err = r.dev.NewQueryPool(timestamps); err != nil {
			return nil, err
		}
	}
	r.slots = append(r.slots, s)
	return s, nil
}

func (s *Slot) close() {
	s.commands.Close()
	s.fence.Close()
	s.pool.Close()
	s.queries.Close()
	for _, b := range []*vk.Buffer{s.items, s.back, s.Pixels} {
		b.Close()
	}
}

// wait waits for the slot's frame and takes what it told.
func (s *Slot) wait() error {
	if !s.busy {
		return nil
	}
	if err := stuck(s.fence.Wait(waitForFrame)); err != nil {
		return err
	}
	if err := errors.Join(s.fence.Reset(), s.back.Invalidate(0, vk.WholeSize)); err != nil {
		return err
	}
	s.busy = false
	f := &s.r.facts
	number := func(at int) float64 {
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(s.back.Mapped()[at:])))
	}
	f.Peak = number(0)
	if f.HasWeight = s.hover; s.hover {
		f.Weight, f.Entropy, f.Distance = number(4), number(8), number(12)
	}
	if s.queries == nil {
		return nil
	}
	var ticks [timestamps]uint64
	if err := s.queries.Results(0, ticks[:]); err != nil {
		return err
	}
	between := func(a, b int) time.Duration { return time.Duration(s.queries.Nanoseconds(ticks[a], ticks[b])) }
	if s.timed.attention {
		f.Attention = between(timeBegin, timeAttention)
	}
	if s.timed.maps {
		f.Map = between(timeAttention, timeMaps)
	}
	f.Frame = between(timeBegin, timeDrawn)
	return nil
}

// Begin waits until the slot's last frame is done, and records the next: attention and maps as far as they are not what they were, and the
// picture into Pixels, one word each, with blue in the lowest byte where bgra is set, else red. The caller may add to Stream, and must
// Submit.
func (s *Slot) Begin(state *view.State, bgra bool) error {
	r := s.r
	if err := s.wait(); err != nil {
		return err
	}
	work, err := r.prepare(state)
	if err != nil {
		return err
	}
	if err := r.useFont(state.Font()); err != nil {
		return err
	}
	if err := r.grown(&s.Pixels, uint64(4*state.Width*state.Height), vk.DeviceLocal); err != nil {
		return err
	}
	todo := work
	// Drivers compile, or load, in a kernel's first run: the second one's time is that of the work.
	fresh := state.Running || work.Attention != r.done.Attention || r.note == "" && r.problem.runs == 1
	doing := struct{ attention, large, grid, hover bool }{
		fresh, work.Large.Rows > 0 && (fresh || work.Large != r.done.Large), work.Grid.Rows > 0 && (fresh || work.Grid != r.done.Grid),
		work.Hover.Valid && (fresh || work.Hover != r.done.Hover),
	}
	if r.note != "" { // the device does not take it, and the picture says why
		doing.attention, doing.large, doing.grid, doing.hover = false, false, false, false
		todo = view.Work{Attention: work.Attention}
	}
	if doing.attention || doing.large || doing.grid || doing.hover {
		// Recordings of attention and maps are there once: no frame that holds them may be in flight.
		if err := r.idle(); err != nil {
			return err
		}
	}
	s.timed.attention, s.timed.maps = doing.attention, doing.large || doing.grid
	s.hover = todo.Hover.Valid

	if err := s.cmd.Begin(true); err != nil {
		return err
	}
	s.stream.Reset()
	// What earlier frames do with shared buffers comes before.
	const shaderBoth = vk.AccessShaderRead | vk.AccessShaderWrite
	const transferBoth = vk.AccessTransferRead | vk.AccessTransferWrite
	s.stream.Barrier(vk.StageCompute|vk.StageTransfer, shaderBoth|transferBoth, vk.StageCompute|vk.StageTransfer, shaderBoth|transferBoth)
	if s.queries != nil {
		s.stream.ResetQueries(s.queries, 0, timestamps)
	}
	if err := s.flush(timeBegin); err != nil {
		return err
	}
	if doing.attention {
		r.problem.runs++
		if err := r.problem.forward.Record(s.cmd.Handle()); err != nil {
			return err
		}
	}
	if err := s.flush(timeAttention); err != nil {
		return err
	}
	if err := s.recordMaps(work, doing.large, doing.grid, doing.hover); err != nil {
		return err
	}
	if err := s.flush(timeMaps); err != nil {
		return err
	}
	if err := s.recordPicture(state, bgra, doing.large, doing.grid, todo); err != nil {
		return err
	}
	if r.done = todo; !todo.Hover.Valid {
		r.done.Hover = view.HoverWork{}
	}
	return nil
}

// flush records what the stream holds, with a timestamp after it.
func (s *Slot) flush(timestamp int) error {
	if s.queries != nil {
		s.stream.WriteTimestamp(s.queries, timestamp, vk.StageBottom)
	}
	err := s.cmd.Execute(&s.stream)
	s.stream.Reset()
	return err
}

func (s *Slot) recordMaps(w view.Work, large, grid, hover bool) error {
	r := s.r
	at := func(first int, head, heads int, v view.Rect, rows, columns int) mapping {
		return mapping{r.cells, first, flash.Range{Begin: head, End: head + heads}, flash.Range{Begin: v.Query, End: v.Query + v.Queries},
			flash.Range{Begin: v.Key, End: v.Key + v.Keys}, rows, columns, w.Large.Pool}
	}
	l, g, h := &w.Large, &w.Grid, &w.Hover
	for _, m := range []struct {
		do  bool
		key mapKey
		of  mapping
	}{
		{large, largeMap, at(r.places.large, l.Head, 1, l.View, l.Rows, l.Columns)},
		{grid, gridMap, at(r.places.grid, 0, g.Heads, g.View, g.Rows, g.Columns)},
		{hover, hoverMap, at(r.places.hover, h.Head, 1, view.Rect{Query: h.Query, Key: h.Key, Queries: 1, Keys: 1}, 1, 1)},
		{hover, rowMap, at(r.places.hover+1, h.Head, 1,
			view.Rect{Query: h.Query, Queries: 1, Keys: r.subject.Layers[w.Attention.Layer].Keys}, 0, 0)},
	} {
		if !m.do {
			continue
		}
		if err := r.prepareMap(m.key, m.of); err != nil {
			return err
		}
		if err := r.problem.maps[m.key].Record(s.cmd.Handle()); err != nil {
			return err
		}
	}
	return nil
}

// peakChunk is how many cells a workgroup takes the largest of.
const peakChunk = 4096

// recordPicture finds the peaks of maps that are new, draws, and copies what the host is told.
func (s *Slot) recordPicture(state *view.State, bgra, large, grid bool, done view.Work) error {
	r, st := s.r, &s.stream
	scene := r.scene(state)
	var counts []int
	s.words, counts = scene.Encode(s.words)
	if err := r.grown(&s.items, uint64(4*len(s.words)), vk.Upload); err != nil {
		return err
	}
	copy(s.items.Mapped(), bytesOf(s.words))
	if err := s.items.Flush(0, vk.WholeSize); err != nil {
		return err
	}
	if err := s.pool.Reset(); err != nil {
		return err
	}
	peaks, err := s.bind(r.peak, r.cells, r.peaks)
	if err != nil {
		return err
	}
	marks := r.tables // any buffer will do where nothing is marked
	if r.layer != nil && r.layer.marks != nil {
		marks = r.layer.marks
	}
	draw, err := s.bind(r.draw, s.items, r.cells, r.peaks, r.tables, r.letters, s.Pixels, marks)
	if err != nil {
		return err
	}
	heads := state.LayerShown().Heads
	push := func(values ...uint32) { st.Push(bytesOf(values)) }
	for _, m := range []struct {
		do                               bool
		first, pictures, cells, peak, of int
	}{
		{large, r.places.large, 1, done.Large.Rows * done.Large.Columns, largePeak(heads), largePeak(heads)},
		{grid, r.places.grid, heads, done.Grid.Rows * done.Grid.Columns, headPeak(0), jointPeak},
	} {
		if !m.do {
			continue
		}
		for _, p := range [][2]int{{m.peak, m.pictures}, {m.of, 1}} {
			st.Fill(vk.BufferRange{Buffer: r.peaks, Offset: uint64(4 * p[0]), Size: uint64(4 * p[1])}, 0)
			if m.peak == m.of {
				break
			}
		}
		st.Barrier(vk.StageTransfer|vk.StageCompute, vk.AccessTransferWrite|vk.AccessShaderWrite, vk.StageCompute,
			vk.AccessShaderRead|vk.AccessShaderWrite)
		st.Bind(r.peak, peaks)
		push(uint32(m.first), uint32(m.cells), peakChunk, uint32(m.peak), uint32(m.of))
		st.Dispatch(uint32((m.cells+peakChunk-1)/peakChunk), uint32(m.pictures), 1)
	}
	st.Bind(r.draw, draw)
	first := 0
	for _, n := range counts {
		if n == 0 {
			continue
		}
		st.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageCompute, vk.AccessShaderRead|vk.AccessShaderWrite)
		push(uint32(first), uint32(state.Width), b2u(bgra), uint32(r.font.Width)|uint32(r.font.Height)<<16)
		st.Dispatch(uint32(n), 1, 1)
		first += n
	}
	if s.queries != nil {
		st.WriteTimestamp(s.queries, timeDrawn, vk.StageBottom)
	}
	st.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageTransfer, vk.AccessTransferRead)
	peak := largePeak(heads)
	if state.Joint() {
		peak = jointPeak
	}
	st.Copy(s.back, 0, r.peaks, uint64(4*peak), 4)
	st.Copy(s.back, 4, r.cells, uint64(4*r.places.hover), 12)
	st.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageHost, vk.AccessHostRead)
	return st.Err()
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// bind makes a descriptor set of whole buffers.
func (s *Slot) bind(p *vk.ComputePipeline, buffers ...*vk.Buffer) (vk.DescriptorSet, error) {
	set, err := s.pool.Allocate(p)
	if err != nil {
		return set, err
	}
	var b []vk.BufferBinding
	for _, x := range buffers {
		b = append(b, vk.BufferBinding{Buffer: x, Size: x.Capacity()})
	}
	return set, s.r.dev.UpdateDescriptors(set, b)
}

// useFont puts the coverage of letters on the device.
func (r *Renderer) useFont(f *view.Font) error {
	if r.font == f {
		return nil
	}
	if err := r.idle(); err != nil {
		return err
	}
	r.letters.Close()
	var err error
	if r.letters, err = r.filled(f.Coverage); err != nil {
		return err
	}
	r.font = f
	return nil
}

// Stream takes commands to follow the picture's, which compute and transfer have finished writing Pixels for.
func (s *Slot) Stream() *vk.Stream { return &s.stream }

// Submit ends the frame's commands and submits them.
func (s *Slot) Submit(wait, signal []*vk.Semaphore) error {
	if err := s.cmd.Execute(&s.stream); err != nil {
		return err
	}
	if err := s.cmd.End(); err != nil {
		return err
	}
	err := s.r.dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{s.cmd}, Fence: s.fence, WaitBinary: wait,
		SignalBinary: signal})
	s.busy = s.busy || err == nil
	return err
}

// Wait waits for the frame, and takes what it told.
func (s *Slot) Wait() error { return s.wait() }

// Settled says whether the facts belong to the state: else another frame would tell more.
func (r *Renderer) Settled(state *view.State) bool {
	return !state.Running && (r.done == state.Work() || r.note != "" && r.failed == state.Work().Attention)
}
