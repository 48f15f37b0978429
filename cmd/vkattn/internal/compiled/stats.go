package compiled

import "github.com/vkattn/vkattn/vk"

// Stats is what drivers say of the machine code of one kernel, in words that they share; -1 where this one says nothing.
type Stats struct {
	Registers    float64 // of one invocation, vector registers where there are others too
	Spills       float64 // registers, or instructions that move them, to memory
	Scratch      float64 // bytes of memory for them
	Shared       float64 // bytes of shared memory of a workgroup
	Occupancy    float64 // what runs at once: AMD subgroups of a SIMD, NVIDIA and Adreno of a core, Apple invocations of a core
	Instructions float64
	Cycles       float64 // from the first instruction to the last, loops taken as the driver guesses
	Throughput   float64 // cycles between two subgroups that end, of a SIMD that is full ("inverse throughput"), guessed like Cycles
}

// names are those of statistics in Mesa's drivers and NVIDIA's (VK_KHR_pipeline_executable_properties).
var names = []struct {
	to   func(*Stats) *float64
	from []string
}{
	{func(s *Stats) *float64 { return &s.Registers }, []string{"VGPRs", "Number of GPRs", "Register Count", "GPRs", "Registers used"}},
	{func(s *Stats) *float64 { return &s.Spills }, []string{"Spilled VGPRs", "Spills to memory", "Spills", "STP Count", "Spill count"}},
	{func(s *Stats) *float64 { return &s.Scratch }, []string{"Scratch size", "SLM size", "Scratch", "Scratch Memory Size", "Stack Size"}},
	{func(s *Stats) *float64 { return &s.Shared }, []string{"LDS size", "Shared Memory Size", "Workgroup Memory Size"}},
	{func(s *Stats) *float64 { return &s.Occupancy }, []string{"Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core", "Threads"}},
	{func(s *Stats) *float64 { return &s.Instructions }, []string{"Instructions", "Instruction count", "Instruction Count"}},
	{func(s *Stats) *float64 { return &s.Cycles }, []string{"Latency", "Static cycle count", "Cycle Count", "ALU"}},
	{func(s *Stats) *float64 { return &s.Throughput }, []string{"Inverse Throughput"}},
}

// StatsOf takes them from what a driver said.
func StatsOf(said []vk.Stat) Stats {
	var s Stats
	for _, n := range names {
		*n.to(&s) = -1
	}
	for _, n := range names {
		for _, name := range n.from {
			for _, x := range said {
				if x.Name == name && *n.to(&s) < 0 {
					*n.to(&s) = x.Value
				}
			}
		}
	}
	return s
}
