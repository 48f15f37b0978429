package vk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/internal/tally"
)

// passOver is an entry of notOurs: a message that has one of the identifiers, all of the texts, and comes from such a layer about such a
// module.
type passOver struct {
	ids    []string // as layers of different age name it
	texts  []string
	before Version  // only layers older than this say it; 0: any
	module declares // said while a pipeline is made of a module that declares all of this; 0: whenever
	why    string
}

// notOurs are messages that an old loader, or a layer older than an extension, causes, whatever a program does. What layers of 1.3.239
// and 1.4.309 say was tried; matching leaves room for other words around what is looked for. With notFollowed they are all that
// InstanceOptions.OnMessage does not get.
var notOurs = slices.Concat([]passOver{{
	ids: []string{"WARNING-vkGetDeviceProcAddr-device"}, texts: []string{"vkGetPhysicalDeviceVideoEncodeQualityLevelPropertiesKHR"},
	why: "a loader of 1.3.239, Debian 12's, asks NVIDIA's devices for a function that is an instance's",
}}, olderThan(younger{
	extension: "VK_KHR_cooperative_matrix", since: MakeVersion(1, 3, 255), features: 1000506000,
	module: declaresCooperativeMatrix, capabilities: []int{capabilityCooperativeMatrix}, spirv: "SPV_KHR_cooperative_matrix",
}), olderThan(younger{
	extension: "VK_KHR_shader_bfloat16", since: MakeVersion(1, 4, 311), features: 1000141000,
	module: declaresBFloat16, capabilities: []int{capabilityBFloat16Type, capabilityBFloat16DotProduct,
		capabilityBFloat16CooperativeMatrix},
	spirv: "SPV_KHR_bfloat16",
}), []passOver{{
	ids:   []string{"VUID-RuntimeSpirv-OpTypeCooperativeMatrixKHR-10163", "VUID-RuntimeSpirv-OpCooperativeMatrixMulAddKHR-10060"},
	texts: []string{"match", "VkCooperativeMatrixPropertiesKHR"}, before: MakeVersion(1, 4, 311),
	module: declaresBFloat16 | declaresCooperativeMatrix,
	why:    "the layer is older than VK_KHR_shader_bfloat16: of modules that use it, it sees matrices of fp16, and the constants' defaults",
}})

// younger is an extension that is younger than layers still in use: Debian 12 has those of 1.3.239, Debian 13 those of 1.4.309. Devices
// are opened with it where they offer it.
type younger struct {
	extension    string
	since        Version // of the headers, and so of the layers, that first have it
	features     int     // VkStructureType of its features
	module       declares
	capabilities []int
	spirv        string // the extension of SPIR-V
}

// olderThan are the entries for layers that do not know an extension. A module that uses it they cannot read: they object to what they do
// not know, cannot put the values of specialization constants in, and look at the module's defaults instead.
func olderThan(x younger) []passOver {
	older := "the layer is older than " + x.extension
	about := func(text string, ids ...string) passOver {
		return passOver{ids: ids, texts: []string{text}, before: x.since, why: older}
	}
	of := func(why, text string, ids ...string) passOver {
		return passOver{ids: ids, texts: []string{text}, before: x.since, module: x.module, why: older + why}
	}
	const unread, defaults = " and cannot read modules that use it", ": of modules that use it, it sees the constants' defaults"
	entries := []passOver{
		about(fmt.Sprintf("unknown VkStructureType (%d)", x.features), "VUID-VkDeviceCreateInfo-pNext-pNext"),
		about(x.extension+" is not ", "WARNING-CreateDevice-extension-not-found", "VUID_Undefined"),
		of(unread, "Unhandled OpCapability", "VUID-VkShaderModuleCreateInfo-pCode-08739", "VUID-VkShaderModuleCreateInfo-pCode-01090"),
		of(unread, x.spirv, "VUID-VkShaderModuleCreateInfo-pCode-08741", "VUID-VkShaderModuleCreateInfo-pCode-04146"),
		of(unread, "attempted to apply specialization constants with spirv-opt but failed",
			"VUID-VkPipelineShaderStageCreateInfo-pSpecializationInfo-06849",
			"VUID-VkPipelineShaderStageCreateInfo-pSpecializationInfo-06719"),
		of(defaults, "ocal workgroup size x (1) is not a multiple", "VUID-VkPipelineShaderStageCreateInfo-pNext-02757"),
	}
	for _, c := range x.capabilities {
		entries = append(entries, of(unread, fmt.Sprintf("Invalid capability operand: %d", c), "VUID-VkShaderModuleCreateInfo-pCode-08737",
			"UNASSIGNED-CoreValidation-Shader-InconsistentSpirv", "VUID-VkPipelineShaderStageCreateInfo-module-parameter"))
	}
	return entries
}

// NotOurs says why a message is no objection to the program, and "" where it is one: it is caused by an old loader, or by a validation
// layer that is older than an extension. layer is the layer's version, 0 where it is not known. InstanceOptions.OnMessage gets no such
// message; this is for programs that have an instance and a messenger of their own. VK_EXT_debug_report gives no ID: the text alone
// decides then.
func (m Message) NotOurs(layer Version) string {
	if n := m.notOurs(layer, 0); n != nil {
		count(n)
		return n.why
	}
	return ""
}

// count tells the summary of a test run that a message was passed over.
var count = func(n *passOver) {
	tally.Add(tally.Line{Kind: tally.PassedOver, Name: n.ids[0], Detail: n.why})
}

// notOurs is the entry for a message that is said while a pipeline is made of a module that declares such; nil where there is none.
func (m *Message) notOurs(layer Version, module declares) *passOver {
	for i := range notOurs {
		n := &notOurs[i]
		if (m.ID == "" || slices.Contains(n.ids, m.ID)) && (n.before == 0 || layer != 0 && layer < n.before) && n.module&^module == 0 &&
			!slices.ContainsFunc(n.texts, func(text string) bool { return !strings.Contains(m.Text, text) }) {
			return n
		}
	}
	return nil
}

// declares is what of younger extensions a module declares that it uses, in bits.
type declares uint32

const (
	declaresCooperativeMatrix declares = 1 << iota
	declaresBFloat16
)

// SPIR-V's numbers for it.
const (
	capabilityBFloat16Type              = 5116
	capabilityBFloat16DotProduct        = 5117
	capabilityBFloat16CooperativeMatrix = 5118
	capabilityCooperativeMatrix         = 6022
)

// declared is that of a module: capabilities are its first instructions.
func declared(code []uint32) (d declares) {
	for at := spirv.HeaderWords; at+1 < len(code) && code[at] == 2<<16|opCapability; at += 2 {
		switch code[at+1] {
		case capabilityCooperativeMatrix:
			d |= declaresCooperativeMatrix
		case capabilityBFloat16Type, capabilityBFloat16DotProduct, capabilityBFloat16CooperativeMatrix:
			d |= declaresBFloat16
		}
	}
	return d
}
