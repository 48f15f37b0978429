package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/vk"
)

// section is what a section prints on a terminal of 80 columns.
func section(title string, body func(named)) string {
	var b strings.Builder
	if err := (named{w: &b, width: 80}).section(title, body); err != nil {
		panic(err)
	}
	return b.String()
}

// TestAbilities: what a device lacks has its cost, and what to do: where the driver is too old, where the device cannot, and where
// the loader is too old.
func TestAbilities(t *testing.T) {
	old := &vk.Facts{APIVersion: vk.Version11, EffectiveVersion: vk.Version11, Features: vk.Features{Storage16: true}}
	tiers := []flash.TierInfo{
		{Tier: flash.TierMatrix, Kernel: "matrix_forward", Missing: []string{"float16: it has Vulkan 1.1", "bfloat16: likewise"}},
		{Tier: flash.TierScalar, Kernel: "scalar_forward", DTypes: []flash.DType{flash.F32}},
		{Tier: flash.TierScalar, Kernel: "scalar_decode", MostRows: 8, Missing: []string{"float32: no shuffles"}},
	}
	d := doctor{doctorJSON: doctorJSON{Abilities: abilitiesOf(flash.DeviceInfo{Facts: old, Tiers: tiers})}}
	require.Equal(t, `Features
  there       fp16, bf16
  missing     matrices: the device has no Vulkan 1.3, cooperativeMatrix,
                shaderFloat16, shaderInt16, vulkanMemoryModel,
                subgroupSizeControl, computeFullSubgroups, subgroup votes and
                shuffles in compute shaders
              cost: all types are computed by the scalar tier, at the rate of
                fp32: matrix units are several times as fast
              to do: look for a newer driver, which may have Vulkan 1.3,
                VK_KHR_cooperative_matrix, VK_KHR_shader_float16_int8,
                VK_KHR_vulkan_memory_model, VK_EXT_subgroup_size_control; NVIDIA
                from Turing, AMD from RDNA 3 and Intel Arc have the hardware
              kernels: matrix_forward
  missing     decoding: the device has no subgroupSizeControl, subgroup votes
                and shuffles in compute shaders
              cost: few queries are computed by kernels for many, which read the
                cache through shared memory
              to do: look for a newer driver, which may have
                VK_EXT_subgroup_size_control
              kernels: scalar_decode
  missing     timestamps: the device has no timestamps of compute queues
              cost: times are the host's, and short passes look slower than they
                are; attention is not affected
              to do: nothing: the driver knows these features, and says that the
                device has none

`, section("Features", d.printAbilities))

	old.APIVersion = vk.Version13
	require.Contains(t, abilitiesOf(flash.DeviceInfo{Facts: old})[1].Do, "update the Vulkan loader, which is older than the driver")

	bare := abilitiesOf(flash.DeviceInfo{Facts: &vk.Facts{EffectiveVersion: vk.Version13, APIVersion: vk.Version13}})
	require.Equal(t, "fp16, bf16", bare[0].Name)
	require.Equal(t, []string{"storageBuffer16BitAccess"}, bare[0].Lacks)
	require.Equal(t, "nothing: the driver knows these features, and says that the device has none", bare[0].Do)
	require.Equal(t, "decoding", bare[1].Name, "matrices say nothing without 16-bit storage")

	// A device that has the extension and no bf16.
	new := &vk.Facts{EffectiveVersion: vk.Version13, Extensions: []string{"VK_KHR_cooperative_matrix", "VK_KHR_shader_bfloat16"},
		Features: vk.Features{Storage16: true, CooperativeMatrix: true, Float16: true, Int16: true, VulkanMemoryModel: true,
			SubgroupSizeControl: true, ComputeFullSubgroups: true},
		Subgroup: vk.Subgroup{Compute: true, RequiredSizeCompute: true, FullSubgroups: true,
			Ops: vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle},
		Matrices: []vk.MatrixShape{{M: 16, N: 16, K: 16, A: vk.ComponentF16, B: vk.ComponentF16, C: vk.ComponentF32,
			Result: vk.ComponentF32, Scope: vk.ScopeSubgroup}}}
	all := abilitiesOf(flash.DeviceInfo{Facts: new})
	require.True(t, all[1].Has)
	require.Equal(t, []string{"shaderBFloat16Type", "shaderBFloat16CooperativeMatrix"}, all[2].Lacks)
	require.Contains(t, all[2].Do, "nothing: ")
	new.Features.SubgroupSizeControl, new.Subgroup.RequiredSizeCompute = false, false
	require.Contains(t, abilitiesOf(flash.DeviceInfo{Facts: new})[1].Lacks, "subgroupSizeControl")
	new.Subgroup.Size, new.Subgroup.Min, new.Subgroup.Max = 64, 64, 64
	require.True(t, abilitiesOf(flash.DeviceInfo{Facts: new})[1].Has, "there is one size of subgroups")
	new.Features.BFloat16Type, new.Features.BFloat16CooperativeMatrix = true, true
	require.Equal(t, []string{"bf16 matrices into fp32"}, abilitiesOf(flash.DeviceInfo{Facts: new})[2].Lacks)
}

// TestDoctorOnWrongKernels: a self-check that fails, a kernel on the deny-list and an output that is wrong are told in full, with what to
// do.
func TestDoctorOnWrongKernels(t *testing.T) {
	d := doctor{f: &doctorFlags{}, doctorJSON: doctorJSON{
		Device: &deviceJSON{SelfChecks: []checkJSON{
			{Impl: "flash2", Tier: "scalar", DType: "float32", Kernel: "scalar_forward 32x32", Pass: true},
			{Impl: "flash2", Tier: "scalar", DType: "float16", Kernel: "scalar_forward 32x32", Why: "o[0, 1, 2, 3] is 1 and should be 2"},
			{Impl: "flash2", Tier: "matrix", DType: "float16", Kernel: "matrix_forward 64x64", Why: "lse[0, 1, 2, 0] is NaN"},
		}},
		Stored: &storedJSON{Denied: []tune.Denial{{Modules: []string{"matrix_forward.f16"}, Why: "lse is NaN"},
			{Modules: []string{"matrix_backward_kv.f16"}, Why: "dk is wrong"},
			{Modules: []string{"matrix_backward_kv.f16"}, Why: "dv is wrong"}},
			Notices: []string{"a file is damaged"}},
		Abilities: []abilityJSON{{Name: "timestamps", Do: "nothing"}},
	}}
	require.Equal(t, `Self-checks
  right       1 of 3: every kernel, in every type that it has here, against
                float64
  wrong       flash2/scalar float16  scalar_forward 32x32  o[0, 1, 2, 3] is 1
                and should be 2
  wrong       flash2/matrix float16  matrix_forward 64x64  lse[0, 1, 2, 0] is
                NaN

`, section("Self-checks", d.printSelfChecks))
	d.summarize()
	require.False(t, d.Works)
	require.Len(t, d.Wrong, 3)
	text := section("Summary", d.printSummary)
	require.True(t, strings.HasPrefix(text, `Summary
  3 things do not work
  wrong       the self-check of scalar_forward 32x32, flash2/scalar float16,
                failed
              to do: what this kernel gives cannot be trusted; update the
                driver; if it stays, report it with this page
  wrong       the self-check of matrix_forward 64x64, flash2/matrix float16,
                failed
              to do: plans pass the kernel over, so results stay right and are
                slower; update the driver; if it stays, report it with this page
  wrong       matrix_backward_kv.f16 is on the deny-list of this device and
                driver: its self-check failed
              to do: plans pass it over; update the driver; if it stays, report
                it with this page
  note        a file is damaged
              to do: see that the file can be read and written, or remove it
  note        missing, as 'Features' says: timestamps
              to do: nothing
`), text)
	require.Contains(t, section("Stored", d.printStored), "matrix_backward_kv.f16: dk is wrong")
}

// TestDoctorsTables: kernels of several types and head dimensions share a line; what a kernel is not for is no reason to tell; a pass
// that was skipped says so.
func TestDoctorsTables(t *testing.T) {
	choice := func(pass, dtype string, dim int, kernel string, why ...string) choiceJSON {
		return choiceJSON{Pass: pass, DType: dtype, Dim: dim, Kernel: kernel, Why: why}
	}
	none := choice("backward", "float32", 64, "", "scalar_backward: the device lacks the feature x")
	none.Error = "not on this device"
	d := doctor{doctorJSON: doctorJSON{Device: &deviceJSON{}, Choices: []choiceJSON{
		choice("forward", "float16", 64, "a 64x64", "c: slower", "d: 16 rows: it takes up to 8",
			"e: e 16x16 is on the deny-list of this device and driver (file), because its self-check failed: o is 1"),
		choice("forward", "float16", 128, "a 64x64", "b: slower"),
		choice("forward", "bfloat16", 64, "a 64x64"), choice("forward", "bfloat16", 128, "a 64x64"),
		choice("forward", "float32", 64, "a 32x32"), none,
	}}}
	require.Equal(t, `Kernels
  pass      types       D        kernel and tile
  ─────────────────────────────────────────────────
  forward   fp16, bf16  64, 128  a 64x64
  forward   fp32        64       a 32x32
  backward  fp32        64       not on this device
  passed over slower (c, b)
              on the deny-list: the self-check failed, as 'Stored' says (e)
              the device lacks the feature x (scalar_backward)

`, section("Kernels", d.printChoices))

	maxErr := 1e-3
	ours := result.Origin{Library: "vkattn"}
	d.Device.Peaks = result.Peaks{MatrixTFLOPS: 100, FP32TFLOPS: 10, CopyGBps: 1000}
	d.Rows = []result.Row{{Origin: ours, Case: result.Case{DType: "float16", Nq: 4096, N: 4096, D: 64}, Tier: "matrix",
		Fwd: result.Pass{Ms: 1, TFLOPS: 50}, Check: result.Check{MaxErr: &maxErr},
		BwdFailure: result.Failure{Error: "predicted to take 3 s", Reason: result.ReasonLimit}}}
	text := section("Speed", d.printSpeeds)
	require.Contains(t, text, "  forward   fp16  64    1.000    50.00  1.0e-03  50.0  arithmetic\n")
	require.Regexp(t, `  backward  fp16  64  [a-z> ]+\n`, text)
	require.Contains(t, text, "  notes       predicted to take 3 s\n")
}

// TestHost: the machine is described from its files, and variables of others are not told.
func TestHost(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	for name, text := range map[string]string{"vendor": "0x10de", "device": "0x2330", "class": "0x030200"} {
		write("bus/0000:01:00.0/"+name, text+"\n")
		write("bus/0000:02:00.0/"+name, strings.Replace(text, "0x03", "0x02", 1)+"\n") // a network card
	}
	write("os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 3\"\n")
	require.Equal(t, []string{"NVIDIA 10de:2330"}, adapters(filepath.Join(dir, "bus")))
	require.Equal(t, "Some Linux 3", osName(filepath.Join(dir, "os-release")))
	require.Empty(t, osName(filepath.Join(dir, "none")))
	require.Contains(t, (&hostJSON{GPUs: []string{"NVIDIA 10de:2330"}}).driverHelp(), "NVIDIA's driver with its Vulkan part")
	require.Empty(t, (&hostJSON{}).driverHelp())
	require.Contains(t, (&hostJSON{Closed: []string{"/dev/dri/renderD128"}}).driverHelp(), "join the groups render and video")
	require.Empty(t, closedNodes(filepath.Join(dir, "os-*")))

	require.Equal(t, []variableJSON{{"RADV_DEBUG", "nocache", ""}, {"VKATTN_TUNING", "off", "the file of tuned tiles; off: none"}},
		variables([]string{"VKATTN_TUNING=off", "VKATTN_TEST_PEER=1", "VK_TOKEN=secret", "HOME=/home/me", "RADV_DEBUG=nocache"}))
	t.Setenv("HOME", dir)
	require.Equal(t, "~/x and ~", homeless(dir+"/x and "+dir))
}
