package door

import (
	"fmt"
	"sync"
)

// Handle names something that a C program has opened. Zero names nothing, and no number comes twice, so that a handle that was closed never
// names what was opened after it.
type Handle uint64

// handles are those of one kind.
type handles[T any] struct {
	kind string
	mu   sync.Mutex
	of   map[Handle]T
}

// lastHandle is the latest number of any kind: a cache's is no device's.
var lastHandle struct {
	sync.Mutex
	Handle
}

// add gives a value a handle.
func (t *handles[T]) add(value T) Handle {
	lastHandle.Lock()
	lastHandle.Handle++
	h := lastHandle.Handle
	lastHandle.Unlock()

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[Handle]T{}
	}
	t.of[h] = value
	return h
}

// find gives what a handle names.
func (t *handles[T]) find(h Handle) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, found := t.of[h]
	if !found {
		return value, fmt.Errorf("%w: %d is no %s that is open", errClosed, h, t.kind)
	}
	return value, nil
}

// take is find, after which the handle names nothing: of several calls at a time one gets the value.
func (t *handles[T]) take(h Handle) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, found := t.of[h]
	if !found {
		return value, fmt.Errorf("%w: %d is no %s that is open", errClosed, h, t.kind)
	}
	delete(t.of, h)
	return value, nil
}
