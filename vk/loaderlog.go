package vk

import (
	"errors"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// withLoaderErrors adds to an error of vkCreateInstance that says that there is no driver, or not the layer, what the loader says of those
// that are installed and that it could not load, most often the name of a library that is missing. The loader tells that to a messenger
// alone, which the instance of a caller has none of, so it is asked once more.
func withLoaderErrors(err error, gipa uintptr, app string, version Version, debug bool, layers []string) error {
	var call *CallError
	if !debug || !errors.Is(err, ErrIncompatibleDriver) && !errors.Is(err, ErrLayerNotPresent) || !errors.As(err, &call) {
		return err
	}
	var said []string
	receiver := addReceiver(func(m Message, _ declares) {
		if text := strings.TrimSpace(m.Text); !summary(text) && !slices.Contains(said, text) {
			said = append(said, text)
		}
	})
	defer receivers.Delete(receiver)
	f := abi.NewFrame()
	defer f.Free()
	if handle, _, again := createInstance(nil, app, version, layers, []string{extDebugUtils}, false,
		newLoaderChain(f, receiver)); again == nil {
		destroyUnloaded(gipa, handle) // the first attempt was made to fail
		return err
	}
	return &CallError{Call: call.Call, Result: call.Result, Detail: strings.Join(said, "; ")}
}

// summary is a message of the loader that repeats the result, or that says no more than the one before it.
func summary(text string) bool {
	return strings.Contains(text, "Found no drivers") || strings.Contains(text, "Failed loading library associated with ICD JSON") ||
		strings.Contains(text, `Requested layer "`+validationLayer)
}
