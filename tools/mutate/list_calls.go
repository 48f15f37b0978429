package main

// How Vulkan is called: arguments, the structures that they are the addresses of, and the faults of tests before the calls.

var callMutants = []Mutant{
	{
		ID: "queue-lock-thread", File: "vk/submit.go",
		Old: "		runtime.LockOSThread()\n", New: "",
		Breaks: "another thread than the one that took the caller's lock gives it back",
		Kill:   []Killer{in("./vk", "TestQueueLockThread")},
	},
	{
		ID: "tensor-close-copies", File: "flash/tensor.go",
		Old: "	m.copies.Wait() // none begins any more\n", New: "",
		Breaks: "a tensor's memory is freed while it is copied from or to",
		Kill:   []Killer{in("./flash", "TestTensorCloseBesideTransfers")},
	},
	{
		ID: "open-thread", File: "vk/internal/abi/library_unix.go",
		Old: "	runtime.LockOSThread() // purego asks", New: "	runtime.UnlockOSThread() // purego asks",
		Breaks: "why a library did not open is asked for on another thread, which knows of nothing",
		Kill:   []Killer{in("./vk/internal/abi", "TestOpenSaysWhy")},
	},
	{
		ID: "call-argument", File: "vk/internal/abi/call_amd64.s", Old: "MOVQ 72(BX), AX", New: "MOVQ 64(BX), AX",
		Breaks: "the ninth argument of a call is the eighth once more",
		Kill:   []Killer{in("./vk/internal/abi", "TestArguments")},
	},
	{
		ID: "call-queue-memory", File: "vk/internal/abi/frame.go", Old: "	f.Flush()\n	f.used = 0", New: "	f.used = 0",
		Breaks: "memory is used again before the calls are made that it is for",
		Kill:   []Killer{in("./vk/internal/abi", "TestQueue")},
	},
	{
		ID: "call-frame-zero", File: "vk/internal/abi/frame.go", Old: "	clear(w)\n", New: "",
		Breaks: "a structure has what lay there before in the fields that nobody sets",
		Kill:   []Killer{in("./vk/internal/abi", "TestFrame")},
	},
	{
		ID: "call-chain", File: "vk/table_facts.go", Old: "		tail = next\n", New: "",
		Breaks: "of a chain of structures only the first and the last are linked",
		Kill:   []Killer{in("./vk", "TestFacts.*", "TestFloatControls.*")},
	},
	{
		ID: "call-list-incomplete", File: "vk/table.go", Old: "return max(int32(*n), int32(len(out)))", New: "return int32(*n)",
		Breaks: "a list that did not fit counts as whole",
		Kill:   []Killer{in("./vk", "TestFault.*")},
	},
	{
		ID: "message-module", File: "vk/messages.go", Old: "modules.Load(abi.Thread())", New: "modules.Load(abi.Thread() + 1)",
		Breaks: "what a layer cannot read of a module counts as an objection",
		Kill:   []Killer{in("./vk", "TestModulesThatALayerCannotRead", "TestPassOver.*")},
	},
	{
		ID: "fault-lost-to-all", File: "vk/fault_hook.go", Old: "if other.device == h.device {", New: "if other == h {",
		Breaks: "a device is lost to the one who met the fault, and not to others who have it",
		Kill:   []Killer{in("./vk", "TestFault.*")},
	},
}
