//go:build !view || !cgo

package main

import (
	"context"
	"errors"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/render"
)

var errNoWindow = errors.New("this vkattn was built without its window: 'make view' in vkattn's source tree builds bin/vkattn with it " +
	"(CGO_ENABLED=1 go build -tags view ./cmd/vkattn " +
	"where a C compiler and the headers of the window system are installed). " +
	"Without one, 'vkattn map' draws attention into a file, and --offscreen FILE " +
	"a frame of the window")

// canShow says whether this program has a window.
func canShow() error { return errNoWindow }

func showWindow(context.Context, *viewFlags, *view.Subject, int, int, render.Options) error {
	return errNoWindow
}
