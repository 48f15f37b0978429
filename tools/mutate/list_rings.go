package main

// Attention over several devices, and streamed through one.

var ringMutants = []Mutant{
	{
		ID: "ring-maps-alone", File: "flash/ring/shown.go",
		Old: "good, err = allHave(ctx, c, good)", New: "_, err = allHave(ctx, c, good)",
		Breaks: "a process that maps the others' memory copies from it, whatever these can",
		Kill:   []Killer{in("./flash/ring", "TestProcessesShow")},
	},
	{
		ID: "hostmem-any-memory", File: "flash/hostmem/shared_linux.go",
		Old: "if s.Ino != d.Inode {", New: "if s.Ino == 0 {",
		Breaks: "memory that has the number of some that was closed is opened in its place",
		Kill:   []Killer{in("./flash/hostmem", "TestSharedHostile")},
	},
	{
		ID: "hostmem-unsealed", File: "flash/hostmem/shared_linux.go",
		Old: "err != nil || has&seals != seals {", New: "err != nil || has < 0 {",
		Breaks: "memory is mapped that another process can make shorter",
		Kill:   []Killer{in("./flash/hostmem", "TestSharedHostile")},
	},
	{
		ID: "ring-hides-first", File: "flash/ring/operands.go",
		Old: "shape[3] = l.pad\n", New: "shape[3] = 1\n",
		Breaks: "of rows of zeros before the keys of a launch that has a bias and a mask one alone is hidden",
		Kill:   []Killer{in("./flash/ring", "TestPackedRanks")},
	},
	{
		ID: "ring-padded-rows", File: "flash/ring/padded.go",
		Old: "at = entry*strides[0] + (of.Begin-entry*shape[2])*strides[2]", New: "at = entry * strides[0]",
		Breaks: "rows of a padded batch are an entry's first, whichever they are",
		Kill:   []Killer{in("./flash/ring", "TestPaddedRanks", "TestPaddedLengthsChange")},
	},
	{
		ID: "ring-padded-sinks", File: "flash/ring/sinks.go",
		Old: "n += meet(Span{0, s.packed.queryLens[b]}, chunk).Len()", New: "n += chunk.Len()",
		Breaks: "queries that an entry does not use have a sink in rings",
		Kill:   []Killer{in("./flash/ring", "TestPaddedRanks", "TestPaddedLengthsChange")},
	},
	{
		ID: "ring-blocks-of-all", File: "flash/ring/blocks.go",
		Old: "heads, perEntry = of.heads, p.Heads", New: "heads, perEntry = Span{0, of.heads.Len()}, p.Heads",
		Breaks: "over heads every rank has the first heads' block masks",
		Kill:   []Killer{in("./flash/ring", "TestBlockRanks")},
	},
	{
		ID: "ring-blocks-skip", File: "flash/ring/schedule.go",
		Old: "if !s.attended(q, k) {", New: "if s.attended(q, k) && s.blocks != nil {",
		Breaks: "pairs of chunks that have a block are left out, and those without are computed",
		Kill:   []Killer{in("./flash/ring", "TestScheduleCovers")},
	},
	{
		ID: "ring-largest-nan", File: "flash/ring/maxlogit.go",
		Old: "if a != a || a > b {", New: "if a > b {",
		Breaks: "the largest of ranks' scores leaves out what is no number",
		Kill:   []Killer{in("./flash/ring", "TestLargestNaN")},
	},
	{
		ID: "ring-captured-once", File: "flash/ring/captured.go",
		Old: "flash.Accumulate{X: t, Y: g.dcaptured[i]}", New: "flash.Accumulate{X: g.dcaptured[i], Y: t}",
		Breaks: "the gradient with respect to a captured tensor lacks what launches give",
		Kill:   []Killer{in("./flash/ring", "TestOperandRanks")},
	},
	{
		ID: "ring-shared-bias", File: "flash/ring/heads.go",
		Old: "return p.Bias != flash.PerScore{} && p.Bias.Heads == 1 && p.Heads > 1", New: "return false",
		Breaks: "over heads the gradient with respect to a bias that these share is of a rank's own heads",
		Kill:   []Killer{in("./flash/ring", "TestHeads", "TestBiasAccumulate")},
	},
	{
		ID: "stream-adds-nothing", File: "flash/ring/backward.go",
		Old: "w.addTo(gave.k, have.k, sums.k)", New: "w.addTo(gave.k, gave.k, sums.k)",
		Breaks: "a stream that accumulates adds gradients with respect to keys to themselves",
		Kill:   []Killer{in("./flash/ring", "TestStreamAccumulates")},
	},
	{
		ID: "ring-first-error", File: "flash/ring/pass.go",
		Old: "w.err = w.trySum(rule, a)", New: "_ = w.trySum(rule, a)",
		Breaks: "sums that could not be submitted are left out, and a pass says that all is well",
		Kill:   []Killer{in("./flash/ring", "TestNothingGoesOn")},
	},
	{
		ID: "ring-hosts-head", File: "flash/ring/hosts.go",
		Old: "over.sched.head, over.sched.heads = index*over.problem.Heads, problem.Heads", New: "",
		Breaks: "ranks of a host draw dropout for, and ask functions about, the first heads, whichever theirs are",
		Kill:   []Killer{in("./flash/ring", "TestHosts")},
	},
	{
		ID: "within-bias-entries", File: "internal/kernel/matrix/backward_bias.go",
		Old: "\tkernel.DrawInEntries(&p)\n", New: "",
		Breaks: "self-checks of bias gradients deny kernels in parts of problems with dropout",
		Kill:   []Killer{in("./flash", "TestWithinBiasIsProved")},
	},
	{
		ID: "ring-fails-alone", File: "flash/ring/pass.go",
		Old: "p.ring.comm.Abort(err)", New: "_ = p.ring",
		Breaks: "a rank whose pass fails says nothing to the others, who wait for it",
		Kill:   []Killer{in("./flash/ring", "TestKilledRanks")},
	},
	{
		ID: "ring-blames-first", File: "flash/ring/local.go",
		Old: "known = &RankError{Rank: rank, Err: cause}", New: "known = &RankError{Rank: 0, Err: cause}",
		Breaks: "whichever rank fails, others are told that the first did",
		Kill:   []Killer{in("./flash/ring", "TestRankFails", "TestKilledRanks")},
	},
	{
		ID: "ring-waits-on", File: "flash/ring/local.go",
		Old: "\tcase <-c.failed:\n\t\treturn nil, c.failure()\n", New: "",
		Breaks: "a rank in a gathering is not told that another has failed",
		Kill:   []Killer{in("./flash/ring", "TestKilledRanks")},
	},
	{
		ID: "ring-leaves-recordings", File: "flash/ring/pass.go",
		Old: "err = errors.Join(err, r.Close())", New: "_ = r",
		Breaks: "closed plans leave the recordings of their sums on the device",
		Kill:   []Killer{in("./flash/ring", "TestCloseLeavesNothing")},
	},
}
