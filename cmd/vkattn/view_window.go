//go:build view && cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/render"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/window"
	"github.com/vkattn/vkattn/vk"
)

// macOS hands events of windows to a program's first thread alone.
func init() { runtime.LockOSThread() }

// canShow says whether this program has a window.
func canShow() error { return nil }

// showWindow shows the subject until its window is closed.
func showWindow(ctx context.Context, f *viewFlags, subject *view.Subject, width, height int, o render.Options) (err error) {
	w, err := window.Open(subject, window.Options{
		Title: "vkattn · " + subject.Name, Width: width, Height: height,
		Instance: vk.InstanceOptions{AppName: "vkattn view"}, Choose: f.physical, Render: o,
	})
	if errors.Is(err, window.ErrNoDisplay) {
		return fmt.Errorf("%w: 'vkattn map' draws the same picture into a file, and --offscreen FILE one frame of this window", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := f.pressAll(w.State); err != nil {
		return err
	}
	return w.Run(ctx)
}
