package flash

import (
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
