package bench

import (
	"runtime"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// DescribeDevice fills a header with what is known of a device without
// running anything on it.
func DescribeDevice(info flash.DeviceInfo) result.Header {
	h := result.Header{Started: time.Now().UTC().Truncate(time.Second), Host: runtime.GOOS + "/" + runtime.GOARCH,
		Device: info.Name, Driver: info.Driver, CPU: IsCPU(info), Tiers: tierNames(info)}
	f := info.Facts
	if f == nil {
		return h
	}
	h.API = f.EffectiveVersion.String()
	h.Extensions = f.Extensions
	for _, m := range f.Matrices {
		h.Matrices = append(h.Matrices, m.String())
	}
	l := f.Limits
	h.Limits = map[string]uint64{
		"maxComputeSharedMemorySize":      uint64(l.MaxSharedMemory),
		"maxComputeWorkGroupInvocations":  uint64(l.MaxWorkgroupInvocations),
		"maxStorageBufferRange":           l.MaxStorageBufferRange,
		"minStorageBufferOffsetAlignment": l.MinStorageBufferAlignment,
		"maxMemoryAllocationSize":         l.MaxAllocationSize,
		"maxPushConstantsSize":            uint64(l.MaxPushConstants),
		"subgroupSize":                    uint64(f.Subgroup.Size),
		"deviceMemory":                    info.DeviceMemory(),
	}
	return h
}

// tierNames lists the tiers that the device has for any implementation, the one that asks more of it first.
func tierNames(info flash.DeviceInfo) []string {
	var out []string
	for _, t := range info.Tiers {
		if name := string(t.Tier); len(t.DTypes) > 0 && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out) // matrix, scalar
	return out
}

// PeaksOf puts measured peaks in the units of result files.
func PeaksOf(p tune.Peaks) result.Peaks {
	return result.Peaks{MatrixTFLOPS: result.Round(p.Matrix / 1e12), FP32TFLOPS: result.Round(p.FP32 / 1e12),
		CopyGBps: result.Round(p.Copy / 1e9)}
}

// IsCPU says whether the device is the host's processor.
func IsCPU(info flash.DeviceInfo) bool { return info.Facts != nil && info.Facts.Type.String() == "cpu" }
