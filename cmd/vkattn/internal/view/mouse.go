package view

import "math"

// Move notes where the pointer is, in pixels; inside is false when it has left the window. What is dragged moves along.
func (s *State) Move(x, y int, inside bool) {
	s.pointer.x, s.pointer.y, s.inside = x, y, inside || s.dragging != noDrag
	lay := s.Layout()
	switch s.dragging {
	case dragView:
		dk := math.Round(float64(s.dragX-x) / float64(lay.Large.W) * float64(s.dragFrom.Keys))
		dq := math.Round(float64(s.dragY-y) / float64(lay.Large.H) * float64(s.dragFrom.Queries))
		s.pan(s.dragFrom.Query+int(dq), s.dragFrom.Key+int(dk))
	case dragSlider:
		s.slide()
	}
}

// Button is the left button, pressed or let go where the pointer is.
func (s *State) Button(down bool) {
	if !down {
		s.dragging = noDrag
		return
	}
	if s.Help {
		s.Help = false
		return
	}
	lay, x, y := s.Layout(), s.pointer.x, s.pointer.y
	if lay.Large.has(x, y) {
		s.dragging, s.dragFrom, s.dragX, s.dragY = dragView, s.View, x, y
		return
	}
	for h, box := range lay.Thumbs {
		if box.has(x, y) {
			s.Head = h
			return
		}
	}
	for i, box := range lay.Sliders {
		if box.has(x, y) {
			s.dragging, s.dragIndex = dragSlider, i
			s.slide()
			return
		}
	}
	for i, box := range lay.Switches {
		if box.has(x, y) {
			s.Press(switches[i].key)
			return
		}
	}
}

func (s *State) slide() {
	track := s.Layout().Sliders[s.dragIndex]
	at := float64(s.pointer.x-track.X) / float64(max(track.W-1, 1))
	sliders[s.dragIndex].set(&s.Options, s.LayerShown(), min(max(at, 0), 1))
}

// Wheel zooms at the pointer by steps of the wheel, away from the user is closer, and steps a slider that is under the pointer.
func (s *State) Wheel(steps float64) {
	if steps == 0 || math.IsNaN(steps) || math.IsInf(steps, 0) {
		return
	}
	steps = min(max(steps, -8), 8)
	lay, x, y := s.Layout(), s.pointer.x, s.pointer.y
	if lay.Large.has(x, y) {
		s.zoom(math.Pow(1.25, steps), (float64(x-lay.Large.X)+0.5)/float64(lay.Large.W), (float64(y-lay.Large.Y)+0.5)/float64(lay.Large.H))
		return
	}
	for i, box := range lay.Sliders {
		if box.has(x, y) {
			s.step(i, steps*sliderStep)
		}
	}
}
