package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/vk"
)

// hostJSON is the machine beside its devices.
type hostJSON struct {
	Go     string         `json:"go"`
	System string         `json:"system"` // operating system, its name and kernel
	CPUs   int            `json:"cpus"`
	GPUs   []string       `json:"gpus,omitempty"`        // display adapters on the bus, whether or not a driver serves them
	Closed []string       `json:"not_opened,omitempty"`  // device nodes of GPUs that this user may not open
	Set    []variableJSON `json:"environment,omitempty"` // variables that are set and change what happens
}

// variableJSON is an environment variable.
type variableJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	What  string `json:"what,omitempty"` // it does
}

// describeHost looks at the machine. Nothing there is needed: what cannot be read is left out.
func describeHost() hostJSON {
	h := hostJSON{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Set: variables(os.Environ())}
	if runtime.GOOS != "linux" {
		return h
	}
	if name := osName("/etc/os-release"); name != "" {
		h.System += ", " + name
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.System += ", Linux " + strings.TrimSpace(string(kernel))
	}
	h.GPUs = adapters("/sys/bus/pci/devices")
	h.Closed = closedNodes("/dev/nvidia[0-9]*", "/dev/dri/renderD*", "/dev/dxg")
	return h
}

// osName is what a distribution calls itself.
func osName(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return ""
}

// vendors are makers of GPUs by their number on the bus.
var vendors = map[string]string{"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}

// adapters are the display adapters of these makers, such as "NVIDIA 10de:2330".
func adapters(bus string) (out []string) {
	devices, _ := filepath.Glob(filepath.Join(bus, "*"))
	for _, dir := range devices {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.TrimSpace(string(text))
		}
		if maker := vendors[read("vendor")]; maker != "" && strings.HasPrefix(read("class"), "0x03") {
			out = append(out, fmt.Sprintf("%s %s:%s", maker, strings.TrimPrefix(read("vendor"), "0x"),
				strings.TrimPrefix(read("device"), "0x")))
		}
	}
	return out
}

// closedNodes are files that this user may not open for reading and writing.
func closedNodes(patterns ...string) (out []string) {
	for _, pattern := range patterns {
		nodes, _ := filepath.Glob(pattern)
		for _, node := range nodes {
			f, err := os.OpenFile(node, os.O_RDWR, 0)
			if err == nil {
				f.Close()
			} else if errors.Is(err, fs.ErrPermission) {
				out = append(out, node)
			}
		}
	}
	return out
}

// driverHelp says how the GPUs of this machine get a driver, where one has none.
func (h *hostJSON) driverHelp() string {
	if len(h.Closed) > 0 {
		return "join the groups render and video, whose devices " + strings.Join(h.Closed, ", ") + " are: this user may not open them"
	}
	var help []string
	for _, maker := range []struct{ name, packages string }{
		{"NVIDIA", "install NVIDIA's driver with its Vulkan part (Debian: nvidia-driver and nvidia-vulkan-icd; Ubuntu: nvidia-driver-… " +
			"with libnvidia-gl-…; a container: NVIDIA_DRIVER_CAPABILITIES=all)"},
		{"AMD", "install mesa-vulkan-drivers (vulkan-radeon on Arch)"},
		{"Intel", "install mesa-vulkan-drivers (vulkan-intel on Arch)"},
	} {
		if slices.ContainsFunc(h.GPUs, func(gpu string) bool { return strings.HasPrefix(gpu, maker.name) }) {
			help = append(help, maker.packages)
		}
	}
	return strings.Join(help, "; ")
}

// meanings are variables that change what vkattn or the loader does. Others of these prefixes are listed too.
var (
	meanings = map[string]string{
		"VKATTN_LOADER":             "the Vulkan loader",
		tune.FileEnv:                "the file of tuned tiles; off: none",
		vk.FaultEnv:                 "calls into the driver fail, for tests: what is reported below may be made up",
		vk.ValidationEnv:            "validation layers",
		"VKATTN_SPECIALIZE":         "who puts constants into kernels: the driver, or vkattn",
		"VKATTN_EXEC":               "what tools put before a program, so that it finds a driver",
		"VKATTN_DEBUG":              "internal errors show where they happened",
		"VK_DRIVER_FILES":           "where the loader looks for drivers, in place of the system's",
		"VK_ICD_FILENAMES":          "where the loader looks for drivers, in place of the system's",
		"VK_ADD_DRIVER_FILES":       "further drivers",
		"VK_LOADER_DRIVERS_SELECT":  "drivers that the loader takes, and no other",
		"VK_LOADER_DRIVERS_DISABLE": "drivers that the loader passes over",
		"VK_INSTANCE_LAYERS":        "layers between vkattn and the driver",
		"VK_LOADER_LAYERS_ENABLE":   "layers between vkattn and the driver",
		"VK_LOADER_LAYERS_DISABLE":  "layers that the loader leaves out",
		"VK_LAYER_PATH":             "where the loader looks for layers",
	}
	// VK_ alone would take what other programs call theirs, tokens among it.
	prefixes = []string{"VKATTN_", "VK_DRIVER_FILES", "VK_ADD_", "VK_ICD_", "VK_LOADER_", "VK_INSTANCE_", "VK_LAYER_", "VK_KHRONOS_",
		"MESA_", "RADV_", "ACO_DEBUG", "AMD_VULKAN_ICD", "AMD_DEBUG", "ANV_", "INTEL_DEBUG", "NVK_", "NAK_DEBUG", "NOUVEAU_",
		"NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "__GL_", "LP_", "GALLIVM_", "TU_DEBUG", "MVK_CONFIG", "DRI_PRIME",
		"DISABLE_LAYER_"}
)

// variables are those of an environment that change what happens, sorted.
func variables(environment []string) (out []variableJSON) {
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.ContainsFunc(prefixes, begins) && !begins("VKATTN_TEST") {
			out = append(out, variableJSON{name, value, meanings[name]})
		}
	}
	slices.SortFunc(out, func(a, b variableJSON) int { return strings.Compare(a.Name, b.Name) })
	return out
}
