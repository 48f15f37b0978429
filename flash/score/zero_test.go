package score

import (
	"testing"

	"github.com/vkattn/vkattn/internal/zerotest"
)

// TestNoMethodPanicsOnZero: what no function of this package made answers every method with an error or a zero result.
func TestNoMethodPanicsOnZero(t *testing.T) {
	zerotest.Run(t, Bool{}, Code{}, Evaluator{}, Float{}, FloatTensor{}, Function{}, Gradient{}, GradientEvaluator{}, Int{}, IntTensor{},
		MaskEvaluator{},
		MaskFunction{}, Tensor{}, Type(0))
}
