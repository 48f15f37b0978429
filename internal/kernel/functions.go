package kernel

import (
	"crypto/sha256"
	"fmt"

	"github.com/vkattn/vkattn/flash/score"
)

// FunctionKey identifies a function of scores or a mask function by what it computes: the code that it becomes and what its tables hold.
// Tensors that it captures by name are each call's.
func FunctionKey(f interface {
	CacheKey() string
	Captures() []score.Tensor
}) string {
	tables := sha256.New()
	for _, t := range f.Captures() {
		if t.Table() {
			tables.Write(TableBytes(t))
		}
	}
	return fmt.Sprintf("%s %x", f.CacheKey(), tables.Sum(nil))
}
