package pipeline

import "github.com/vkattn/vkattn/vk"

// writeAccesses are the bits of VkAccessFlags (Vulkan 1.0) that write: shader, colour attachment, depth-stencil attachment,
// transfer, host and memory writes.
const writeAccesses = vk.AccessShaderWrite | 1<<8 | 1<<10 | vk.AccessTransferWrite | vk.AccessHostWrite | vk.AccessMemoryWrite

// Use says how the world outside a recording touches a range of a buffer: the pipeline stages (VkPipelineStageFlags) and the
// accesses (VkAccessFlags). The zero Use stands for the default, DefaultPrior or DefaultNext.
type Use struct {
	Stages   vk.Stage  // that touch it
	Accesses vk.Access // how they do
}

var (
	// Untouched declares that nothing outside the recording needs to be waited for, or will wait: the caller's own barriers,
	// or the lack of any other use, take care of it.
	Untouched = Use{Stages: vk.StageTop}
	// DefaultPrior covers earlier compute and transfer commands of the queue, whether they read or wrote. What the host wrote
	// before a submission is visible to it without a barrier.
	DefaultPrior = Use{Stages: vk.StageCompute | vk.StageTransfer, Accesses: vk.AccessShaderWrite | vk.AccessTransferWrite}
	// DefaultNext covers later compute and transfer commands of the queue, and the host once it has waited.
	DefaultNext = Use{
		Stages:   vk.StageCompute | vk.StageTransfer | vk.StageHost,
		Accesses: vk.AccessShaderRead | vk.AccessShaderWrite | vk.AccessTransferRead | vk.AccessTransferWrite | vk.AccessHostRead,
	}
)

// untouched says whether the use asks for no synchronisation at all.
func (u Use) untouched() bool { return u.Stages&^vk.StageTop == 0 && u.Accesses == 0 && u.Stages != 0 }

// Mode says what an operation does with one of its bindings.
type Mode uint8

const (
	// Unused marks a binding that is bound because the kernel's interface has it, but never touched.
	Unused Mode = 0
	// What the operation does; barriers follow from it. Modes may be combined.
	Read      Mode = 1
	Write     Mode = 2            // every byte, or some
	ReadWrite      = Read | Write // for example an update in place
)
