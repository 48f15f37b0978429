package vk

import (
	"slices"
	"strconv"
	"strings"
)

// ValidationEnv names the environment variable that adds to what the validation layer checks, wherever a program turns it on: a list of
// core, sync, gpu and best, separated by commas, as SyncValidation, GPUValidation and BestPractices of [InstanceOptions] do. So whole test
// suites run under other settings. off turns the layer off. A value that cannot be read is an error of NewInstance.
const ValidationEnv = "VKATTN_VALIDATION"

// checks is what the validation layer looks at; 0 is without it.
type checks uint32

const (
	checkCore checks = 1
	checkSync checks = 2
	checkGPU  checks = 4
	checkBest checks = 8
)

var checkNames = []checkName{{"core", checkCore}, {"sync", checkSync}, {"gpu", checkGPU}, {"best", checkBest}}

type checkName struct {
	name  string
	check checks
}

// String is as ValidationEnv takes it.
func (c checks) String() string {
	var names []string
	for _, n := range checkNames {
		if c&n.check != 0 {
			names = append(names, n.name)
		}
	}
	if names == nil {
		return "off"
	}
	return strings.Join(names, ",")
}

// checks are those of the options, with what the environment adds.
func (o *InstanceOptions) checks(environment string) (checks, error) {
	var c checks
	for _, x := range []struct {
		on    bool
		check checks
	}{{o.Validation, checkCore}, {o.SyncValidation, checkSync}, {o.GPUValidation, checkGPU}, {o.BestPractices, checkBest}} {
		if x.on {
			c |= checkCore | x.check
		}
	}
	for _, name := range strings.FieldsFunc(environment, func(r rune) bool { return r == ',' }) {
		if name = strings.TrimSpace(name); name == "off" && strings.TrimSpace(environment) == "off" {
			return 0, nil
		}
		i := slices.IndexFunc(checkNames, func(n checkName) bool { return n.name == name })
		if i < 0 {
			return 0, argErr("NewInstance", ValidationEnv, strconv.Quote(environment),
				"it must be off, or a list of core, sync, gpu and best, separated by commas")
		}
		if c != 0 { // only where it is on
			c |= checkNames[i].check
		}
	}
	return c, nil
}

// notFollowed is what the validation layer says that is no objection, and advice that this library has a reason not to follow. With
// notOurs it is all that is kept from InstanceOptions.OnMessage. About what callers decide, in shaders or in calls on a device of their
// own, the layer says it to their messenger.
var notFollowed = []struct {
	id   string
	text string // part of the message; "": any
	why  string
}{
	{"BestPractices-specialuse-extension", extDebugUtils, "it carries the names and labels that captures show, and costs nothing where " +
		"nobody looks"},
	{"BestPractices-specialuse-extension", extValidationFeature, "without it there would be no such advice"},
	{"BestPractices-specialuse-extension", "VK_KHR_pipeline_executable_properties",
		"vkattn info and the tuner show the registers and spills that the driver reports"},
	{"BestPractices-deprecated-extension", extValidationFeature, "its successor, VK_EXT_layer_settings, is missing from layers of 2023 " +
		"and before"},
	{"BestPractices-vkAllocateMemory-small-allocation", "", "a buffer is an allocation of its own: tensors are large and few, and who " +
		"has many small ones makes views of one"},
	{"BestPractices-vkBindBufferMemory-small-dedicated-allocation", "", "the same"},
	{"BestPractices-vkAllocateMemory-too-many-objects", "", "the same; pipeline.Context refuses what the device would"},
	{"BestPractices-vkCreateCommandPool-command-buffer-reset", "", "a pool of a recording has one command buffer, which is recorded " +
		"again and again"},
	{"BestPractices-GetPhysicalDeviceSurfaceFormatsKHR-CountMismatch", "",
		"arrays have room to spare, so that one that was filled says that there is more"},
	{"BestPractices-SpirvDeprecated_WorkgroupSize", "", "modules are made for Vulkan 1.1, which has no LocalSizeId"},
	{"BestPractices-pipeline-stage-flags-compute", "pWaitDstStageMask",
		"a submission's commands may be copies and timestamps too, and all must wait"},
	{"BestPractices-Error-Result", "", "the caller has it, as an error"},
	{"VALIDATION-SETTINGS", "Both GPU Assisted Validation and Normal Core Check Validation are enabled", "tests have the time"},
	{"GPUAV-Compile-time-general-buffer", "", "the same: a shader with checks takes long to compile"},
	{"WARNING-GPU-Assisted-Validation", "Forcing", "the layer says which features it turns on for itself"},
	{"WARNING-Setting-Limit-Adjusted", "", "the same, and which of its checks it turns off: what newer layers say"},
	{"WARNING-GPU-Assisted-Validation", "[Disabling gpuav_validate_ray_query]", "nothing here traces rays"},
}

// message hands on what is an objection. module is what the module declares that a pipeline is being made of.
func (in *Instance) message(m Message, module declares) {
	for _, n := range notFollowed {
		if m.ID == n.id && strings.Contains(m.Text, n.text) {
			return
		}
	}
	if n := m.notOurs(in.layer, module); n != nil {
		count(n)
		return
	}
	in.onMessage(m)
}
