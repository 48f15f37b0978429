package flash

import (
	"fmt"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// environment is what kernels see of a device: enough to build pipelines, to try them, and to remember what came of it.
type environment struct {
	ctx      *pipeline.Context
	dev      *vk.Device
	caps     capabilities
	attached bool                                // to a device of the caller's, whose queue recording must leave alone
	counting *countingBuilds                     // nil but in tests
	modules  func(name string) ([]uint32, error) // where shaders come from in tests; nil: from the package of that name
	notices  notices
}

// notices are what Notices gives.
type notices struct {
	mu    sync.Mutex
	kinds []string // formats
	said  []string
}

// say keeps a notice, the first of its kind.
func (n *notices) say(format string, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.kinds, format) {
		n.kinds = append(n.kinds, format)
		n.said = append(n.said, fmt.Sprintf(format, why))
	}
}
