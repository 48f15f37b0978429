package vk

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/spirv"
)

var (
	debian12 = MakeVersion(1, 3, 239)
	debian13 = MakeVersion(1, 4, 309)
	current  = MakeVersion(1, 4, 363)
)

// said are messages as old loaders and layers say them, each with real objections beside it: of the same kind, or to something like it.
var said = []struct {
	message Message
	layer   Version
	module  declares
	beside  []string // texts under the same ID that are objections
}{
	{Message{ID: "WARNING-vkGetDeviceProcAddr-device", Text: "vkGetDeviceProcAddr(): pName is trying to grab " +
		"vkGetPhysicalDeviceVideoEncodeQualityLevelPropertiesKHR which is an instance level function"},
		current, 0, []string{"vkGetDeviceProcAddr(): pName is trying to grab vkGetPhysicalDeviceProperties which is an instance level " +
			"function"}},
	{Message{ID: "VUID-VkDeviceCreateInfo-pNext-pNext", Text: "vkCreateDevice(): pCreateInfo->pNext chain includes a structure with " +
		"unknown VkStructureType (1000141000). This error is based on the Valid Usage documentation for version 309 of the Vulkan header."},
		debian13, 0, []string{
			"vkCreateDevice(): pCreateInfo->pNext chain includes a structure with unknown VkStructureType (1000141001). This error is " +
				"based on",
			"vkCreateDevice(): pCreateInfo->pNext chain includes a structure with unexpected VkStructureType VK_STRUCTURE_TYPE_SUBMIT_INFO",
			"vkCreateDevice(): pCreateInfo->pNext chain includes a structure with unknown VkStructureType (1000506000). This error is " +
				"based on",
		}},
	{Message{ID: "VUID-VkDeviceCreateInfo-pNext-pNext", Text: "Validation Error: [ VUID-VkDeviceCreateInfo-pNext-pNext ] Object 0: " +
		"VK_NULL_HANDLE, type = VK_OBJECT_TYPE_DEVICE; | MessageID = 0x901f59ec | vkCreateDevice: pCreateInfo->pNext chain includes a " +
		"structure with unknown VkStructureType (1000506000); Allowed structures are [VkDeviceDeviceMemoryReportCreateInfoEXT"},
		debian12, 0, []string{"pCreateInfo->pNext chain includes a structure with unknown VkStructureType (1000506001); Allowed " +
			"structures are"}},
	{Message{ID: "WARNING-CreateDevice-extension-not-found", Text: "vkCreateDevice(): pCreateInfo->ppEnabledExtensionNames[1] " +
		"VK_KHR_shader_bfloat16 is not a known extension string. Please make sure the spelling is correct."},
		debian13, 0, []string{
			"vkCreateDevice(): pCreateInfo->ppEnabledExtensionNames[7] VK_KHR_copy_memory_indirect is not a known extension string. " +
				"Please make sure the spelling is correct.",
			"vkCreateDevice(): pCreateInfo->ppEnabledExtensionNames[7] VK_KHR_cooperative_matrix is not a known extension string.",
		}},
	{Message{ID: "VUID_Undefined", Text: "Validation Warning: [ VUID_Undefined ] Object 0: handle = 0x7f63ac5a3190, type = " +
		"VK_OBJECT_TYPE_DEVICE; | MessageID = 0x79de34d4 | Device Extension VK_KHR_cooperative_matrix is not supported by this layer.  " +
		"Using this extension may adversely affect validation results"},
		debian12, 0, []string{"Device Extension VK_KHR_maintenance5 is not supported by this layer."}},
	{Message{ID: "VUID-VkShaderModuleCreateInfo-pCode-08737", Text: "vkCreateShaderModule(): pCreateInfo->pCode (spirv-val produced an " +
		"error):\nInvalid capability operand: 5116."},
		debian13, declaresBFloat16 | declaresCooperativeMatrix, []string{"vkCreateShaderModule(): pCreateInfo->pCode (spirv-val produced " +
			"an error):\nID '7[%7]' has not been defined", "Invalid capability operand: 6022."}},
	{Message{ID: "VUID-VkPipelineShaderStageCreateInfo-module-parameter",
		Text: "vkCreateComputePipelines(): pCreateInfos[0].stage VkShaderModule 0x30000000003 failed in spirv-opt because it does not " +
			"contain valid spirv for stage VK_SHADER_STAGE_COMPUTE_BIT. Invalid capability operand: 5118."},
		debian13, declaresBFloat16, []string{"vkCreateComputePipelines(): pCreateInfos[0].stage.module is VK_NULL_HANDLE"}},
	{Message{ID: "VUID-VkShaderModuleCreateInfo-pCode-08737", Text: "vkCreateShaderModule(): pCreateInfo->pCode (spirv-val produced an " +
		"error):\nInvalid capability operand: 5117."},
		debian13, declaresBFloat16, []string{"Invalid capability operand: 5088."}},
	{Message{ID: "UNASSIGNED-CoreValidation-Shader-InconsistentSpirv",
		Text: "| MessageID = 0x6bbb14 | SPIR-V module not valid: Invalid capability operand: 6022"},
		debian12, declaresCooperativeMatrix, []string{"SPIR-V module not valid: Block has no terminator",
			"SPIR-V module not valid: Invalid capability operand: 5116"}},
	{Message{ID: "VUID-VkShaderModuleCreateInfo-pCode-08739", Text: "vkCreateShaderModule(): SPIR-V has Capability (Unhandled " +
		"OpCapability) declared, but this is not supported by Vulkan."},
		debian13, declaresBFloat16, []string{"vkCreateShaderModule(): SPIR-V has Capability (Kernel) declared, but this is not supported " +
			"by Vulkan."}},
	{Message{ID: "VUID-VkShaderModuleCreateInfo-pCode-01090", Text: "vkCreateShaderModule(): A SPIR-V Capability (Unhandled " +
		"OpCapability) was declared that is not supported by Vulkan."},
		debian12, declaresCooperativeMatrix, []string{"vkCreateShaderModule(): A SPIR-V Capability (Kernel) was declared that is not " +
			"supported by Vulkan."}},
	{Message{ID: "VUID-VkShaderModuleCreateInfo-pCode-08741", Text: "vkCreateShaderModule(): SPIR-V Extension SPV_KHR_bfloat16 was " +
		"declared, but that is not supported by Vulkan."},
		debian13, declaresBFloat16, []string{"vkCreateShaderModule(): SPIR-V Extension SPV_KHR_cooperative_matrix was declared, but that " +
			"is not supported by Vulkan."}},
	{Message{ID: "VUID-VkShaderModuleCreateInfo-pCode-04146", Text: "vkCreateShaderModule(): A SPIR-V Extension " +
		"(SPV_KHR_cooperative_matrix) was declared that is not supported by Vulkan."},
		debian12, declaresCooperativeMatrix, []string{"vkCreateShaderModule(): A SPIR-V Extension (SPV_KHR_bfloat16) was declared that " +
			"is not supported by Vulkan."}},
	{Message{ID: "VUID-VkPipelineShaderStageCreateInfo-pSpecializationInfo-06849",
		Text: "vkCreateComputePipelines(): pCreateInfos[0].stage VkShaderModule 0x30000000003 shader (stage VK_SHADER_STAGE_COMPUTE_BIT) " +
			"attempted to apply specialization constants with spirv-opt but failed."},
		debian13, declaresBFloat16, []string{"vkCreateComputePipelines(): pCreateInfos[0].stage after specialization constants were " +
			"applied produces a spirv-val error: result is not a constant"}},
	{Message{ID: "VUID-VkPipelineShaderStageCreateInfo-pSpecializationInfo-06719",
		Text: "VkShaderModule 0x30000000003[] module (stage VK_SHADER_STAGE_COMPUTE_BIT) attempted to apply specialization constants " +
			"with spirv-opt but failed."},
		debian12, declaresCooperativeMatrix, []string{"VkShaderModule 0x30000000003[] after specialization constants were applied does " +
			"not contain valid spirv"}},
	{Message{ID: "VUID-VkPipelineShaderStageCreateInfo-pNext-02757", Text: "vkCreateComputePipelines(): pCreateInfos[0].stage SPIR-V " +
		"Local workgroup size x (1) is not a multiple of requiredSubgroupSize (64)."},
		debian13, declaresBFloat16, []string{"vkCreateComputePipelines(): pCreateInfos[0].stage SPIR-V Local workgroup size x (48) is " +
			"not a multiple of requiredSubgroupSize (64)."}},
	{Message{ID: "VUID-VkPipelineShaderStageCreateInfo-pNext-02757", Text: "Local workgroup size x (1) is not a multiple of " +
		"VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT::requiredSubgroupSize (64)."},
		debian12, declaresCooperativeMatrix, []string{"Local workgroup size x (16) is not a multiple of " +
			"VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT::requiredSubgroupSize (64)."}},
	{Message{ID: "VUID-RuntimeSpirv-OpTypeCooperativeMatrixKHR-10163",
		Text: "vkCreateComputePipelines(): pCreateInfos[0].stage SPIR-V (VK_SHADER_STAGE_COMPUTE_BIT) has\n%485 = " +
			"OpTypeCooperativeMatrixKHR %480 %481 %482 %483 %484 (rows: 16, cols: 16, scope: VK_SCOPE_SUBGROUP_KHR, type: " +
			"VK_COMPONENT_TYPE_FLOAT16_KHR, use: 0)\nbut doesn't match any VkCooperativeMatrixPropertiesKHR"},
		debian13, declaresBFloat16 | declaresCooperativeMatrix, nil},
	{Message{ID: "VUID-RuntimeSpirv-OpCooperativeMatrixMulAddKHR-10060",
		Text: "vkCreateComputePipelines(): pCreateInfos[0].stage SPIR-V (VK_SHADER_STAGE_COMPUTE_BIT) instruction\n%15565 = " +
			"OpCooperativeMatrixMulAddKHR %3554 %15557 %15545 %15564\ndoesn't match a supported matrix VkCooperativeMatrixPropertiesKHR"},
		debian13, declaresBFloat16 | declaresCooperativeMatrix, nil},
}

// Each message is passed over where an old loader or layer says it, and told on everywhere else: with other content, under another name,
// by a layer that knows the extension, of a module that does not use it. It is heard as the instance's messenger hears it.
func TestNotOurs(t *testing.T) {
	counted := CountPassedOver(t)
	tried := map[*passOver]bool{}
	var heard []Message
	in := &Instance{onMessage: func(m Message) { heard = append(heard, m) }}
	in.receiver = addReceiver(in.message)
	defer receivers.Delete(in.receiver)
	hear := func(layer Version, m Message, module declares) []Message {
		heard = nil
		in.layer = layer
		deliver(in.receiver, m, module)
		return heard
	}
	for i, s := range said {
		before := counted()
		require.Empty(t, hear(s.layer, s.message, s.module), "%d: %v", i, s.message)
		require.Equal(t, before+1, counted())
		entry := s.message.notOurs(s.layer, s.module)
		tried[entry] = true
		for _, text := range s.beside {
			m := Message{ID: s.message.ID, Text: text}
			require.Equal(t, []Message{m}, hear(s.layer, m, s.module))
		}
		require.Equal(t, before+1, counted(), "none of these")
		renamed := Message{ID: "VUID-vkCmdDispatch-None-08114", Text: s.message.Text}
		require.Equal(t, []Message{renamed}, hear(s.layer, renamed, s.module))
		if entry.before == 0 {
			require.Empty(t, hear(0, s.message, 0), "whatever the layer")
			continue
		}
		for _, layer := range []Version{entry.before, current} {
			require.Equal(t, []Message{s.message}, hear(layer, s.message, s.module), "a layer of %v knows the extension", layer)
		}
		require.Empty(t, s.message.NotOurs(0), "a layer of unknown age")
		if s.module != 0 {
			require.Equal(t, []Message{s.message}, hear(s.layer, s.message, 0), "of a module without it")
		}
	}
	for i := range notOurs {
		require.NotEmpty(t, notOurs[i].why)
		require.True(t, tried[&notOurs[i]], "no sample of %v %q", notOurs[i].ids, notOurs[i].texts)
	}
}

// Without an ID, as VK_EXT_debug_report has none, the text decides.
func TestNotOursWithoutID(t *testing.T) {
	CountPassedOver(t)
	require.Contains(t, Message{Text: said[0].message.Text}.NotOurs(0), "loader")
	require.Empty(t, Message{Text: said[0].beside[0]}.NotOurs(0))
}

// CountPassedOver counts, for the length of a test, messages that are passed over, which the summary of a test run does not then.
func CountPassedOver(t *testing.T) (counted func() int) {
	var n atomic.Int64
	before := count
	count = func(*passOver) { n.Add(1) }
	t.Cleanup(func() { count = before })
	return func() int { return int(n.Load()) }
}

func TestDeclared(t *testing.T) {
	head := []uint32{spirv.Magic, 0x10300, 0, 10, 0}
	of := func(capabilities ...uint32) []uint32 {
		code := head
		for _, c := range capabilities {
			code = append(code[:len(code):len(code)], 2<<16|opCapability, c)
		}
		return append(code[:len(code):len(code)], 3<<16|14, 0, 1, 2<<16|opCapability, 5116) // what follows is none
	}
	for want, codes := range map[declares][][]uint32{
		0:                         {nil, head, of(), of(1, 4433)},
		declaresBFloat16:          {of(1, 5116), of(5117), of(5118, 1)},
		declaresCooperativeMatrix: {of(1, 6022)},
		declaresBFloat16 | declaresCooperativeMatrix: {of(1, 5116, 4433, 5118, 6022)},
	} {
		for i, code := range codes {
			require.Equal(t, want, declared(code), strconv.Itoa(i))
		}
	}
}
