package flash

import (
	"fmt"
	"os"

	"github.com/vkattn/vkattn/vk"
)

// SpecializeEnv is the environment variable that says whether kernels' modules are specialized before the driver sees them: 1 for yes, 0 for no,
// on every device that is opened or attached later; another value is an error of Open and Attach. Without it they are where a CPU is the device.
// There it saves half of the time until kernels on matrices run for the first time, and more where the driver has them in its cache, beside
// validation layers, which read each module whole. A GPU's driver gets modules as they are, and their constants beside them: what specializing does
// to the code that it makes was not measured. What kernels compute is the same.
const SpecializeEnv = "VKATTN_SPECIALIZE"

func specializes(f *vk.Facts) (bool, error) {
	switch v := os.Getenv(SpecializeEnv); v {
	case "":
		return f.Type == vk.DeviceCPU, nil
	case "0", "1":
		return v == "1", nil
	default:
		return false, badArgument(SpecializeEnv, fmt.Sprintf("%q", v), "must be 0 or 1, or not set")
	}
}
