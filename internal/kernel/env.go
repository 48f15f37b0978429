package kernel

import (
	"fmt"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Env is what kernels see of a device: enough to build pipelines, to try them, and to remember what came of it.
type Env struct {
	Ctx      *pipeline.Context
	Dev      *vk.Device
	Caps     Capabilities
	Attached bool                                // to a device of the caller's, whose queue recording must leave alone
	Counting *CountingBuilds                     // nil but in tests
	Modules  func(name string) ([]uint32, error) // where shaders come from in tests; nil: from the package of that name
	Notices  notices
}

// Notices are what Notices gives.
type notices struct {
	Mu    sync.Mutex
	kinds []string // formats
	Said  []string
}

// Say keeps a notice, the first of its kind.
func (n *notices) Say(format string, why error) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if !slices.Contains(n.kinds, format) {
		n.kinds = append(n.kinds, format)
		n.Said = append(n.Said, fmt.Sprintf(format, why))
	}
}
