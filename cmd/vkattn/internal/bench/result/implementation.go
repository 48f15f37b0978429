package result

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// BlockSparse is what rows are called that flash2 ran with a block mask.
const BlockSparse = attn.BlockSparse

// Implementation is what runs a row of this name.
func Implementation(name string) (flash.Implementation, error) {
	if name == BlockSparse {
		return flash.Flash, nil
	}
	return flash.ParseImplementation(name)
}

// Implementations are those that --impl takes, as result files spell them.
func Implementations() []string {
	return []string{flash.Standard.String(), flash.Flash1.String(), flash.Flash.String(), BlockSparse}
}

// ParseImpl returns the name of an implementation as result files spell it;
// "flash" is the default one.
func ParseImpl(s string) (string, error) {
	if s == BlockSparse {
		return s, nil
	}
	impl, err := flash.ParseImplementation(s)
	if err != nil {
		names := Implementations()
		last := len(names) - 1
		text := strings.Join(names[:last], ", ") + " or " + names[last]
		return "", fmt.Errorf("impl %q: it must be %s", s, strings.Replace(text, "flash2", "flash (flash2)", 1))
	}
	return impl.String(), nil
}

// hasTiles says whether an implementation is flash2's kernels, which the grid's order of sums is about.
func hasTiles(impl string) bool {
	return slices.Contains([]string{flash.Flash.String(), BlockSparse}, impl)
}
