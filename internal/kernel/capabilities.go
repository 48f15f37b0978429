package kernel

import (
	"fmt"
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Capabilities is what a kernel may rely on: what the device offers, and what it was created with.
type Capabilities struct {
	Facts   *vk.Facts
	Enabled vk.Features
	Tiles   *tiles.Family // nil: the built-in family of the facts
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

// knownSubgroups says whether all subgroups of a kernel are of one known size: the device has no other, or it can be required.
func (c *Capabilities) knownSubgroups() bool {
	s := &c.Facts.Subgroup
	return s.Single() || c.Enabled.SubgroupSizeControl && s.RequiredSizeCompute
}

// FullSubgroups says whether a kernel can require that none of its subgroups has lanes to spare.
func (c *Capabilities) FullSubgroups() bool {
	return c.Enabled.ComputeFullSubgroups && c.Facts.Subgroup.FullSubgroups
}

// SubgroupRows says whether rows can be reduced by shuffles among tx invocations: subgroups must be full, of one known size,
// and hold whole rows.
func (c *Capabilities) SubgroupRows(tx, threads int) bool {
	return c.FullSubgroups() && c.shuffles(tx, threads)
}

// shuffles is SubgroupRows where subgroups are full.
func (c *Capabilities) shuffles(tx, threads int) bool {
	s := &c.Facts.Subgroup
	size := int(s.Size)
	return s.Compute && s.Ops&vk.SubgroupBasic != 0 && s.Ops&vk.SubgroupShuffle != 0 && c.knownSubgroups() &&
		bits.OnesCount(uint(tx)) == 1 && size%tx == 0 && threads%size == 0 &&
		(s.MaxWorkgroupSubgroups == 0 || threads <= size*int(s.MaxWorkgroupSubgroups))
}

// LacksShuffles says what the device lacks for kernels whose rows are spread over a subgroup. That subgroups are full they may have to
// prove.
func (c *Capabilities) LacksShuffles() string {
	s := &c.Facts.Subgroup
	if !s.Compute || s.Ops&vk.SubgroupBasic == 0 || s.Ops&vk.SubgroupShuffle == 0 {
		return "the device has no subgroup shuffles in compute shaders"
	}
	if !c.knownSubgroups() {
		if why := lacking("subgroupSizeControl", c.Enabled.SubgroupSizeControl, c.Facts.Features.SubgroupSizeControl); why != "" {
			return why
		}
		return fmt.Sprintf("subgroups have %d to %d lanes, and no size can be required in compute shaders", s.Min, s.Max)
	}
	if size := int(s.Size); !c.shuffles(size, size) {
		return fmt.Sprintf("workgroups of one subgroup of %d are not offered in compute shaders", size)
	}
	return ""
}

// Holds gives an error when the device cannot bind buffers of these sizes.
func (c *Capabilities) Holds(sizes []uint64) error {
	l := &c.Facts.Limits
	for _, size := range sizes {
		for _, limit := range []struct {
			most uint64
			rule string
		}{{l.MaxStorageBufferRange, "what one binding can hold, for O in fp32"},
			{l.MaxAllocationSize, "the device's largest allocation, for O in fp32"},
			{l.MaxBufferSize, "the device's largest buffer, for O in fp32"}} {
			if limit.most > 0 && size > limit.most {
				return &pipeline.MemoryError{Label: "workspace", Needed: size, Available: limit.most, Rule: limit.rule}
			}
		}
	}
	return nil
}

// LacksScalar says what every scalar kernel needs of a device that this one lacks.
func (c *Capabilities) LacksScalar(t attn.DType) string {
	if v := c.Facts.EffectiveVersion; v < vk.Version11 {
		return fmt.Sprintf("the device offers Vulkan %v, and 1.1 is needed", v)
	}
	if why := c.LacksArguments(&PassArgs().Standard); why != "" { // the forward pass's, and some more
		return why
	}
	if t != attn.F32 {
		return lacking("storageBuffer16BitAccess", c.Enabled.Storage16, c.Facts.Features.Storage16)
	}
	return ""
}

// LacksBuffers says that a kernel binds more storage buffers than the device allows, of which Vulkan promises four; "" where it does not.
func (c *Capabilities) LacksBuffers(bound int) string {
	l := &c.Facts.Limits
	if most := int(min(l.MaxStorageBuffersPerStage, l.MaxStorageBuffersPerSet)); bound > most {
		return fmt.Sprintf("the device allows %d storage buffers, and %d are needed", most, bound)
	}
	return ""
}

// CheckSubgroups names the limit of the device that a workgroup exceeds, by its number of subgroups or its bytes of shared memory; "" for
// none.
func CheckSubgroups(subgroups, lanes, shared int, c *Capabilities) string {
	if n := c.Facts.Subgroup.MaxWorkgroupSubgroups; n > 0 && subgroups > int(n) {
		return fmt.Sprintf("a workgroup of %d subgroups passes the device's %d", subgroups, n)
	}
	return CheckLimits(subgroups*lanes, shared, &c.Facts.Limits)
}

// CheckLimits gives the limit of the device that a workgroup's invocations or its bytes of shared memory pass, "" for none.
func CheckLimits(threads, shared int, l *vk.Limits) string {
	if most := min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]); threads > int(most) {
		return fmt.Sprintf("a workgroup of %d invocations passes the device's %d", threads, most)
	}
	if shared > int(l.MaxSharedMemory) {
		return fmt.Sprintf("%d bytes of shared memory pass the device's %d", shared, l.MaxSharedMemory)
	}
	return ""
}

// Memory is the size of the largest device-local heap in bytes.
func (c *Capabilities) Memory() (most uint64) {
	for _, h := range c.Facts.Heaps {
		if h.DeviceLocal {
			most = max(most, h.Size)
		}
	}
	return most
}

// HasRoom says whether the device's memory holds so many bytes. A driver that was told what to compile for has no memory, nor anything
// that could run out of it.
func (c *Capabilities) HasRoom(bytes uint64) bool {
	return bytes <= c.Memory() || len(c.Facts.Heaps) == 0
}

// LacksArguments says that the device allows fewer bytes of push constants than a pass takes; "" when it allows them. Every device allows
// 128.
func (c *Capabilities) LacksArguments(l *ArgsLayout) string {
	if n := int(c.Facts.Limits.MaxPushConstants); n < l.Size() {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, l.Size())
	}
	return ""
}
