package flash

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// Tiles that tests force on kernels on matrices are written in the device's own fragments, which differ from device to device: parameters
// that count keys, or columns of heads, count steps of whole fragments, and br counts fragments' rows; all others are what they are.
var countsSteps = []string{"bc", "ck", "slice", "v_keys", "keys", "stage"}

// matrixFragment is the device's preferred one for fp16.
func matrixFragment(d *Device) kernel.Fragment { return d.env.Caps.Fragments(attn.F16)[0] }

// stepOf is the fewest keys that are whole fragments in every product, those of the backward pass with keys for rows among them.
func stepOf(f kernel.Fragment) int { return max(f.M, f.N, f.K) }

// inFragments gives a forced tile as a device has it.
func inFragments(c *kernel.Capabilities, tile map[string]int) map[string]int {
	all := c.Fragments(attn.F16)
	if len(all) == 0 {
		return tile
	}
	out := maps.Clone(tile)
	for name, v := range tile {
		base := name[strings.IndexByte(name, '_')+1:] // without the pass's prefix
		for _, counts := range countsSteps {
			if name == counts || base == counts {
				out[name] = v * stepOf(all[0])
			}
		}
		if name == "br" {
			out[name] = v * all[0].M
		}
	}
	return out
}

// forwardTile gives the forced tile of a forward pass on matrices for the device, having made sure that GPUs with other fragments take it
// too.
func forwardTile(t *testing.T, d *Device, of Implementation, p Problem, tile map[string]int) map[string]int {
	t.Helper()
	if tile != nil {
		eachElsewhere(t, d, func(g *Device) error {
			_, err := pick(g, attnOf(normal(t, p)), catalogue.Forward, "", of, TierMatrix,
				func(k *kernel.Kernel) (kernel.Program, *kernel.Tuning, string, error) {
					tn := kernel.NewTuning(inFragments(&g.env.Caps, tile))
					if err := tn.Fits(&k.Offer); err != nil {
						return nil, nil, "", err
					}
					program, err := k.Plan(g.env, attnOf(normal(t, p)), tn)
					return program, tn, "", err
				})
			return err
		})
	}
	return inFragments(&d.env.Caps, tile)
}

// backwardTile is the same of a backward pass.
func backwardTile(t *testing.T, d *Device, of Implementation, p Problem, tile map[string]int) map[string]int {
	t.Helper()
	if tile != nil {
		eachElsewhere(t, d, func(g *Device) error {
			_, err := pick(g, attnOf(normal(t, p)), catalogue.Backward, "backward of ", of, TierMatrix,
				func(k *kernel.BackwardKernel) (kernel.BackwardProgram, *kernel.Tuning, string, error) {
					tn := kernel.NewBackwardTuning(inFragments(&g.env.Caps, tile))
					if err := tn.Fits(&k.Offer); err != nil {
						return nil, nil, "", err
					}
					var forward kernel.Program
					if of == Standard { // whose backward pass reads what its forward pass kept
						scalar, err := standard.ChooseScalarTile(&g.env.Caps, attnOf(normal(t, p)), kernel.NewTuning(nil))
						require.NoError(t, err)
						forward, err = standard.New(g.env, attnOf(normal(t, p)), &scalar, kernel.NewTuning(nil))
						require.NoError(t, err)
					}
					program, err := k.Plan(g.env, attnOf(normal(t, p)), forward, tn)
					return program, tn, "", err
				})
			return err
		})
	}
	return inFragments(&d.env.Caps, tile)
}

func normal(t *testing.T, p Problem) Problem {
	t.Helper()
	p, err := p.Normalize()
	require.NoError(t, err)
	return p
}

// eachElsewhere requires that made-up GPUs plan, up to where a pipeline would be built.
func eachElsewhere(t *testing.T, d *Device, plan func(g *Device) error) {
	t.Helper()
	for _, g := range elsewhere(t, d) {
		err := plan(g)
		require.ErrorIs(t, err, errPlanned, "a %s does not take this tile", g.env.Caps.Facts.Name)
	}
}

// elsewhere are made-up GPUs with fragments 16 and 8 keys wide and subgroups of 32, which choose kernels and tiles and build nothing.
func elsewhere(t *testing.T, d *Device) (out []*Device) {
	t.Helper()
	for i := range kerneltest.GPUs {
		if g := &kerneltest.GPUs[i]; g.Name == "H100 PCIe" || g.Name == "T4, an older driver" {
			e := &kernel.Env{Ctx: d.env.Ctx, Dev: d.env.Dev, Caps: *g.Everything(), Modules: func(name string) ([]uint32, error) {
				if strings.HasPrefix(name, "matrix_probe") {
					return shaders.Module(name)
				}
				return nil, errPlanned
			}}
			e.Caps.Facts.DeviceID = uint32(i + 1) // what is known of one is not known of another
			e.Caps.Facts.Heaps = []vk.Heap{{Size: 16 << 30, DeviceLocal: true}}
			e.Caps.Facts.Limits.MaxStorageBufferRange = 1 << 30
			for _, k := range kerneltest.Layouts {
				if !strings.HasPrefix(k.Name, "NVIDIA") {
					continue
				}
				for _, dtype := range []attn.DType{attn.F16, attn.BF16} {
					key, err := e.ProbeKey(dtype, k.Shape)
					require.NoError(t, err)
					held, err := json.Marshal([2]kernel.HeldElements{k.Acc, k.A})
					require.NoError(t, err)
					kernel.Known.Mu.Lock()
					kernel.Known.Entries[e.Identity()+" "+key] = string(held)
					kernel.Known.Mu.Unlock()
				}
			}
			out = append(out, &Device{env: e})
		}
	}
	require.Len(t, out, 2)
	return out
}

// TestForcedTilesAreJudged: that a made-up GPU takes a tile is not taken for granted. One of 8 keys, which a CPU's fragments divide, is
// refused where fragments are 16 wide, as is one that passes 48 KiB; and numbers of fragments are taken.
func TestForcedTilesAreJudged(t *testing.T) {
	d := testDevice(t)
	h100, turing := elsewhere(t, d)[0], elsewhere(t, d)[1]
	require.Equal(t, []kernel.Fragment{{M: 16, N: 16, K: 16, Lanes: 32}, {M: 16, N: 8, K: 16, Lanes: 32}, {M: 16, N: 8, K: 8, Lanes: 32}},
		h100.env.Caps.Fragments(attn.F16))
	require.EqualValues(t, 48<<10, h100.env.Caps.Facts.Limits.MaxSharedMemory)
	p := normal(t, Problem{Batch: 1, Heads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 16, DType: F16})
	tile := map[string]int{"kv_w": 2, "kv_rm": 1, "kv_bc": 2, "kv_ck": 1, "slice": 3, "q_prefetch": 1}
	require.Equal(t, map[string]int{"kv_w": 2, "kv_rm": 1, "kv_bc": 32, "kv_ck": 16, "slice": 48, "q_prefetch": 1},
		inFragments(&h100.env.Caps, tile))
	require.Equal(t, map[string]int{"kv_w": 2, "kv_rm": 1, "kv_bc": 32, "kv_ck": 16, "slice": 48, "q_prefetch": 1},
		inFragments(&turing.env.Caps, tile))
	plan := func(g *Device, given map[string]int) error {
		_, err := matrix.Backward.Plan(g.env, attnOf(p), nil, kernel.NewBackwardTuning(given))
		return err
	}
	eight := map[string]int{"kv_bc": 8, "kv_ck": 8}
	require.ErrorContains(t, plan(h100, eight), "kv_ck = 8 must be a multiple of the fragment's N = 16 and K = 16")
	require.ErrorIs(t, plan(turing, eight), errPlanned)
	for _, g := range []*Device{h100, turing} {
		require.ErrorIs(t, plan(g, inFragments(&g.env.Caps, map[string]int{"kv_bc": 1, "kv_ck": 1})), errPlanned)
		require.ErrorContains(t, plan(g, map[string]int{"kv_bc": 2048, "kv_ck": 16}), "shared memory", fmt.Sprint(g.env.Caps.Facts.Name))
		require.False(t, errors.Is(plan(g, map[string]int{"kv_bc": 2048, "kv_ck": 16}), errPlanned))
	}
}
