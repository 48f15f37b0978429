package vk

import (
	"os"
	"runtime"
	"sync"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// loader is the process's own Vulkan loader, opened once; a failure is not remembered, so that a caller may set
// VKATTN_LOADER and try again.
var loader struct {
	sync.Mutex
	gipa uintptr
	name string
}

// loaderNames are the names tried, most specific first. The name without a version is only there where a development
// package is installed, hence the soname first.
func loaderNames() []string {
	if name := os.Getenv("VKATTN_LOADER"); name != "" {
		return []string{name}
	}
	switch runtime.GOOS {
	case "windows":
		return []string{"vulkan-1.dll"}
	case "darwin", "ios":
		return []string{
			"libvulkan.1.dylib", "libvulkan.dylib", "/usr/local/lib/libvulkan.1.dylib", "/opt/homebrew/lib/libvulkan.1.dylib",
			"libMoltenVK.dylib", "/opt/homebrew/lib/libMoltenVK.dylib",
		}
	}
	return []string{"libvulkan.so.1", "libvulkan.so"}
}

// Load opens the Vulkan loader: libvulkan.so.1, libvulkan.1.dylib or libMoltenVK.dylib, vulkan-1.dll, or what the
// environment variable VKATTN_LOADER names. Calling it again does nothing. The error is a [*LoaderError].
func Load() error {
	loader.Lock()
	defer loader.Unlock()
	if loader.gipa != 0 {
		return nil
	}
	gipa, name, err := openFirst(loaderNames())
	if err != nil {
		return err
	}
	if err := initVulkanGo(gipa); err != nil {
		return err
	}
	loader.gipa, loader.name = gipa, name
	return nil
}

// openFirst opens the first library of the list that is a Vulkan loader. The error is a *LoaderError.
func openFirst(names []string) (gipa uintptr, name string, err error) {
	failed := &LoaderError{}
	for _, name := range names {
		gipa, reason := openLoader(name)
		if gipa != 0 {
			return gipa, name, nil
		}
		failed.Tried = append(failed.Tried, name)
		failed.Reason = append(failed.Reason, reason)
	}
	return 0, "", failed
}

func openLoader(name string) (gipa uintptr, reason string) {
	library, err := abi.Open(name)
	if err != nil {
		return 0, err.Error()
	}
	if gipa = abi.Symbol(library, "vkGetInstanceProcAddr"); gipa == 0 {
		return 0, "it has no vkGetInstanceProcAddr"
	}
	return gipa, ""
}

// LoaderName returns the library that Load opened, "" before.
func LoaderName() string {
	loader.Lock()
	defer loader.Unlock()
	return loader.name
}

// GetInstanceProcAddr returns the address of the loader's vkGetInstanceProcAddr, 0 before Load.
func GetInstanceProcAddr() uintptr {
	loader.Lock()
	defer loader.Unlock()
	return loader.gipa
}
