package main

// Hazard tracking, modules that are specialized, the cache of pipelines on disk, accounting of memory, timestamps, and memory that the host
// writes.

const (
	hazardFile = "pipeline/hazard.go"
	cacheFile  = "pipeline/cachefile.go"
	sharedFile = "internal/diskfile/diskfile.go"
	memoryFile = "pipeline/memory.go"
)

var (
	hazardTests     = in("./pipeline", "TestHazards.*")
	damageTests     = in("./pipeline", "TestCacheFileDamage")
	specializeTests = in("./internal/specialize", "Test.*")
	usageTests      = in("./pipeline", "TestUsage")
)

var pipelineMutants = []Mutant{
	{
		ID: "specialize-other-side", File: "internal/specialize/reach.go", Old: "live(1 - int(v.bits&1))", New: "live(int(v.bits & 1))",
		Breaks: "of a branch that a constant decides, the other side is left",
		Kill:   []Killer{specializeTests},
	},
	{
		ID: "specialize-stale-phi", File: "internal/specialize/write.go",
		Old: "if from, ok := f.index[a[i+1]]; ok && f.blocks[from].reachable {", New: "if _, ok := f.index[a[i+1]]; ok {",
		Breaks: "values come from blocks that are gone",
		Kill:   []Killer{specializeTests},
	},
	{
		ID: "specialize-dominance", File: "internal/specialize/write.go", Old: "b.merge != 0 && f.leads(l, b.merge)", New: "b.merge != 0",
		Breaks: "an empty block leads to where what the other side makes is used",
		Kill:   []Killer{specializeTests},
	},
	{
		ID: "specialize-defaults", File: "pipeline/kernel.go", Old: "values[s.ID] = s.Value", New: "values[s.ID+1] = s.Value",
		Breaks: "constants have the module's values, not the caller's",
		Kill:   []Killer{in("./pipeline", "TestSpecialize")},
	},
	{
		ID: "hazard-read-after-write", File: hazardFile,
		Old: "if r.write != 0 && r.writeSeenBy&stage == 0 {", New: "if r.write != 0 && mode&Write != 0 && r.writeSeenBy&stage == 0 {",
		Breaks: "a read does not wait for the write before it",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-write-after-write", File: hazardFile,
		Old: "if r.write != 0 && r.writeSeenBy&stage == 0 {", New: "if r.write != 0 && mode&Read != 0 && r.writeSeenBy&stage == 0 {",
		Breaks: "a write does not wait for the write before it",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-write-after-read", File: hazardFile,
		Old:    "if mode&Write != 0 && read.stage != 0 && read.seenBy&stage == 0 {",
		New:    "if false && read.stage != 0 && read.seenBy&stage == 0 {",
		Breaks: "a write does not wait for reads before it",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-indirect", File: "pipeline/recording.go",
		Old:    "indirect.Offset+indirect.Size, vk.StageIndirect, Read)\n	}\n	r.barrier(b)",
		New:    "indirect.Offset+indirect.Size, vk.StageCompute, Read)\n	}\n	r.barrier(b)",
		Breaks: "the workgroups of an indirect dispatch are read before they are counted",
		Kill:   []Killer{in("./pipeline", "TestIndirectDispatch")},
	},
	{
		ID: "hazard-indirect-read", File: hazardFile,
		Old: "	case vk.StageIndirect:\n		k = 2\n", New: "",
		Breaks: "the read of a dispatch's workgroups takes the place of what kernels read",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-overlap", File: hazardFile,
		Old: "if r.buffer != buffer || r.hi <= lo || hi <= r.lo {", New: "if r.buffer != buffer || r.lo != lo || r.hi != hi {",
		Breaks: "ranges that overlap and are not the same count as apart",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-prior-reads", File: hazardFile,
		Old: "if p.use.Accesses&writeAccesses != 0 || mode&Write != 0 {", New: "if p.use.Accesses&writeAccesses != 0 {",
		Breaks: "a write does not wait for reads before the recording",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-forgotten-range", File: hazardFile,
		Old: "o.buffer == buffer && lo <= o.lo && o.hi <= hi &&", New: "o.buffer == buffer && o.lo < hi && lo < o.hi &&",
		Breaks: "a write makes earlier uses of bytes beyond its own range forgotten",
		Kill:   []Killer{in("./pipeline", "TestHazardsForgetWhatAWriteImplies"), hazardTests},
	},
	{
		ID: "hazard-prior-kept", File: hazardFile,
		Old: "o.prior, o.declared = priorState{use: Untouched}, true", New: "o.declared = true",
		Breaks: "what came before the recording is waited for again after a write that waited for it",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-earlier-use", File: hazardFile,
		Old: "o.prior, o.declared = priorState{use: Untouched}, true", New: "o.prior = priorState{use: Untouched}",
		Breaks: "a written range waits again for what came before the recording",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "hazard-final-reads", File: hazardFile,
		Old: "read != 0 && next.Accesses&writeAccesses != 0 {", New: "false && next.Accesses&writeAccesses != 0 {",
		Breaks: "what follows a recording may overwrite what it still reads",
		Kill:   []Killer{hazardTests},
	},
	{
		ID: "cache-driver", File: cacheFile,
		Old: "Driver: u32(16), UUID:", New: "Driver: id.Driver, UUID:",
		Breaks: "a cache of another driver version reaches the driver",
		Kill:   []Killer{in("./pipeline", "TestCacheFileOfAnotherDevice")},
	},
	{
		ID: "cache-uuid", File: cacheFile,
		Old: "UUID: [16]byte(file[20:36])}", New: "UUID: id.UUID}",
		Breaks: "the file's pipelineCacheUUID is not looked at",
		Kill:   []Killer{damageTests},
	},
	{
		ID: "cache-length", File: cacheFile,
		Old: "packed > n || data != n-packed {", New: "packed > n {",
		Breaks: "a wrong length in the file's header is no error",
		Kill:   []Killer{in("./pipeline", "TestDiskCacheOfBadFiles")},
	},
	{
		ID: "cache-checksum", File: cacheFile,
		Old: "!bytes.Equal(sum[:], file[cacheSumAt:cacheHeaderSize]) {", New: "len(sum) == 0 {",
		Breaks: "damaged cache data reaches the driver",
		Kill:   []Killer{damageTests},
	},
	{
		ID: "cache-driver-header", File: cacheFile,
		Old: "return k, checkDriverHeader(id, k.data)", New: "return k, nil",
		Breaks: "cache data with another device's header reaches the driver",
		Kill:   []Killer{in("./pipeline", "TestCacheFileOfAnotherDevice")},
	},
	{
		ID: "cache-constants", File: "pipeline/kernel.go",
		Old: "word(uint64(s.ID)<<32 | uint64(s.Value))", New: "word(uint64(s.ID) << 32)",
		Breaks: "kernels that differ in the value of a constant are one, in memory and on disk",
		Kill:   []Killer{in("./pipeline", "TestKernelMemo")},
	},
	{
		ID: "cache-name-constants", File: "pipeline/kernel.go", Old: "named.Buffers = nil //",
		New:    "named.Buffers, named.Spec = nil, nil //",
		Breaks: "what is kept on disk of a kernel stands for kernels with other constants",
		Kill:   []Killer{in("./pipeline", "TestKernelFileNames")},
	},
	{
		ID: "cache-name-revision", File: "pipeline/kernel.go", Old: "cacheMagic, specialized, stats)",
		New:    "cacheMagic, min(specialized, 1), stats)",
		Breaks: "words that an earlier revision of specialization made are taken from disk",
		Kill:   []Killer{in("./pipeline", "TestKernelFileNames")},
	},
	{
		ID: "cache-prepares", File: "pipeline/diskcache.go",
		Old:    "\t\tif cache, err = open(k.data); err != nil {",
		New:    "\t\tif _, err := prepare(); err != nil {\n\t\t\treturn false, err\n\t\t}\n\t\tif cache, err = open(k.data); err != nil {",
		Breaks: "modules are unpacked and specialized of kernels that are on disk with the words made of them",
		Kill:   []Killer{in("./pipeline", "TestKernelOnDisk")},
	},
	{
		ID: "cache-evicts-newest", File: "pipeline/evict.go", Old: "a.used.Compare(b.used)", New: "b.used.Compare(a.used)",
		Breaks: "compiled kernels that were used last are removed first",
		Kill:   []Killer{in("./pipeline", "TestEvict")},
	},
	{
		ID: "cache-evicts-unread", File: "pipeline/cachefile.go", Old: "\ttouchFile(f, path)\n", New: "",
		Breaks: "compiled kernels that are used but not compiled again are removed",
		Kill:   []Killer{in("./pipeline", "TestReadingKeeps")},
	},
	{
		ID: "cache-tries-again", File: "pipeline/diskcache.go", Old: "names := slices.Sorted(maps.Keys(d.waiting))",
		New:    "names := slices.Sorted(maps.Keys(map[string][]byte{}))",
		Breaks: "what could not be stored is not tried again",
		Kill:   []Killer{in("./pipeline", "TestDiskCacheThatCannotBeStored")},
	},
	{
		ID: "file-leftover", File: sharedFile,
		Old: "\t\tos.Remove(f.Name())\n", New: "",
		Breaks: "a store that fails leaves its temporary file",
		Kill:   []Killer{in("./internal/diskfile", "TestUpdate.*")},
	},
	{
		ID: "file-in-place", File: sharedFile,
		Old: "f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+\".*.tmp\")", New: "f, err := os.Create(path)",
		Breaks: "files that processes share are written in place: readers see halves of them",
		Kill:   []Killer{in("./internal/diskfile", "TestUpdate.*")},
	},
	{
		ID: "file-lock", File: sharedFile,
		Old:    "if unlock, err := Lock(path + \".lock\"); err == nil {",
		New:    "if unlock, err := Lock(path + \".lock\"); err == nil && unlock == nil {",
		Breaks: "of two processes that store at once one loses what it stored",
		Kill:   []Killer{in("./internal/diskfile", "TestUpdate.*")},
	},
	{
		ID: "account-free", File: memoryFile,
		Old: "\ta.current -= b.counted\n", New: "",
		Breaks: "freed memory stays on the account",
		Kill:   []Killer{usageTests},
	},
	{
		ID: "account-asked", File: memoryFile,
		Old: "\ta.asked -= b.Size()\n", New: "",
		Breaks: "freed memory still counts as asked for",
		Kill:   []Killer{usageTests},
	},
	{
		ID: "account-peak", File: memoryFile,
		Old: "a.peak = max(a.peak, a.current)", New: "a.peak = a.current",
		Breaks: "the highest memory in use is that of the last allocation",
		Kill:   []Killer{in("./pipeline", "TestUsage.*", "Test.*Peak.*", "Test.*Heap.*")},
	},
	{
		ID: "account-heap", File: memoryFile,
		Old: "\ta.perHeap[b.ctx.heapFor(b.Kind())] -= b.counted\n", New: "",
		Breaks: "memory that was freed is missing in its heap where the device keeps no account",
		Kill:   []Killer{in("./pipeline", "TestUsage.*", "Test.*Peak.*", "Test.*Heap.*")},
	},
	{
		ID: "account-refusal", File: memoryFile,
		Old: "known && size > free {", New: "known && size < free {",
		Breaks: "what does not fit is asked of the device, and what fits is refused",
		Kill:   []Killer{in("./pipeline", "TestAllocRefuses")},
	},
	{
		ID: "timestamp-period", File: "vk/query.go",
		Old: "float64((to-from)&p.mask()) * p.dev.facts.Limits.TimestampPeriod", New: "float64((to-from)&p.mask())",
		Breaks: "ticks count as nanoseconds",
		Kill:   []Killer{in("./vk", "Test.*Timestamp.*", "Test.*Nanoseconds.*", "TestFacts"), in("./pipeline", "TestTimings")},
	},
	{
		ID: "timestamp-valid-bits", File: "vk/query.go",
		Old: "bits := p.dev.queue.validBits; bits < 64 {", New: "bits := p.dev.queue.validBits; bits < 0 {",
		Breaks: "bits of a timestamp that are not valid count",
		Kill:   []Killer{in("./vk", "Test.*Timestamp.*", "Test.*Nanoseconds.*", "TestFacts"), in("./pipeline", "TestTimings")},
	},
	{
		ID: "timestamp-first", File: "pipeline/timing.go",
		Old: "r.queries.Nanoseconds(r.ticks[0], r.ticks[len(r.labels)])", New: "r.queries.Nanoseconds(r.ticks[1], r.ticks[len(r.labels)])",
		Breaks: "the time of a recording lacks its first operation's",
		Kill:   []Killer{in("./pipeline", "TestTimings")},
	},
	{
		ID: "flush-skipped", File: "vk/buffer.go",
		Old: "if b.coherent || offset == b.capacity || size == 0 {", New: "if !b.coherent || offset == b.capacity || size == 0 {",
		Breaks: "memory that is not coherent is neither flushed nor invalidated",
		Kill:   []Killer{in("./vk", "TestSync.*", "TestWholeAtoms"), in("./pipeline", "TestTransfers.*")},
	},
	{
		ID: "flush-before-upload", File: "pipeline/staging.go",
		Old: "c.upload.sync(slot.buf.Buffer, 0, part.Size)", New: "c.upload.sync(slot.buf.Buffer, 0, 0)",
		Breaks: "what is staged for an upload is not flushed",
		Kill:   []Killer{in("./pipeline", "TestTransfers.*")},
	},
	{
		ID: "invalidate-after-download", File: "pipeline/staging.go",
		Old: "s.ring.sync(s.buf.Buffer, 0, uint64(len(host)))", New: "s.ring.sync(s.buf.Buffer, 0, 0)",
		Breaks: "what was downloaded is not invalidated before it is read",
		Kill:   []Killer{in("./pipeline", "TestTransfers.*")},
	},
	{
		ID: "staging-order", File: "pipeline/staging.go",
		Old:    "slot := &s.slots[i%len(s.slots)]\n\t\tif err := slot.settle(); err != nil {\n\t\t\treturn err\n\t\t}",
		New:    "slot := &s.slots[i%len(s.slots)]",
		Breaks: "a staging buffer is used again before its copy is done",
		Kill:   []Killer{in("./pipeline", "TestTransfers")},
	},
}
