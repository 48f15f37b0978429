package flash

import (
	"os"

	"github.com/vkattn/vkattn/vk"
)

// SpecializeEnv is the environment variable that says whether kernels' modules are specialized before the driver sees them: 1 for yes, 0 for no,
// on every device that is opened or attached later. Without it they are where a CPU is the device. There it saves most of the time until a kernel
// runs for the first time, and more beside validation layers, which read each module whole. A GPU's driver gets modules as they are, and their
// constants beside them: what specializing does to the code that it makes was measured nowhere yet. What kernels compute is the same.
const SpecializeEnv = "VKATTN_SPECIALIZE"

func specializes(f *vk.Facts) bool {
	switch os.Getenv(SpecializeEnv) {
	case "0":
		return false
	case "1":
		return true
	}
	return f.Type == vk.DeviceCPU
}
