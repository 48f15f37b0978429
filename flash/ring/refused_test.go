package ring

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
)

// TestRefused: what docs/scale.md says is refused is, with an error that names the field when a plan, a model or a stream is made; and
// nothing else is in its table.
func TestRefused(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## What is refused\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section, -1)[1:] {
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			listed[name[1]] = true
		}
	}
	d := sharedDevices(t, 1)[0]
	for field, change := range map[string]func(p *flash.Problem){
		"Pages":       func(p *flash.Problem) { p.Pages = flash.Pages{Count: 4, Size: 16, PerSequence: 4} },
		"KeyType":     func(p *flash.Problem) { p.KeyType = flash.Q8_0 },
		"ValueType":   func(p *flash.Problem) { p.ValueType = flash.Q8_0 },
		"Packed.Keys": func(p *flash.Problem) { p.Packed = flash.Packed{Queries: 100} },
		"Lists":       func(p *flash.Problem) { p.Lists.Keys = 8 },
		"MaskBlocks": func(p *flash.Problem) {
			p.MaskFunction, p.MaskBlocks = score.Dilated(3, -1), flash.Blocks{Queries: 16, Keys: 16}
		},
		"Blocks": func(p *flash.Problem) {
			p.Packed, p.Blocks = flash.Packed{Queries: 100, Keys: 100}, flash.Blocks{Queries: 16, Keys: 16}
		},
		"Within": func(p *flash.Problem) { p.Within = flash.Within{Queries: 128, Keys: 128} },
	} {
		require.True(t, listed[field], "docs/scale.md must list %s", field)
		delete(listed, field)
		p := flash.Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 32, DType: flash.F16}
		change(&p)
		_, err := p.Normalize()
		require.NoError(t, err, "one device takes it")
		_, model := NewModel(p, Shard{}, 2)
		_, stream := NewStream(d, p, 0)
		_, ranks := rings(t, 2)
		plans := each(ranks, func(_ int, r *Ring) error {
			_, err := r.Plan(t.Context(), p, Shard{})
			return err
		})
		for _, err := range append(plans, model, stream) {
			var bad *flash.ArgumentError
			require.ErrorAs(t, err, &bad, field)
			require.Equal(t, "Problem."+field, bad.Argument)
		}
	}
	require.Empty(t, listed, "docs/scale.md lists what is not refused")
}
