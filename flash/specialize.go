package flash

import (
	"fmt"
	"os"

	"github.com/vkattn/vkattn/internal/specialize"
)

// specializes says whether kernels' modules are specialized before the driver sees them, as the user's environment has it.
func specializes() (bool, error) {
	switch v := os.Getenv(specialize.Env); v {
	case "", "1":
		return true, nil
	case "0":
		return false, nil
	default:
		return false, badArgument(specialize.Env, fmt.Sprintf("%q", v), "must be 0 or 1, or not set")
	}
}
