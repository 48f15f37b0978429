package bench

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/attn"
)

// DescribeDevice fills a header with what is known of a device without
// running anything on it.
func DescribeDevice(info flash.DeviceInfo) Header {
	h := Header{Started: time.Now().UTC().Truncate(time.Second), Host: runtime.GOOS + "/" + runtime.GOARCH,
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
func PeaksOf(p tune.Peaks) Peaks {
	return Peaks{MatrixTFLOPS: Round(p.Matrix / 1e12), FP32TFLOPS: Round(p.FP32 / 1e12), CopyGBps: Round(p.Copy / 1e9)}
}

// BlockSparse is what rows are called that flash2 ran with a block mask.
const BlockSparse = attn.BlockSparse

// Implementation is what runs a row of this name.
func Implementation(name string) (flash.Implementation, error) {
	if name == BlockSparse {
		return flash.Flash, nil
	}
	return flash.ParseImplementation(name)
}

// Implementations are those that --impl takes, as result files spell them.
func Implementations() []string {
	return []string{flash.Standard.String(), flash.Flash1.String(), flash.Flash.String(), BlockSparse}
}

// ParseImpl returns the name of an implementation as result files spell it;
// "flash" is the default one.
func ParseImpl(s string) (string, error) {
	if s == BlockSparse {
		return s, nil
	}
	impl, err := flash.ParseImplementation(s)
	if err != nil {
		names := Implementations()
		last := len(names) - 1
		text := strings.Join(names[:last], ", ") + " or " + names[last]
		return "", fmt.Errorf("impl %q: it must be %s", s, strings.Replace(text, "flash2", "flash (flash2)", 1))
	}
	return impl.String(), nil
}
