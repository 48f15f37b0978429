package catalogue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParametersInTiles: what tune measured must be parameters of the kernel, within their ranges; the error names the line.
func TestParametersInTiles(t *testing.T) {
	const head = "family mine\ndevice any\n"
	for text, want := range map[string]string{
		"kernel matrix_forward tuned\nany : w=1000":  "f.tiles:4: matrix_forward: WithTuning[w] is 1000",
		"kernel matrix_forward tuned\nany : zeal=1":  "f.tiles:4: matrix_forward: WithTuning[zeal] is 1",
		"kernel standard_scalar tuned\nany : br=8":   "f.tiles:4: standard_scalar: there are no tuned tiles of this kernel",
		"kernel scalar_decode measured\nany : br=8":  `f.tiles:4: scalar_decode has no number "br"`,
		"kernel matrix_backward_q tuned\nany : w=8 ": "f.tiles:4: matrix_backward_q: there are no tuned tiles of this kernel",
	} {
		_, err := ParseTiles("f.tiles", head+text)
		require.Error(t, err, text)
		require.Contains(t, strings.ReplaceAll(err.Error(), "flash: ", ""), want)
	}
	for _, k := range Forward { // what tune measures can be exported
		if k.Candidates != nil {
			_, err := ParseTiles("f.tiles", head+"kernel "+k.Name+" tuned\n")
			require.NoError(t, err)
		}
	}
}
