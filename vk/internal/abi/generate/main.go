// Command generate writes the structures and constants of package abi from Vulkan's headers, which lie in vk/include. Run it with
// go generate ./vk/internal/abi after a change of the lists below, or of the headers.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// files are the structures by topic, each with the name of its file. Structures that they are made of are added.
var files = []struct{ name, topic, structs string }{
	{"instance", "instances, and what layers say", `ApplicationInfo InstanceCreateInfo ExtensionProperties LayerProperties
		DebugUtilsMessengerCreateInfoEXT DebugUtilsMessengerCallbackDataEXT ValidationFeaturesEXT DebugUtilsObjectNameInfoEXT
		DebugUtilsLabelEXT`},
	{"features", "what devices can do, and devices", `BaseOutStructure PhysicalDeviceFeatures2 PhysicalDevice16BitStorageFeatures
		PhysicalDevice8BitStorageFeatures PhysicalDeviceShaderFloat16Int8Features PhysicalDeviceTimelineSemaphoreFeatures
		PhysicalDeviceSubgroupSizeControlFeatures PhysicalDeviceCooperativeMatrixFeaturesKHR PhysicalDeviceShaderBfloat16FeaturesKHR
		PhysicalDeviceVulkanMemoryModelFeatures PhysicalDeviceBufferDeviceAddressFeatures
		PhysicalDevicePipelineExecutablePropertiesFeaturesKHR PhysicalDeviceHostQueryResetFeatures
		PhysicalDeviceSynchronization2Features PhysicalDeviceScalarBlockLayoutFeatures PhysicalDeviceMaintenance4Features
		PhysicalDeviceShaderSubgroupExtendedTypesFeatures DeviceQueueCreateInfo DeviceCreateInfo`},
	{"properties", "what devices are", `PhysicalDeviceProperties2 PhysicalDeviceSubgroupProperties PhysicalDeviceIDProperties
		PhysicalDeviceMaintenance3Properties PhysicalDeviceDriverProperties PhysicalDeviceSubgroupSizeControlProperties
		PhysicalDeviceFloatControlsProperties PhysicalDeviceMaintenance4Properties PhysicalDeviceShaderSMBuiltinsPropertiesNV
		PhysicalDeviceShaderCoreProperties2AMD PhysicalDeviceShaderCoreBuiltinsPropertiesARM
		PhysicalDeviceExternalMemoryHostPropertiesEXT PhysicalDeviceMemoryProperties2 PhysicalDeviceMemoryBudgetPropertiesEXT
		QueueFamilyProperties CooperativeMatrixPropertiesKHR`},
	{"memory", "buffers and their memory", `BufferCreateInfo MemoryRequirements ExternalMemoryBufferCreateInfo
		MemoryHostPointerPropertiesEXT ImportMemoryHostPointerInfoEXT MemoryAllocateInfo MemoryAllocateFlagsInfo MappedMemoryRange
		BufferDeviceAddressInfo`},
	{"pipeline", "pipelines and descriptors", `PipelineCacheCreateInfo DescriptorSetLayoutBinding DescriptorSetLayoutCreateInfo
		ShaderModuleCreateInfo PushConstantRange PipelineLayoutCreateInfo SpecializationMapEntry SpecializationInfo
		PipelineShaderStageRequiredSubgroupSizeCreateInfo ComputePipelineCreateInfo PipelineInfoKHR PipelineExecutableInfoKHR
		PipelineExecutableStatisticKHR DescriptorPoolSize DescriptorPoolCreateInfo DescriptorSetAllocateInfo DescriptorBufferInfo
		WriteDescriptorSet`},
	{"command", "commands, submissions and what orders them", `CommandPoolCreateInfo CommandBufferAllocateInfo CommandBufferBeginInfo
		MemoryBarrier BufferMemoryBarrier ImageMemoryBarrier BufferCopy BufferImageCopy FenceCreateInfo SemaphoreCreateInfo
		SemaphoreTypeCreateInfo SemaphoreWaitInfo SemaphoreSignalInfo TimelineSemaphoreSubmitInfo SubmitInfo QueryPoolCreateInfo`},
	{"present", "surfaces and swapchains", `HeadlessSurfaceCreateInfoEXT SurfaceCapabilitiesKHR SurfaceFormatKHR
		SwapchainCreateInfoKHR PresentInfoKHR`},
}

// constants are those of enumerations and flags, without VK_.
const constants = `
	INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
	DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
	DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT
	VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT
	VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_RESERVE_BINDING_SLOT_EXT VALIDATION_FEATURE_ENABLE_BEST_PRACTICES_EXT
	SHADER_STAGE_COMPUTE_BIT MEMORY_HEAP_DEVICE_LOCAL_BIT OBJECT_TYPE_PIPELINE
	BUFFER_USAGE_TRANSFER_SRC_BIT BUFFER_USAGE_TRANSFER_DST_BIT BUFFER_USAGE_STORAGE_BUFFER_BIT BUFFER_USAGE_INDIRECT_BUFFER_BIT
	BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT SHARING_MODE_EXCLUSIVE SHARING_MODE_CONCURRENT MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
	EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
	DESCRIPTOR_TYPE_STORAGE_BUFFER PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR
	PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR
	PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR
	PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR
	COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT COMMAND_BUFFER_LEVEL_PRIMARY COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
	PIPELINE_BIND_POINT_COMPUTE PIPELINE_STAGE_ALL_COMMANDS_BIT FENCE_CREATE_SIGNALED_BIT SEMAPHORE_TYPE_TIMELINE
	QUERY_TYPE_TIMESTAMP QUERY_RESULT_64_BIT
	IMAGE_ASPECT_COLOR_BIT IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL IMAGE_USAGE_TRANSFER_SRC_BIT
	IMAGE_USAGE_TRANSFER_DST_BIT COMPOSITE_ALPHA_OPAQUE_BIT_KHR COMPOSITE_ALPHA_PRE_MULTIPLIED_BIT_KHR
	COMPOSITE_ALPHA_POST_MULTIPLIED_BIT_KHR COMPOSITE_ALPHA_INHERIT_BIT_KHR COLOR_SPACE_SRGB_NONLINEAR_KHR
	PRESENT_MODE_IMMEDIATE_KHR PRESENT_MODE_MAILBOX_KHR PRESENT_MODE_FIFO_KHR FORMAT_R8G8B8A8_UNORM FORMAT_B8G8R8A8_UNORM`

const header = "// Code generated by go generate from Vulkan's headers; DO NOT EDIT.\n\npackage abi\n\n"

func main() {
	log.SetFlags(0)
	text, err := os.ReadFile(filepath.Join("..", "..", "include", "vulkan", "vulkan_core.h"))
	if err != nil {
		log.Fatal(err)
	}
	written, err := generate(string(text))
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range written {
		if err := os.WriteFile(name, content, 0o666); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the files by name.
func generate(text string) (map[string][]byte, error) {
	h := parse(text)
	out := map[string][]byte{}
	var names []string
	write := func(name string, b *bytes.Buffer) error {
		content, err := format.Source(b.Bytes())
		out[name] = content
		return err
	}
	for _, f := range files {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%simport \"unsafe\"\n\n// Structures of %s.\n\n", header, f.topic)
		for _, name := range strings.Fields(f.structs) {
			if err := h.emit(&b, name); err != nil {
				return nil, err
			}
		}
		if err := write("zstructs_"+f.name+".go", &b); err != nil {
			return nil, err
		}
	}
	for name := range h.emitted {
		names = append(names, name)
	}
	slices.Sort(names)

	var b, t bytes.Buffer
	fmt.Fprintf(&b, "%s// Constants, called as in the headers.\nconst (\n", header)
	fmt.Fprintf(&t, "%svar structures = map[string]any{\n", header)
	for _, n := range names {
		fmt.Fprintf(&t, "%q: %s{},\n", "Vk"+n, n)
	}
	fmt.Fprint(&t, "}\n\nvar constants = map[string]uint64{\n")
	for _, c := range strings.Fields(constants) {
		v, ok := h.values["VK_"+c]
		if !ok {
			return nil, fmt.Errorf("there is no VK_%s", c)
		}
		fmt.Fprintf(&b, "%s = %d\n", camel(c), v)
		fmt.Fprintf(&t, "%q: %s,\n", "VK_"+c, camel(c))
	}
	fmt.Fprint(&t, "}\n\n// Without VK_STRUCTURE_TYPE_.\nvar structureTypes = map[string]uint64{\n")
	for _, n := range names {
		if c := h.structureType(n); c != "" {
			fmt.Fprintf(&t, "%q: typeOf[%s](),\n", strings.TrimPrefix(c, "VK_STRUCTURE_TYPE_"), n)
		}
	}
	fmt.Fprint(&b, ")\n")
	fmt.Fprint(&t, "}\n")
	if err := write("zconstants.go", &b); err != nil {
		return nil, err
	}
	return out, write("zheaders_test.go", &t)
}

// headers is what is read of the headers.
type headers struct {
	structs map[string]string // fields as text, without Vk
	unions  map[string]bool
	values  map[string]int64 // enumerants and defined numbers
	handles map[string]int   // bytes of the handle types
	emitted map[string]bool
}

var (
	structText = regexp.MustCompile(`(?s)typedef struct Vk(\w+) \{\n(.*?)\n\} Vk\w+;`)
	unionText  = regexp.MustCompile(`typedef union (Vk\w+) \{`)
	handleText = regexp.MustCompile(`(?m)^VK_DEFINE_(NON_DISPATCHABLE_)?HANDLE\((\w+)\)`)
	valueText  = regexp.MustCompile(`(?m)^    (VK_\w+) = (-?\w+),?$`)
	defineText = regexp.MustCompile(`(?m)^#define (VK_\w+)\s+\(?(\d+)U?\)?$`)
	fieldText  = regexp.MustCompile(`^\s*(?:const )?(?:struct )?(\w+)\s*((?:\*|const\b|\s)*?)\s*(\w+)(?:\[(\w+)\])?;$`)
)

func parse(text string) *headers {
	h := &headers{structs: map[string]string{}, unions: map[string]bool{}, values: map[string]int64{}, handles: map[string]int{},
		emitted: map[string]bool{}}
	for _, m := range structText.FindAllStringSubmatch(text, -1) {
		h.structs[m[1]] = m[2]
	}
	for _, m := range unionText.FindAllStringSubmatch(text, -1) {
		h.unions[m[1]] = true
	}
	for _, m := range handleText.FindAllStringSubmatch(text, -1) {
		h.handles[m[2]] = 8
		if m[1] == "" {
			h.handles[m[2]] = 0 // a pointer
		}
	}
	for _, re := range []*regexp.Regexp{valueText, defineText} {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			if v, err := strconv.ParseInt(m[2], 0, 64); err == nil {
				h.values[m[1]] = v
			} else if v, ok := h.values[m[2]]; ok { // another name of one before
				h.values[m[1]] = v
			}
		}
	}
	return h
}

// emit writes a structure once, those that it is made of first.
func (h *headers) emit(b *bytes.Buffer, name string) error {
	if h.emitted[name] {
		return nil
	}
	h.emitted[name] = true
	text, ok := h.structs[name]
	if !ok {
		return fmt.Errorf("there is no Vk%s", name)
	}
	var own bytes.Buffer
	fmt.Fprintf(&own, "// %s is Vk%s.\ntype %s struct {\n", name, name, name)
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "//") {
			continue
		}
		m := fieldText.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("Vk%s: cannot read %q", name, line)
		}
		typ, pointer, field, length := m[1], strings.Contains(m[2], "*"), m[3], m[4]
		g := "uintptr"
		if !pointer {
			var err error
			if g, err = h.goType(b, typ); err != nil {
				return fmt.Errorf("Vk%s: %w", name, err)
			}
		}
		if length != "" {
			n, err := strconv.ParseInt(length, 0, 64)
			if err != nil {
				if n, ok = h.values[length]; !ok {
					return fmt.Errorf("Vk%s: no number %s", name, length)
				}
			}
			g = fmt.Sprintf("[%d]%s", n, g)
		}
		tag := ""
		if upper := strings.ToUpper(field[:1]) + field[1:]; upper == field {
			tag = fmt.Sprintf(" `c:%q`", field)
		} else {
			field = upper
		}
		fmt.Fprintf(&own, "%s %s%s\n", field, g, tag)
	}
	fmt.Fprint(&own, "}\n\n")
	if c := h.structureType(name); c != "" {
		fmt.Fprintf(&own, "// Init sets SType to %s.\nfunc (s *%s) Init() {\ns.SType = %d\n}\n\n", c, name, h.values[c])
		fmt.Fprintf(&own, "// Base is what all chained structures begin with.\n")
		fmt.Fprintf(&own, "func (s *%s) Base() *BaseOutStructure {\nreturn (*BaseOutStructure)(unsafe.Pointer(s))\n}\n\n", name)
	}
	b.Write(own.Bytes())
	return nil
}

// goType is the type of a field that is no pointer.
func (h *headers) goType(b *bytes.Buffer, c string) (string, error) {
	switch c {
	case "uint32_t", "VkBool32", "VkFlags":
		return "uint32", nil
	case "int32_t":
		return "int32", nil
	case "uint64_t", "VkDeviceSize", "VkDeviceAddress":
		return "uint64", nil
	case "size_t":
		return "uintptr", nil
	case "float":
		return "float32", nil
	case "char", "uint8_t":
		return "byte", nil
	}
	name := strings.TrimPrefix(c, "Vk")
	if bytes, ok := h.handles[c]; ok {
		if bytes == 0 {
			return "uintptr", nil
		}
		return "uint64", nil
	}
	switch {
	case strings.HasPrefix(c, "PFN_"):
		return "uintptr", nil
	case h.unions[c]:
		return "uint64", nil // the widest member; abi's test checks the size
	case h.structs[name] != "":
		return name, h.emit(b, name)
	case name != c:
		return "uint32", nil // enumerations and flags
	}
	return "", fmt.Errorf("no type for %s", c)
}

// structureType is the name of a structure's type, "" where it has none.
func (h *headers) structureType(name string) string {
	if !strings.Contains(h.structs[name], "VkStructureType ") || name == "BaseOutStructure" {
		return ""
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for c := range h.values {
		if t, ok := strings.CutPrefix(c, "VK_STRUCTURE_TYPE_"); ok && plain(t) == plain(name) {
			return c
		}
	}
	return ""
}

// camel is BUFFER_USAGE_BIT as BufferUsageBit; extensions' suffixes stay.
func camel(c string) string {
	var s strings.Builder
	for _, w := range strings.Split(c, "_") {
		if w != "KHR" && w != "EXT" {
			w = w[:1] + strings.ToLower(w[1:])
		}
		s.WriteString(w)
	}
	return s.String()
}
