package flash

import (
	"fmt"
	"math/bits"

	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/vk"
)

// capabilities is what a kernel may rely on: what the device offers, and what it was created with.
type capabilities struct {
	facts   *vk.Facts
	enabled vk.Features
	tiles   *tiles.Family // nil: the built-in family of the facts
}

// lacking names a feature that is needed and not enabled, and whether that is the device or its owner's choice; "" when it
// is enabled.
func lacking(feature string, enabled, supported bool) string {
	switch {
	case enabled:
		return ""
	case supported:
		return "the device was created without the feature " + feature + ", which it supports"
	}
	return "the device lacks the feature " + feature
}

// subgroupRows says whether rows can be reduced by shuffles among tx invocations: subgroups must be full, of one known size,
// and hold whole rows.
func (c *capabilities) subgroupRows(tx, threads int) bool {
	s := &c.facts.Subgroup
	size := int(s.Size)
	return s.Compute && s.Ops&vk.SubgroupBasic != 0 && s.Ops&vk.SubgroupShuffle != 0 &&
		c.enabled.ComputeFullSubgroups && s.FullSubgroups && c.enabled.SubgroupSizeControl && s.RequiredSizeCompute &&
		bits.OnesCount(uint(tx)) == 1 && size%tx == 0 && threads%size == 0 &&
		(s.MaxWorkgroupSubgroups == 0 || threads <= size*int(s.MaxWorkgroupSubgroups))
}

// lacksShuffles says what the device lacks for kernels whose rows are spread over a subgroup.
func (c *capabilities) lacksShuffles() string {
	s := &c.facts.Subgroup
	if !s.Compute || s.Ops&vk.SubgroupBasic == 0 || s.Ops&vk.SubgroupShuffle == 0 {
		return "the device has no subgroup shuffles in compute shaders"
	}
	if why := lacking("computeFullSubgroups", c.enabled.ComputeFullSubgroups, s.FullSubgroups); why != "" {
		return why
	}
	if why := lacking("subgroupSizeControl", c.enabled.SubgroupSizeControl, s.RequiredSizeCompute); why != "" {
		return why
	}
	if size := int(s.Size); !c.subgroupRows(size, size) {
		return fmt.Sprintf("subgroups of a required size of %d are not offered in compute shaders", size)
	}
	return ""
}

// holds gives an error when the device cannot bind buffers of these sizes.
func (c *capabilities) holds(sizes []uint64) error {
	l := &c.facts.Limits
	for _, size := range sizes {
		for _, limit := range []struct {
			most uint64
			rule string
		}{{l.MaxStorageBufferRange, "what one binding can hold, for O in fp32"}, {l.MaxAllocationSize, "the device's largest allocation, for O in fp32"},
			{l.MaxBufferSize, "the device's largest buffer, for O in fp32"}} {
			if limit.most > 0 && size > limit.most {
				return &MemoryError{Label: "workspace", Needed: size, Available: limit.most, Rule: limit.rule}
			}
		}
	}
	return nil
}

// lacksScalar says what every scalar kernel needs of a device that this one lacks.
func (c *capabilities) lacksScalar(t DType) string {
	if v := c.facts.EffectiveVersion; v < vk.Version11 {
		return fmt.Sprintf("the device offers Vulkan %v, and 1.1 is needed", v)
	}
	if n := c.facts.Limits.MaxPushConstants; n < forwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, forwardPushBytes)
	}
	if t != F32 {
		return lacking("storageBuffer16BitAccess", c.enabled.Storage16, c.facts.Features.Storage16)
	}
	return ""
}

// checkSubgroups names the limit of the device that a workgroup exceeds, by its number of subgroups or its bytes of shared memory; "" for none.
func checkSubgroups(subgroups, lanes, shared int, c *capabilities) string {
	if n := c.facts.Subgroup.MaxWorkgroupSubgroups; n > 0 && subgroups > int(n) {
		return fmt.Sprintf("a workgroup of %d subgroups passes the device's %d", subgroups, n)
	}
	return checkLimits(subgroups*lanes, shared, &c.facts.Limits)
}

// checkLimits gives the limit of the device that a workgroup's invocations or its bytes of shared memory pass, "" for none.
func checkLimits(threads, shared int, l *vk.Limits) string {
	if most := min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]); threads > int(most) {
		return fmt.Sprintf("a workgroup of %d invocations passes the device's %d", threads, most)
	}
	if shared > int(l.MaxSharedMemory) {
		return fmt.Sprintf("%d bytes of shared memory pass the device's %d", shared, l.MaxSharedMemory)
	}
	return ""
}

// memory is the size of the largest device-local heap in bytes.
func (c *capabilities) memory() (most uint64) {
	for _, h := range c.facts.Heaps {
		if h.DeviceLocal {
			most = max(most, h.Size)
		}
	}
	return most
}
