package vk_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk"
)

// TestModulesThatALayerCannotRead: what a layer older than VK_KHR_shader_bfloat16 says of a module that uses it is passed over, and
// nothing else is: not the same of a module that does not, and not an objection to that very module. A layer that knows the extension
// objects, since the device has it not enabled.
func TestModulesThatALayerCannotRead(t *testing.T) {
	passedOver := vk.CountPassedOver(t)
	dev, layer, objected := objections(t, vk.InstanceOptions{Validation: true})
	if dev.Facts().Type != vk.DeviceCPU {
		t.Skip("a GPU's driver may not survive a module of what it does not offer")
	}
	require.GreaterOrEqual(t, layer, vk.Version11)
	opening := passedOver()

	const geometry, brain, nothing = 2, 5116, 1 << 14
	made := func(capabilities ...uint32) []vk.Message {
		i := affineInfo(3)
		i.Code = slices.Clone(i.Code[:spirv.HeaderWords])
		for _, c := range capabilities {
			i.Code = append(i.Code, spirv.Instruction(17, c)...)
		}
		i.Code = append(i.Code, affine()[spirv.HeaderWords:]...)
		if p, err := dev.NewComputePipeline(i); err == nil {
			require.NoError(t, p.Close())
		}
		return objected()
	}
	ids := func(all []vk.Message) string {
		var b strings.Builder
		for _, m := range all {
			b.WriteString(m.String() + "\n")
		}
		return b.String()
	}
	require.Empty(t, made())
	require.Contains(t, ids(made(nothing)), "nvalid capability operand: 16384")
	require.Contains(t, ids(made(geometry)), "Geometry")
	if layer >= vk.MakeVersion(1, 4, 311) {
		require.Contains(t, ids(made(brain)), "BFloat16TypeKHR")
		return
	}
	require.Equal(t, opening, passedOver())
	require.Empty(t, made(brain))
	require.Greater(t, passedOver(), opening)
	require.Contains(t, ids(made(brain, geometry)), "Geometry", "an objection to that module")
	require.NotContains(t, ids(made(brain, geometry)), "5116")
}
