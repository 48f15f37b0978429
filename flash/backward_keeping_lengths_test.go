package flash

import (
	"fmt"
	"maps"
	"testing"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/vktest"
)

// Tiles of the kernel of keys: a fragment of everything, and two subgroups that fetch two tiles' worth ahead.
var (
	smallKeys = map[string]int{"kv_w": 1, "kv_rm": 1, "kv_bc": 1, "kv_ck": 1}
	pairsKeys = map[string]int{"kv_w": 2, "kv_rm": 1, "kv_bc": 2, "kv_ck": 1, "kv_prefetch": 1}
)

// TestBackwardKeepingWithLengths: batch entries of no, one, few and all queries and keys have the scalar tier's gradients with dS in
// memory, in which nothing is read that was not written, and gradients beyond the lengths are 0.
func TestBackwardKeepingWithLengths(t *testing.T) {
	d := testDevice(t)
	for i, x := range []struct {
		set    func(p *Problem)
		tuning map[string]int
		long   string
	}{
		{func(p *Problem) { p.Causal = CausalBottomRight }, smallKeys, ""},
		{func(p *Problem) { p.Causal, p.Batch, p.QueryLen, p.KeyLen = CausalTopLeft, 2, 230, 260 }, smallKeys, ""},
		{func(p *Problem) { p.QueryLengths = false }, pairsKeys, "lengths of keys beside those of queries"},
		{func(p *Problem) { p.KeyLengths, p.Causal = false, CausalBottomRight }, pairsKeys, ""},
		{func(p *Problem) { p.Window, p.Sinks = SlidingWindow(9, 2), true }, smallKeys, "windows from the top left"},
		{func(p *Problem) { p.Window, p.Causal = SlidingWindow(20, 3), CausalTopLeft }, smallKeys, ""},
		{func(p *Problem) { p.Causal, p.Dropout, p.ScoreFunction = CausalBottomRight, 0.25, score.Softcap(3) }, smallKeys,
			"the options of packed sequences"},
	} {
		p := Problem{Batch: 6, Heads: 4, KeyHeads: 2, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, KeyLengths: true,
			QueryLengths: true}
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			tuning := maps.Clone(x.tuning)
			if i == 0 { // in slabs of a key head
				tuning["max_slab"] = 2 * 48 * 64 * 2
			}
			lengthsAsScalar(t, d, p, "keep_ds", tuning)
		})
	}
}

// TestBackwardKeepingPacked: the same of packed sequences, of which queries alone may be packed.
func TestBackwardKeepingPacked(t *testing.T) {
	d := testDevice(t)
	for i, x := range []struct {
		set    func(p *Problem)
		tuning map[string]int
		long   string
	}{
		{func(p *Problem) { p.Causal = CausalBottomRight }, smallKeys, ""},
		{func(p *Problem) { p.Heads, p.KeyHeads, p.KeyLengths, p.QueryLengths = 6, 3, true, true }, pairsKeys, ""},
		{func(p *Problem) { p.Window, p.Sinks = SlidingWindow(9, 2), true }, map[string]int{"max_groups": 3}, ""},
		{func(p *Problem) { p.Window, p.Causal = SlidingWindow(20, -1), CausalTopLeft }, smallKeys, "windows of entries with lengths"},
		{func(p *Problem) { p.Causal, p.Dropout, p.ScoreFunction = CausalBottomRight, 0.25, score.Softcap(3) }, smallKeys, ""},
		{func(p *Problem) { p.Packed.Keys, p.KeyLengths = 0, true }, smallKeys, ""},
	} {
		p := packedProblem
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			tuning := maps.Clone(x.tuning)
			if i < 2 { // in slabs of a key head, and of two and one
				f := matrixFragment(d)
				down := (p.Packed.Keys + p.Batch*(f.M-1)) / f.M * f.M
				tuning["max_slab"] = (1 + i) * p.Heads / p.KeyHeads * down * attn.CeilDiv(p.QueryLen, f.K) * f.K * 2
			}
			packedAsScalar(t, d, p, "keep_ds", tuning)
		})
	}
}
