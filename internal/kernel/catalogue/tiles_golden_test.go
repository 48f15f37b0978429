package catalogue

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/vk"
)

var updateTiles = flag.Bool("update-tiles", false, "write what tiles are chosen now to testdata/tiles")

// goldenDevice is a device made up for TestTilesStay: what the choice of a tile looks at.
type goldenDevice struct {
	caps     *kernel.Capabilities
	fragment kernel.Fragment
	layout   string // a layout that TestDecodeLayout knows
}

// goldenDevices are the devices that tiles are measured on.
func goldenDevices() map[string]goldenDevice {
	shuffles := func(c *kernel.Capabilities) *kernel.Capabilities {
		s := &c.Facts.Subgroup
		s.Compute, s.FullSubgroups, s.RequiredSizeCompute, s.Ops = true, true, true, vk.SubgroupBasic|vk.SubgroupVote|vk.SubgroupShuffle
		c.Enabled.ComputeFullSubgroups, c.Enabled.SubgroupSizeControl, c.Enabled.Storage16 = true, true, true
		return c
	}
	cpu := &vk.Facts{Name: "llvmpipe", VendorID: 0x10005, EffectiveVersion: vk.Version13, Type: vk.DeviceCPU}
	cpu.Limits.MaxSharedMemory, cpu.Limits.MaxWorkgroupInvocations = 32<<10, 1024
	cpu.Limits.MaxWorkgroupSize = [3]uint32{1024, 1024, 1024}
	cpu.Subgroup.Size, cpu.Subgroup.MaxWorkgroupSubgroups = 8, 32
	gpu := kerneltest.Hopper()
	gpu.Facts.Subgroup.MaxWorkgroupSubgroups = 32
	gpu.Facts.Matrices = []vk.MatrixShape{{M: 16, N: 16, K: 16, A: vk.ComponentF16, B: vk.ComponentF16, C: vk.ComponentF16,
		Result: vk.ComponentF16, Scope: vk.ScopeSubgroup}}
	return map[string]goldenDevice{
		"h200": {shuffles(gpu), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, "NVIDIA 16x16x16"},
		"cpu":  {shuffles(&kernel.Capabilities{Facts: cpu}), kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, "lavapipe"},
	}
}

// goldenProblems go through what rows of the tables are for.
func goldenProblems() []*attn.Problem {
	type shape struct{ batch, heads, keyHeads, queries, keys int }
	var out []*attn.Problem
	for _, dim := range [][2]int{{8, 8}, {32, 32}, {64, 64}, {72, 72}, {96, 96}, {128, 128}, {192, 192}, {256, 256}, {64, 128}} {
		for _, s := range []shape{
			{16, 32, 32, 1024, 1024}, {4, 16, 16, 4096, 4096}, {16, 16, 16, 512, 512}, {1, 8, 8, 1024, 1024}, {1, 4, 4, 16384, 16384},
			{2, 16, 4, 300, 333},
			{1, 8, 8, 100, 5000}, {1, 16, 16, 24, 24}, {1, 32, 8, 1, 16384}, {2, 16, 16, 8, 2000},
		} {
			for _, causal := range []attn.Causal{attn.CausalNone, attn.CausalBottomRight} {
				for _, p := range []attn.Problem{{DType: attn.F16}, {DType: attn.BF16}, {DType: attn.F32}, {DType: attn.F16, Dropout: 0.1},
					{DType: attn.F16, Blocks: attn.Blocks{Queries: 128, Keys: 128}},
					{DType: attn.BF16, Blocks: attn.Blocks{Queries: 32, Keys: 64}}} {
					p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen = s.batch, s.heads, s.keyHeads, s.queries, s.keys
					p.HeadDim, p.ValueDim, p.Causal = dim[0], dim[1], causal
					out = append(out, kerneltest.Problem(p))
				}
			}
		}
	}
	for _, dim := range [][2]int{{576, 512}, {320, 320}, {288, 272}} {
		for _, s := range []shape{{1, 16, 16, 4096, 4096}, {4, 128, 1, 1, 8192}, {1, 16, 1, 1, 32768}, {2, 4, 1, 1, 300},
			{1, 8, 8, 24, 24}} {
			for _, p := range []attn.Problem{{DType: attn.F16}, {DType: attn.BF16,
				ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}, {DType: attn.F32},
				{DType: attn.F16, Dropout: 0.1},
				{DType: attn.F16, Blocks: attn.Blocks{Queries: 128, Keys: 128}}} {
				p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen = s.batch, s.heads, s.keyHeads, s.queries, s.keys
				p.HeadDim, p.ValueDim = dim[0], dim[1]
				out = append(out, kerneltest.Problem(p))
			}
		}
	}
	return out
}

// choices gives for each kernel that could run a problem the tile chosen, and its numbers by name.
func (g *goldenDevice) choices(t *testing.T, p *attn.Problem) map[string]string {
	out := map[string]string{}
	for _, k := range choosers() {
		if !k.takes(p) {
			continue
		}
		forms := []int{kernel.FormRegisters}
		if k.on == everyForm {
			forms = append(forms, kernel.FormShared)
		}
		for _, form := range forms {
			name, tn := k.name, k.tuning()
			if k.on == everyForm {
				name = fmt.Sprintf("%s form %d", name, form)
			}
			got := k.choose(&place{g.caps, g.fragment, kerneltest.LayoutOf(t, g.layout), form}, p, tn)
			if got.err != nil {
				out[name] = "none: " + got.err.Error()
				continue
			}
			var numbers []string
			for _, name := range slices.Sorted(maps.Keys(tn.Effect)) {
				numbers = append(numbers, fmt.Sprintf("%s=%d", name, tn.Effect[name]))
			}
			out[name] = got.tile.String() + ": " + strings.Join(numbers, " ")
		}
	}
	return out
}

// TestTilesStay: on the devices that tiles were measured on, every kernel takes the tile that testdata/tiles has for it. After a change
// that is meant to choose others, -update-tiles writes the files anew.
func TestTilesStay(t *testing.T) {
	problems := goldenProblems()
	for name, g := range goldenDevices() {
		t.Run(name, func(t *testing.T) {
			chosen := map[string]map[string][]int{} // kernel, tile, numbers of problems
			for i := range problems {
				for kernel, tile := range g.choices(t, problems[i]) {
					if chosen[kernel] == nil {
						chosen[kernel] = map[string][]int{}
					}
					chosen[kernel][tile] = append(chosen[kernel][tile], i)
				}
			}
			var b strings.Builder
			for _, kernel := range slices.Sorted(maps.Keys(chosen)) {
				fmt.Fprintf(&b, "%s\n", kernel)
				for _, tile := range slices.Sorted(maps.Keys(chosen[kernel])) {
					fmt.Fprintf(&b, "  %s\n   %s\n", tile, ranges(chosen[kernel][tile]))
				}
			}
			for _, k := range Forward {
				for _, queries := range []int{1, 4, 600} {
					if k.Candidates == nil || k.MostRows > 0 && queries > k.MostRows {
						continue
					}
					p := kerneltest.Problem(attn.Problem{Heads: 4, KeyHeads: 4, QueryLen: queries, DType: attn.F16})
					fmt.Fprintf(&b, "candidates of %s, %d queries\n", k.Name, queries)
					for _, m := range k.Candidates(g.caps, p) {
						fmt.Fprintf(&b, "  %v\n", m)
					}
				}
			}
			file := filepath.Join("testdata", "tiles", name+".txt")
			if *updateTiles {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			if string(want) == b.String() {
				return
			}
			wanted, got := strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")
			for i := range min(len(wanted), len(got)) {
				if wanted[i] != got[i] {
					t.Fatalf("%s:%d:\nwas %s\nis  %s", file, i+1, wanted[i], got[i])
				}
			}
			t.Fatalf("%s has %d lines, and there are %d", file, len(wanted), len(got))
		})
	}
}

// ranges is sorted numbers as text, neighbours together: " 1 4-7".
func ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		fmt.Fprintf(&b, " %d", numbers[i])
		if last > i {
			fmt.Fprintf(&b, "-%d", numbers[last])
		}
		i = last + 1
	}
	return b.String()
}
