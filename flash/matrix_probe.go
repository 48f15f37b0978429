package flash

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// lacksMatrix says what matrix_forward needs of a device, for storage type t, that this one lacks.
func (c *capabilities) lacksMatrix(t DType) string {
	if t == F32 {
		return "matrices take fp16 or bf16, and rounding fp32 to them would not be exact"
	}
	if v := c.facts.EffectiveVersion; v < vk.Version13 {
		return fmt.Sprintf("the device offers Vulkan %v, and 1.3 is needed", v)
	}
	if n := c.facts.Limits.MaxPushConstants; n < forwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, forwardPushBytes)
	}
	e, f := &c.enabled, &c.facts.Features
	type need struct {
		feature            string
		enabled, supported bool
	}
	needs := []need{
		{"cooperativeMatrix", e.CooperativeMatrix, f.CooperativeMatrix},
		{"vulkanMemoryModel", e.VulkanMemoryModel, f.VulkanMemoryModel},
		{"shaderFloat16", e.Float16, f.Float16},
		{"shaderInt16", e.Int16, f.Int16},
		{"storageBuffer16BitAccess", e.Storage16, f.Storage16},
		{"subgroupSizeControl", e.SubgroupSizeControl, f.SubgroupSizeControl},
		{"computeFullSubgroups", e.ComputeFullSubgroups, f.ComputeFullSubgroups},
	}
	if t == BF16 {
		needs = append(needs, need{"shaderBFloat16Type", e.BFloat16Type, f.BFloat16Type},
			need{"shaderBFloat16CooperativeMatrix", e.BFloat16CooperativeMatrix, f.BFloat16CooperativeMatrix})
	}
	for _, n := range needs {
		if why := lacking(n.feature, n.enabled, n.supported); why != "" {
			return why
		}
	}
	s := &c.facts.Subgroup
	const ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
	if !s.Compute || s.Ops&ops != ops || !s.FullSubgroups || !s.RequiredSizeCompute {
		return "the device lacks votes, shuffles or required, full subgroups in compute shaders"
	}
	if len(c.fragments(t)) == 0 {
		return fmt.Sprintf("the device multiplies no %v matrices into fp32 ones in subgroups of %d, of a shape that fits", t, s.Size)
	}
	return ""
}

// fragments lists the shapes in which the device multiplies matrices of a type, the preferred first: 16×16×16, for which
// the tiles were measured, then the largest.
func (c *capabilities) fragments(t DType) []matrixShape {
	component := vk.ComponentF16
	if t == BF16 {
		component = vk.ComponentBF16
	}
	var out []matrixShape
	for _, m := range c.facts.Matrices {
		s := matrixShape{int(m.M), int(m.N), int(m.K), int(c.facts.Subgroup.Size)}
		if m.A == component && m.B == component && m.C == vk.ComponentF32 && m.Result == vk.ComponentF32 && m.Scope == vk.ScopeSubgroup &&
			s.fits() && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	rank := func(s matrixShape) int {
		if s.M == 16 && s.N == 16 && s.K == 16 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b matrixShape) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.M*b.N*b.K, a.M*a.N*a.K), cmp.Compare(a.K, b.K), cmp.Compare(a.N, b.N))
	})
	return out
}

// fits says whether the shader takes a fragment: shared memory is counted in pieces of 8 elements, and chunks of keys hold
// whole fragments of either kind.
func (s matrixShape) fits() bool {
	return s.M > 0 && s.N > 0 && s.K > 0 && s.N%8 == 0 && s.K%8 == 0 && (s.N%s.K == 0 || s.K%s.N == 0)
}

// layout gives the layout of fragments on this device, probing it when it is not known yet.
func (d *Device) layout(t DType, s matrixShape) (matrixLayout, error) {
	key, err := d.probeKey(t, s)
	if err != nil {
		return matrixLayout{}, err
	}
	defer known.enter(d.identity() + " " + key)() // the probe runs once, whoever asks
	if acc, a, err := parseHeld(d.recall(key), s); err == nil {
		return decodeLayout(s, acc, a), nil
	}
	if 8*s.M*s.N+4*s.M*s.K > int(d.caps.facts.Limits.MaxSharedMemory) {
		return matrixLayout{Form: formShared, Why: "fragments are too large to be probed"}, nil
	}
	words, err := d.probe(t, s)
	if err != nil {
		return matrixLayout{}, fmt.Errorf("probing the layout of %v %v matrices: %w", s, t, err)
	}
	acc, a, err := readHeld(words, s)
	if err != nil {
		return matrixLayout{Form: formShared, Why: err.Error()}, nil
	}
	if text, err := json.Marshal([2]heldElements{acc, a}); err == nil {
		d.remember(key, string(text))
	}
	return decodeLayout(s, acc, a), nil
}

// probeKey names everything that a layout may depend on besides the device and its driver.
func (d *Device) probeKey(t DType, s matrixShape) (string, error) {
	hash, err := d.moduleHash("matrix_probe." + t.suffix())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("layout %s %v subgroup %d module %.16s", t.suffix(), s, s.Lanes, hash), nil
}

// MarshalJSON makes [row, col].
func (e element) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{e.row, e.col}) }

// UnmarshalJSON reads [row, col].
func (e *element) UnmarshalJSON(b []byte) error {
	var pair [2]int
	err := json.Unmarshal(b, &pair)
	e.row, e.col = pair[0], pair[1]
	return err
}

// parseHeld reads what layout remembered.
func parseHeld(text string, s matrixShape) (acc, a heldElements, err error) {
	if text == "" {
		return nil, nil, errors.New("nothing is known")
	}
	var both [2]heldElements
	if err := json.Unmarshal([]byte(text), &both); err != nil {
		return nil, nil, err
	}
	for _, held := range both {
		if len(held) != s.Lanes {
			return nil, nil, fmt.Errorf("%d lanes, and the subgroup has %d", len(held), s.Lanes)
		}
	}
	return both[0], both[1], nil
}

// probeSlots is SLOTS of shaders/tools/matrix_probe.comp.
const probeSlots = 64

func probeConstants(s matrixShape) constants {
	return constants{{"WG", s.Lanes}, {"M", s.M}, {"N", s.N}, {"K", s.K}}
}

// probe runs matrix_probe and gives its output.
func (d *Device) probe(t DType, s matrixShape) ([]uint32, error) {
	name := "matrix_probe." + t.suffix()
	k, err := d.build(name, probeConstants(s),
		pipeline.KernelInfo{SubgroupSize: uint32(s.Lanes), FullSubgroups: true})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 4*(4+s.Lanes*2*probeSlots))
	for i := range data {
		data[i] = 0xff
	}
	out, err := d.ctx.Alloc("probe", uint64(len(data)), vk.DeviceLocal)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx := context.Background()
	if err := d.ctx.Upload(ctx, out.All(), data); err != nil {
		return nil, err
	}
	err = d.once(func(rec *pipeline.Recording) error {
		return rec.Dispatch(k, []pipeline.Access{{Binding: out.All(), Mode: pipeline.Write}}, nil, [3]uint32{1, 1, 1}, name)
	}, 1)
	if err != nil {
		return nil, err
	}
	if err := d.ctx.Download(ctx, out.All(), data); err != nil {
		return nil, err
	}
	words := make([]uint32, len(data)/4)
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(data[4*i:])
	}
	return words, nil
}

// once records, submits and waits.
func (d *Device) once(record func(*pipeline.Recording) error, dispatches int) error {
	rec, err := d.ctx.NewRecording(pipeline.RecordingInfo{MaxDispatches: dispatches, MaxBindings: dispatches * len(recorder{}.access)})
	if err != nil {
		return err
	}
	defer rec.Close()
	if err := record(rec); err != nil {
		return err
	}
	pending, err := d.ctx.Submit(rec)
	if err != nil {
		return err
	}
	return pending.Wait(context.Background())
}

// readHeld reads the output of matrix_probe.
func readHeld(words []uint32, s matrixShape) (acc, a heldElements, err error) {
	if size := words[2]; int(size) != s.Lanes {
		return nil, nil, fmt.Errorf("the driver ran the probe in subgroups of %d, not %d", size, s.Lanes)
	}
	for i, held := range [2]*heldElements{&acc, &a} {
		n := words[i]
		if n == 0 || n > probeSlots {
			return nil, nil, fmt.Errorf("invocations hold %d components, and the probe takes from 1 to %d", n, probeSlots)
		}
		for lane := range s.Lanes {
			at := 4 + (2*lane+i)*probeSlots
			comps := make([]element, n)
			for e := range comps {
				w := words[at+e]
				comps[e] = element{int(w >> 16), int(w & 0xffff)}
			}
			*held = append(*held, comps)
		}
	}
	return acc, a, nil
}
