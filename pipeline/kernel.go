package pipeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vkattn/vkattn/internal/specialize"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk"
)

// KernelInfo describes a kernel: a SPIR-V module with an entry point "main" whose interface is one descriptor set (0) of
// storage buffers at bindings 0 … Bindings−1, and PushBytes bytes of push constants.
type KernelInfo struct {
	Name string   // for messages and labels; kernels that differ in nothing else are one
	Code []uint32 // SPIR-V
	// with Load, in place of Code: names the code, so that it is not looked at where the kernel exists
	Identity string
	// gives the code that Identity names, SPIR-V; called where nothing is kept of the kernel, on disk neither
	Load          func() ([]uint32, error)
	Spec          []vk.SpecConstant // specialization constants, in any order
	Constants     fmt.Stringer      // what Spec sets, by name, for listings and the account of test runs; may be nil
	Bindings      int               // storage buffers
	Buffers       map[string]uint32 // bindings by name, for those who bind by name; may be nil
	PushBytes     int               // a multiple of 4
	SubgroupSize  uint32            // 0: the driver's choice
	FullSubgroups bool              // every subgroup of a workgroup is full
}

// Kernel is a compiled compute pipeline.
type Kernel struct {
	name      string
	code      [sha256.Size]byte
	bindings  int
	buffers   map[string]uint32
	pushBytes int
	pipeline  *vk.ComputePipeline
	ctx       *Context
	compiled  *compiled     // for the account of a test run; nil otherwise
	took      time.Duration // to make it
	number    int           // of those that the context made before

	// for listings
	constants     fmt.Stringer
	spec          []vk.SpecConstant
	subgroupSize  uint32
	fullSubgroups bool
}

// Name is the name that the kernel was first asked for under.
func (k *Kernel) Name() string {
	if k == nil {
		return ""
	}
	return k.name
}

// CodeHash is the SHA-256 of the kernel's module, as KernelInfo.Code or Load gave it, now or to the process that left the kernel on disk.
func (k *Kernel) CodeHash() [sha256.Size]byte {
	if k == nil {
		return [sha256.Size]byte{}
	}
	return k.code
}

// Took is the time that making the kernel took: the driver's, and that of loading and specializing its module.
func (k *Kernel) Took() time.Duration {
	if k == nil {
		return 0
	}
	return k.took
}

// Bindings is the number of storage buffers that a dispatch of the kernel takes.
func (k *Kernel) Bindings() int {
	if k == nil {
		return 0
	}
	return k.bindings
}

// PushBytes is the number of bytes of push constants that a dispatch of the kernel takes.
func (k *Kernel) PushBytes() int {
	if k == nil {
		return 0
	}
	return k.pushBytes
}

// Listed describes the kernel as listings do.
func (k *Kernel) Listed() ListedKernel { return k.listed() }

// Stats returns what the driver tells of the compiled kernel, for example its register count. It needs
// VK_KHR_pipeline_executable_properties and Options.CaptureStats, without which the error is ErrNoStats.
func (k *Kernel) Stats() ([]vk.Stat, error) {
	if k == nil {
		return nil, ErrClosed
	}
	if err := k.ctx.enter(); err != nil {
		return nil, err
	}
	defer k.ctx.leave()
	if !k.ctx.options.CaptureStats {
		return nil, ErrNoStats
	}
	return k.pipeline.Stats()
}

// kernelKey identifies a kernel by content.
type kernelKey [sha256.Size]byte

// kernelEntry is a kernel that is made, or being made by the goroutine that holds the entry's turn.
type kernelEntry struct {
	done   chan struct{}
	began  time.Time
	kernel *Kernel
	err    error
}

type kernelTable struct {
	mu      sync.Mutex
	entries map[kernelKey]*kernelEntry
	closed  bool
}

func (i *KernelInfo) key() kernelKey {
	b := make([]byte, 0, 2048)
	word := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	word(uint64(i.Bindings))
	word(uint64(i.PushBytes))
	word(uint64(i.SubgroupSize))
	if i.FullSubgroups {
		word(1)
	} else {
		word(0)
	}
	spec := slices.Clone(i.Spec)
	slices.SortFunc(spec, byNumber)
	word(uint64(len(spec)))
	for _, s := range spec {
		word(uint64(s.ID)<<32 | uint64(s.Value))
	}
	for _, name := range slices.Sorted(maps.Keys(i.Buffers)) {
		b = append(b, name...)
		word(uint64(i.Buffers[name]))
	}
	if i.Load != nil {
		return sha256.Sum256(append(append(b, "named "...), i.Identity...))
	}
	h := sha256.New()
	h.Write(b)
	h.Write(spirv.Bytes(i.Code))
	return kernelKey(h.Sum(nil))
}

func (i *KernelInfo) call() string { return fmt.Sprintf("Kernel %q", i.Name) }

func (i *KernelInfo) checkCode(code []uint32) error {
	if len(code) < spirv.HeaderWords || code[0] != spirv.Magic {
		return argErr(i.call(), "Code", fmt.Sprintf("%d words", len(code)),
			"it must be a SPIR-V module, which begins with 0x07230203 and a header of 5 words")
	}
	return nil
}

func (c *Context) checkKernel(i *KernelInfo) error {
	call := i.call()
	switch {
	case i.Load == nil:
		if err := i.checkCode(i.Code); err != nil {
			return err
		}
	case i.Identity == "":
		return argErr(call, "Identity", `""`, "it must name the code that Load gives")
	case i.Code != nil:
		return argErr(call, "Code", fmt.Sprintf("%d words", len(i.Code)), "it must be nil beside Load")
	}
	l := &c.facts.Limits
	most := int(min(l.MaxStorageBuffersPerStage, l.MaxStorageBuffersPerSet))
	if i.Bindings < 0 || i.Bindings > most {
		return argErr(call, "Bindings", i.Bindings, fmt.Sprintf("it must be at least 0 and at most %d, the device's limit of storage "+
			"buffers", most))
	}
	if i.PushBytes < 0 || i.PushBytes%4 != 0 || i.PushBytes > int(l.MaxPushConstants) {
		return argErr(call, "PushBytes", i.PushBytes, fmt.Sprintf("it must be a multiple of 4, at least 0 and at most %d, the device's "+
			"limit", l.MaxPushConstants))
	}
	highest := uint32(0)
	for a := range i.Spec {
		if id := i.Spec[a].ID; a == 0 || id > highest { // than all before: they come in order as a rule
			highest = id
			continue
		}
		for b := range i.Spec[:a] {
			if i.Spec[a].ID == i.Spec[b].ID {
				return argErr(call, "Spec", fmt.Sprintf("ID %d twice", i.Spec[a].ID), "each specialization constant may be given once")
			}
		}
	}
	return nil
}

// prepared is what a driver gets of a kernel.
type prepared struct {
	code  [sha256.Size]byte // SHA-256 of the module as Code or Load gave it
	words []uint32          // specialized, where the context does that
}

// prepare loads the module, and writes the constants' values into it where they belong there.
func (i *KernelInfo) prepare(specialized int) (p prepared, err error) {
	if p.words = i.Code; i.Load != nil {
		if p.words, err = i.Load(); err != nil {
			return p, err
		}
		if err = i.checkCode(p.words); err != nil {
			return p, err
		}
	}
	p.code = sha256.Sum256(spirv.Bytes(p.words))
	if specialized > 0 {
		values := make(map[uint32]uint32, len(i.Spec))
		for _, s := range i.Spec {
			values[s.ID] = s.Value
		}
		p.words, err = specialize.Module(p.words, values)
	}
	return p, err
}

// compile makes the kernel's pipeline. The hash is that of its module before specialization.
func (c *Context) compile(i *KernelInfo) (p *vk.ComputePipeline, code [sha256.Size]byte, err error) {
	specialized := c.Specialized()
	info := vk.PipelineInfo{Name: i.Name, Spec: inPlaces(i.Spec), Bindings: i.Bindings, PushBytes: i.PushBytes,
		SubgroupSize: i.SubgroupSize, FullSubgroups: i.FullSubgroups, CaptureStats: c.options.CaptureStats}
	if specialized > 0 {
		info.Spec = nil
	}
	var preparing time.Duration // which is not the driver's
	began := time.Now()
	prepare := func() (prepared, error) {
		defer func(began time.Time) { preparing = time.Since(began) }(time.Now())
		return i.prepare(specialized)
	}
	build := func(cache *vk.PipelineCache, of *prepared) (err error) {
		info.Cache, info.Code, code = cache, of.words, of.code
		p, err = c.dev.NewComputePipeline(info)
		return err
	}
	fromDisk := false
	if c.disk.root == "" {
		var of prepared
		if of, err = prepare(); err == nil {
			err = build(nil, &of)
		}
	} else {
		fromDisk, err = throughCache(&c.disk, i.fileName(specialized, c.options.CaptureStats), prepare, c.dev.NewPipelineCache, build)
	}
	if err != nil && p != nil {
		return nil, code, errors.Join(err, p.Close())
	}
	c.made.add(err == nil, fromDisk, time.Since(began)-preparing)
	return p, code, err
}

// fileName is that of what is kept of the kernel on disk. It names all that the words follow from which the driver gets, and all else that
// it is told, so that a file never stands for others; not the words themselves, which nobody has to make then. Specialization is named by
// its revision, 0 for none.
func (i *KernelInfo) fileName(specialized int, stats bool) string {
	named := *i
	named.Buffers = nil // no driver hears of them
	key := named.key()
	sum := sha256.Sum256(fmt.Appendf(key[:], "%s specialized %d stats %v", cacheMagic, specialized, stats))
	return hex.EncodeToString(sum[:])
}

// Compilations counts the kernels that a context has made.
type Compilations struct {
	Kernels  int           // all of them
	FromDisk int           // of which the driver was given its own earlier work
	Time     time.Duration // in the driver, of all of them, which may have been made beside one another
}

type compilations struct{ kernels, fromDisk, nanoseconds atomic.Int64 }

func (m *compilations) add(made, fromDisk bool, took time.Duration) {
	if !made {
		return
	}
	m.kernels.Add(1)
	m.nanoseconds.Add(int64(took))
	if fromDisk {
		m.fromDisk.Add(1)
	}
}

// Compilations tells what making kernels has cost so far.
func (c *Context) Compilations() Compilations {
	if c == nil {
		return Compilations{}
	}
	return Compilations{Kernels: int(c.made.kernels.Load()), FromDisk: int(c.made.fromDisk.Load()),
		Time: time.Duration(c.made.nanoseconds.Load())}
}

// Kernel returns the kernel with the given content, compiling it at the first call. Where the code is named (KernelInfo.Identity), the name
// stands for it, and Load is called by that first call alone, and not where the kernel is on disk: a name must stand for the same code in
// every process that keeps kernels in the folder. Concurrent calls for one kernel share one compilation; a failure is returned to all of
// them and tried again by the next call. A driver that takes longer than a minute is left to it, and the error is ErrCompiling until the
// kernel is there.
func (c *Context) Kernel(i KernelInfo) (*Kernel, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	e, key, err := c.entry(&i)
	if err != nil || key == nil { // somebody makes it, or has made it
		defer c.leave()
	} else {
		go c.make(i, *key, e) // which may outlast this call, and leaves for it: Close waits
	}
	if err != nil {
		return nil, err
	}
	return e.wait(&i)
}

// entry gives the entry of a kernel; key where it is new, and the caller is to make the kernel.
func (c *Context) entry(i *KernelInfo) (e *kernelEntry, key *kernelKey, err error) {
	if err := c.checkKernel(i); err != nil {
		return nil, nil, err
	}
	k, t := i.key(), &c.kernels
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, ErrClosed
	}
	if e, ok := t.entries[k]; ok {
		return e, nil, nil
	}
	e = &kernelEntry{done: make(chan struct{}), began: time.Now()}
	t.entries[k] = e
	return e, &k, nil
}

// make compiles the kernel of an entry, and leaves what its caller entered.
func (c *Context) make(i KernelInfo, key kernelKey, e *kernelEntry) {
	defer c.leave()
	defer close(e.done)
	p, code, err := c.compile(&i)
	if err != nil {
		e.err = fmt.Errorf("pipeline: kernel %q: %w", i.Name, err)
		t := &c.kernels
		t.mu.Lock()
		delete(t.entries, key)
		t.mu.Unlock()
		return
	}
	took := time.Since(e.began)
	e.kernel = &Kernel{
		name: i.Name, code: code, bindings: i.Bindings, buffers: i.Buffers, pushBytes: i.PushBytes, pipeline: p, ctx: c,
		compiled: i.account(took), took: took, number: int(c.made.kernels.Load()),
		constants: i.Constants, spec: slices.Clone(i.Spec), subgroupSize: i.SubgroupSize, fullSubgroups: i.FullSubgroups,
	}
}

// mostCompiling is how long a caller waits for the driver.
var mostCompiling = time.Minute

// wait gives the kernel once it is made, or ErrCompiling.
func (e *kernelEntry) wait(i *KernelInfo) (*Kernel, error) {
	left := time.NewTimer(mostCompiling - time.Since(e.began))
	defer left.Stop()
	select {
	case <-e.done:
		return e.kernel, e.err
	default:
	}
	select {
	case <-e.done:
		return e.kernel, e.err
	case <-left.C:
		return nil, fmt.Errorf("pipeline: kernel %q: %w", i.Name, ErrCompiling)
	}
}

// Kernels gives the kernels that the context has made, in the order in which they were ready.
func (c *Context) Kernels() (all []*Kernel) {
	if err := c.enter(); err != nil {
		return nil
	}
	defer c.leave()
	t := &c.kernels
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		select {
		case <-e.done:
			all = append(all, e.kernel)
		default: // somebody is making it
		}
	}
	slices.SortFunc(all, func(a, b *Kernel) int {
		return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name))
	})
	return all
}

// close waits for running compilations and frees every kernel.
func (t *kernelTable) close() {
	t.mu.Lock()
	t.closed = true
	entries := make([]*kernelEntry, 0, len(t.entries))
	for _, e := range t.entries {
		entries = append(entries, e)
	}
	t.mu.Unlock()
	for _, e := range entries {
		<-e.done
		if e.kernel != nil {
			e.kernel.pipeline.Close()
		}
	}
}

// inPlaces puts constants, which are sorted by number, where their numbers say, between such as no module has. The validation layer
// (1.4.309) takes the dimensions of matrices from the map by number, as if that were the place. Numbers beyond a few hundred stay where
// they are.
func inPlaces(spec []vk.SpecConstant) []vk.SpecConstant {
	const most = 256
	if n := len(spec); n == 0 || spec[n-1].ID >= most || !slices.IsSortedFunc(spec, byNumber) {
		return spec
	}
	out := make([]vk.SpecConstant, 0, spec[len(spec)-1].ID+1)
	for _, s := range spec {
		for uint32(len(out)) < s.ID {
			out = append(out, vk.SpecConstant{ID: ^uint32(len(out))})
		}
		out = append(out, s)
	}
	return out
}

func byNumber(a, b vk.SpecConstant) int { return cmp.Compare(a.ID, b.ID) }
