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
	Notices  Notices
	layouts  sync.Map // decodedLayout of fragments, by ProbeKey
}

// Notices are what was wrong with files kept between runs, each kind once. They may be used from several goroutines.
type Notices struct {
	mu    sync.Mutex
	kinds []string // formats
	said  []string
}

// Say keeps a notice, the first of its kind.
func (n *Notices) Say(format string, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.kinds, format) {
		n.kinds = append(n.kinds, format)
		n.said = append(n.said, fmt.Sprintf(format, why))
	}
}

// All gives what was said.
func (n *Notices) All() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.said)
}
