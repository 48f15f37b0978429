package flash

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/vk"
)

// DeviceInfo describes a device and what it offers attention.
type DeviceInfo struct {
	Index    int        // place in Devices
	Name     string     // of the device
	Driver   string     // name and version of the driver
	Facts    *vk.Facts  // limits, features, extensions, matrix shapes, memory, queues
	Attached bool       // by the caller
	Compiles bool       // and does not run: opened with CompileOnly
	Chosen   bool       // Open without WithDevice takes this one
	Reason   string     // why it is, or is not, chosen
	Tiers    []TierInfo // what each kernel offers, in the order in which Plan prefers them
	Tiles    []string   // families of tiles whose rows are tried, the device's own first
}

// TierInfo says what one kernel offers on a device.
type TierInfo struct {
	Implementation Implementation
	Tier           Tier
	Kernel         string   // its name, as in PassInfo.KernelName
	Features       []string // what a problem may have beyond plain attention: "dropout", "block mask"
	Needs          []string // of these, what a problem must have
	MinDim         int      // where HeadDim and ValueDim are both smaller, another kernel of the tier is taken; 0: nowhere
	MaxDim         int      // the largest HeadDim and ValueDim
	MostRows       int      // most rows of a key head, queries times the query heads that share it; 0: any number
	Backward       string   // the kernel of its tier for the backward pass; "": forward only
	DTypes         []DType  // storage types it runs
	Missing        []string // for the others, what is missing: "bfloat16: …"
}

// Timestamps says whether the device can time its work.
func (i DeviceInfo) Timestamps() bool {
	if i.Facts == nil || i.Facts.Limits.TimestampPeriod <= 0 {
		return false
	}
	for _, q := range i.Facts.Queues {
		if q.Flags&vk.QueueCompute != 0 && q.TimestampValidBits > 0 {
			return true
		}
	}
	return false
}

// DeviceMemory is the size of the largest device-local heap in bytes.
func (i DeviceInfo) DeviceMemory() uint64 {
	if i.Facts == nil {
		return 0
	}
	c := kernel.Capabilities{Facts: i.Facts}
	return c.Memory()
}

// describe fills in what the device offers attention.
func describe(c *kernel.Capabilities) DeviceInfo {
	f := c.Facts
	info := DeviceInfo{Name: f.Name, Facts: f, Tiles: c.Family().Names(), Driver: strings.TrimSpace(f.DriverName + " " + f.DriverInfo)}
	if info.Driver == "" {
		info.Driver = fmt.Sprintf("%#x", f.DriverVersion)
	}
	for _, k := range catalogue.Forward {
		t := TierInfo{Implementation: Implementation(k.Implementation), Tier: Tier(k.Tier), Kernel: k.Name, Features: k.Can.Names(),
			Needs:  k.Needs.Names(),
			MinDim: k.LeastDim, MaxDim: k.MostDim, MostRows: k.MostRows}
		for _, b := range catalogue.Backward {
			if b.Implementation == k.Implementation && b.Tier == k.Tier && k.Needs&^b.Can == 0 && k.LeastDim <= b.MostDim &&
				slices.Equal(k.Storage, b.Storage) {
				t.Backward = b.Name
			}
		}
		for _, dtype := range []DType{F32, F16, BF16} {
			if !k.Stores(attn.DType(dtype)) {
				continue
			}
			p, _ := Problem{Batch: 1, Heads: 1, QueryLen: k.SelfCheckQueries(1024, 1), HeadDim: 64, DType: dtype}.Normalize()
			a := p.attn()
			if why := k.Unsupported(c, &a); why == "" {
				t.DTypes = append(t.DTypes, dtype)
			} else {
				t.Missing = append(t.Missing, dtype.String()+": "+why)
			}
		}
		info.Tiers = append(info.Tiers, t)
	}
	return info
}

// typeRank orders kinds of device by how fast they tend to be.
func typeRank(t vk.DeviceType) int {
	switch t {
	case vk.DeviceDiscrete:
		return 0
	case vk.DeviceIntegrated:
		return 1
	case vk.DeviceVirtual:
		return 2
	case vk.DeviceOther:
		return 3
	}
	return 4 // a CPU
}

// unusable says why a device cannot run any kernel; "" when it can.
func (i *DeviceInfo) unusable() string {
	if i.Facts.EffectiveVersion < vk.Version11 {
		return fmt.Sprintf("offers Vulkan %v, and 1.1 is needed", i.Facts.EffectiveVersion)
	}
	for _, t := range i.Tiers {
		if len(t.DTypes) > 0 {
			return ""
		}
	}
	return "runs no kernel"
}

// matrixTypes counts the storage types that the matrix tier runs.
func (i *DeviceInfo) matrixTypes() int {
	n := 0
	for _, t := range i.Tiers {
		if t.Tier == TierMatrix && t.Implementation == Flash {
			n += len(t.DTypes)
		}
	}
	return n
}

// enumerate lists physical devices with their descriptions, best first: usable ones, by kind, then matrix tier, then memory.
func enumerate(inst *vk.Instance, o *deviceOptions) ([]*vk.PhysicalDevice, []DeviceInfo, error) {
	phys, err := inst.PhysicalDevices()
	if err != nil {
		return nil, nil, fmt.Errorf("flash: listing devices: %w", err)
	}
	if skipped := errors.Join(inst.Skipped()...); len(phys) == 0 && skipped != nil {
		return nil, nil, fmt.Errorf("%w: no device that the Vulkan loader knows can be used: %w", ErrNoDevice, skipped)
	}
	if len(phys) == 0 {
		return nil, nil, fmt.Errorf("%w: the Vulkan loader knows no device (is a driver installed?)", ErrNoDevice)
	}
	given, err := o.readTiles()
	if err != nil {
		return nil, nil, err
	}
	infos := make([]DeviceInfo, len(phys))
	order := make([]int, len(phys))
	for i, p := range phys {
		f := p.Facts()
		c := &kernel.Capabilities{Facts: f, Enabled: f.Features}
		if given != nil && given.Suits(c.TilesDevice()) {
			if c.Tiles, err = given.Over(c.TilesDevice()); err != nil {
				return nil, nil, fmt.Errorf("flash: tiles: %w", err)
			}
		}
		infos[i] = describe(c)
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareDevices(&infos[a], &infos[b]) })
	sortedPhys := make([]*vk.PhysicalDevice, len(phys))
	sorted := make([]DeviceInfo, len(phys))
	for at, i := range order {
		sortedPhys[at], sorted[at] = phys[i], infos[i]
		sorted[at].Index = at
	}
	explain(sorted)
	return sortedPhys, sorted, nil
}

func compareDevices(a, b *DeviceInfo) int {
	bad := func(i *DeviceInfo) int {
		if i.unusable() != "" {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(bad(a), bad(b)),
		cmp.Compare(typeRank(a.Facts.Type), typeRank(b.Facts.Type)),
		-cmp.Compare(a.matrixTypes(), b.matrixTypes()),
		-cmp.Compare(a.DeviceMemory(), b.DeviceMemory()),
	)
}

// explain marks the first device as chosen and says of each why it stands where it stands.
func explain(infos []DeviceInfo) {
	first := &infos[0]
	for i := range infos {
		d := &infos[i]
		switch why := d.unusable(); {
		case why != "":
			d.Reason = "cannot be used: it " + why
		case i == 0 && len(infos) == 1:
			d.Chosen, d.Reason = true, "the only device"
		case i == 0:
			d.Chosen, d.Reason = true, "the best of "+strconv.Itoa(len(infos))+" devices by kind, matrix types, memory"
		case typeRank(d.Facts.Type) != typeRank(first.Facts.Type):
			d.Reason = fmt.Sprintf("%v: a device of kind %v is preferred", d.Facts.Type, first.Facts.Type)
		case d.matrixTypes() < first.matrixTypes():
			d.Reason = "fewer storage types on the matrix tier than " + first.Name
		case d.DeviceMemory() < first.DeviceMemory():
			d.Reason = "less memory than " + first.Name
		default:
			d.Reason = "equal to " + first.Name + ", which comes first"
		}
	}
}

// choose finds the device that a name or number asks for; "" asks for the best.
func choose(infos []DeviceInfo, name string) (int, error) {
	list := make([]string, len(infos))
	for i, d := range infos {
		list[i] = fmt.Sprintf("%d %s", i, d.Name)
	}
	at := -1
	if name == "" {
		at = 0
	} else if n, err := strconv.Atoi(name); err == nil && len(name) < 3 { // names have numbers too, larger ones
		if n >= 0 && n < len(infos) {
			at = n
		}
	} else {
		at = slices.IndexFunc(infos, func(d DeviceInfo) bool {
			return strings.Contains(strings.ToLower(d.Name), strings.ToLower(name))
		})
	}
	if at < 0 {
		return 0, &noDeviceError{badArgument("WithDevice", fmt.Sprintf("%q", name), "must be a number or part of a name among: %s",
			strings.Join(list, ", "))}
	}
	if why := infos[at].unusable(); why != "" {
		return 0, fmt.Errorf("%w: %s %s", ErrNoDevice, infos[at].Name, why)
	}
	return at, nil
}
