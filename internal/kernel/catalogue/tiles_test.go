package catalogue

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"pgregory.net/rapid"
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

// TestForeignTiles: whatever numbers the rows of somebody's file have, a kernel takes a tile within the device's limits, or none.
func TestForeignTiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.IntRange(0, 17), rapid.SampledFrom([]int{24, 31, 32, 33, 48, 64, 100, 128, 256, 1000, 1024}))
		row := func(names ...string) string {
			text := "any :"
			for _, name := range names {
				text += fmt.Sprintf(" %s=%d", name, number.Draw(t, name))
			}
			return text + "\n"
		}
		text := "family mine\ndevice any\n"
		add := func(kernel string, names ...string) { // rows that may not be are for the parser's tests
			more := text + "kernel " + kernel + " derived\n" + row(names...)
			if _, err := ParseTiles("f.tiles", more); err == nil {
				text = more
			}
		}
		for range 6 {
			add("matrix_forward", "w", "rm", "bc", "ck", "prefetch", "q_reg", "heads_together")
			add("matrix_flash1", "w", "rm", "bc", "ck", "prefetch")
			add("matrix_backward_kv", "w", "rm", "bc", "ck", "prefetch", "a_reg")
			add("matrix_backward_q", "w", "rm", "bc", "ck", "b_reg")
			for _, kernel := range []string{"scalar_forward", "scalar_flash1", "scalar_backward_kv", "scalar_backward_q"} {
				add(kernel, "br", "bc", "mr", "mc")
			}
			add("scalar_forward", "br", "bc", "mr", "mc", "dk", "pc")
			add("scalar_backward_q", "br", "bc", "mr", "mc", "vc")
			add("scalar_map", "br", "bc", "mr", "mc", "dk")
			add("scalar_decode", "w", "lpr", "u", "registers", "in_flight", "beside", "part_keys", "shared_kib")
			add("standard_scores_matrix", "wr", "rows", "columns", "run")
			add("standard_product_matrix", "wr", "wc", "rows", "keys")
			add("standard_scalar", "br", "bc", "mr", "mc", "dk", "product_bc")
			add("standard_softmax", "pieces")
		}
		file, err := ParseTiles("f.tiles", text)
		require.NoError(t, err)
		g := &kerneltest.GPUs[rapid.IntRange(0, len(kerneltest.GPUs)-1).Draw(t, "device")]
		c := g.Caps()
		c.Tiles, err = file.Over(c.TilesDevice())
		require.NoError(t, err)
		p := kerneltest.DrawProblem(t)
		if rapid.Bool().Draw(t, "blocks") {
			p.Blocks = attn.Blocks{Queries: 48, Keys: 32}
		}
		for _, k := range choosers() {
			if k.on != anywhere && len(g.Fragments) == 0 {
				continue
			}
			at := place{c: c, layout: &kernel.FragmentLayout{Form: g.Form}, form: g.Form}
			if k.on != anywhere {
				at.fragment = c.Fragments(p.DType)[0]
			}
			var no *kernel.Declined
			if got := k.choose(&at, p, k.tuning()); got.why != "" || got.err != nil && !errors.As(got.err, &no) {
				t.Fatalf("%s: %v, %v\n%s", k.name, got.why, got.err, text)
			}
		}
	})
}
