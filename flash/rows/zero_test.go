package rows

import (
	"testing"

	"github.com/vkattn/vkattn/internal/zerotest"
)

// TestNoMethodPanicsOnZero: what no constructor made answers every method with an error or a zero result.
func TestNoMethodPanicsOnZero(t *testing.T) { zerotest.Run(t, Plan{}, Recording{}) }
