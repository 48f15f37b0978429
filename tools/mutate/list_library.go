package main

// The C interface.

const door = "./cmd/libvkattn/internal/door"

var libraryMutants = []Mutant{
	{
		ID: "door-gaps", File: "cmd/libvkattn/internal/door/tensor.go",
		Old: "copy(to[start*int(l.Size):][:row], from[n*row:])", New: "copy(to[start*int(l.Size):], from[n*row:])",
		Breaks: "outputs of the host overwrite what stands behind a row",
		Kill:   []Killer{in(door, "FuzzTensor"), in(door, "TestPasses")},
	},
	{
		ID: "door-overlap", File: "cmd/libvkattn/internal/door/tensor.go",
		Old: "(write || o.output) && l.Overlaps(&o.layout)", New: "write && o.output && l.Overlaps(&o.layout)",
		Breaks: "an output of the host may share memory with an input",
		Kill:   []Killer{in(door, "TestRefusals")},
	},
	{
		ID: "door-panic", File: "cmd/libvkattn/internal/door/status.go",
		Old: "defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))", New: "defer debug.SetPanicOnFault(debug.SetPanicOnFault(false))",
		Breaks: "memory that is not there ends the program",
		Kill:   []Killer{in(door, "TestMemoryThatIsNotThere")},
	},
	{
		ID: "door-accumulate", File: "cmd/libvkattn/internal/door/tensor.go",
		Old: "if r.write && !r.keep {", New: "if r.write {",
		Breaks: "gradients are added to what device memory happened to hold",
		Kill:   []Killer{in(door, "TestPasses")},
	},
	{
		ID: "door-step-outlived", File: "cmd/libvkattn/internal/door/cache.go",
		Old: "c.stepped, c.step = false, nil", New: "c.step = nil",
		Breaks: "tokens of a sequence that was freed are written into pages that others may have",
		Kill:   []Killer{in(door, "TestCacheRefuses")},
	},
	{
		ID: "door-swapped", File: "cmd/libvkattn/internal/door/tensor.go",
		Old: "l.Strides[1], l.Strides[2] = l.Strides[2], l.Strides[1]", New: "",
		Breaks: "the layout BNHD swaps lengths and leaves strides",
		Kill:   []Killer{in(door, "TestPasses")},
	},
}
