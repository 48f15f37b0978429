package compiled

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

func TestStatsOf(t *testing.T) {
	said := func(of ...any) (all []vk.Stat) {
		for i := 0; i < len(of); i += 2 {
			all = append(all, vk.Stat{Name: of[i].(string), Value: of[i+1].(float64)})
		}
		return all
	}
	for _, c := range []struct {
		driver string
		said   []vk.Stat
		want   Stats
	}{
		{"RADV", said("Hash", 7.0, "SGPRs", 108.0, "VGPRs", 216.0, "Spilled SGPRs", 3.0, "Spilled VGPRs", 1.0, "LDS size", 51200.0,
			"Scratch size", 4.0, "Subgroups per SIMD", 2.0, "Instructions", 2541.0, "Latency", 56658.0, "Inverse Throughput", 56650.0),
			Stats{216, 1, 4, 51200, 2, 2541, 56658, 56650}},
		{"NVK", said("Instruction count", 3486.0, "Static cycle count", 234771.0, "Max warps/SM", 8.0, "Spills to memory", 0.0,
			"Spills to reg", 8.0, "Number of GPRs", 216.0, "SLM size", 0.0), Stats{216, 0, 0, -1, 8, 3486, 234771, -1}},
		{"Turnip", said("Max Waves Per Core", 2.0, "Instruction Count", 6137.0, "Registers used", 48.0, "STP Count", 206.0),
			Stats{48, 206, -1, -1, 2, 6137, -1, -1}},
		{"Honeykrisp", said("Instructions", 7145.0, "ALU", 5715.0, "GPRs", 255.0, "Scratch", 508.0, "Threads", 384.0, "Spills", 336.0),
			Stats{255, 336, 508, -1, 384, 7145, 5715, -1}},
		{"none", nil, Stats{-1, -1, -1, -1, -1, -1, -1, -1}},
	} {
		require.Equal(t, c.want, StatsOf(c.said), c.driver)
	}
}

func example() []Pass {
	stage := func(module string, spills, occupancy float64) Stage {
		return Stage{Module: module, Seconds: 0.25, Stats: Stats{Registers: 128, Spills: spills, Shared: -1, Occupancy: occupancy,
			Instructions: 1234, Cycles: 99, Throughput: -1}}
	}
	return []Pass{
		{Problem: "flash2 N2048 D64, forward", Kernel: "scalar_forward 64x64",
			Stages: []Stage{stage("row_table", 0, 32), stage("scalar_forward.f16", 2, 4)}},
		{Problem: "flash2 N2048 D64, backward", Kernel: "scalar_backward kv 64x32, q 64x32",
			Stages: []Stage{stage("row_table", 0, 32), stage("row_table", 1, 16), stage("scalar_backward_kv.f16", 0, 8)}},
		{Problem: "flash2 bfloat16, forward", Refused: "no kernel: the device lacks a feature"},
	}
}

func TestTableIsReadAsItWasWritten(t *testing.T) {
	var text strings.Builder
	require.NoError(t, Write(&text, example()))
	got, made, err := Read(strings.NewReader("# a comment\n\n" + text.String()))
	require.NoError(t, err)
	require.Equal(t, "# a comment", made)
	require.Equal(t, example(), got)
	require.Regexp(t, `(?m)^  scalar_forward\.f16 +128 +2 +0 +- +4 +1234 +99 +- +0\.25$`, text.String())
}

func TestBrokenTables(t *testing.T) {
	for text, says := range map[string]string{
		"no colon":                    "line 1: neither PROBLEM: KERNEL nor an indented stage",
		"  stage 1 2":                 "line 1: 3 words, and a stage of a problem above it has 10",
		"p: k\n  s 1":                 "line 2: 2 words",
		"p: k\n  s 1 2 3 4 x 6 7 8 9": `line 2: occupancy is "x", no number`,
	} {
		_, _, err := Read(strings.NewReader(text))
		require.ErrorContains(t, err, says, text)
	}
}

func TestCompare(t *testing.T) {
	worse, compared := Compare(example(), example(), true)
	require.Empty(t, worse)
	require.Equal(t, 3, compared)
	for _, c := range []struct {
		change func(p []Pass)
		says   string
	}{
		{func(p []Pass) { p[0].Stages[1].Spills = 3 }, "flash2 N2048 D64, forward, scalar_forward.f16: spills 2 before, 3 now"},
		{func(p []Pass) { p[1].Stages[1].Spills = 2 }, "flash2 N2048 D64, backward, row_table: spills 1 before, 2 now"},
		{func(p []Pass) { p[1].Stages[2].Occupancy = 7 }, "flash2 N2048 D64, backward, scalar_backward_kv.f16: occupancy 8 before, 7 now"},
		{func(p []Pass) { p[0] = Pass{Problem: p[0].Problem, Refused: "why"} },
			"flash2 N2048 D64, forward: scalar_forward 64x64 before, and now refused: why"},
	} {
		now := example()
		c.change(now)
		worse, _ := Compare(example(), now, true)
		require.Equal(t, []string{c.says}, worse)
		worse, _ = Compare(now, example(), true)
		require.Empty(t, worse, "better is not worse")
		worse, _ = Compare(example(), now, false)
		require.Equal(t, now[0].Refused != "", len(worse) > 0, "numbers of another compiler are not compared")
	}
	worse, compared = Compare(example()[:1], append(example(), Pass{Problem: "another", Refused: "new"}), true)
	require.Empty(t, worse)
	require.Equal(t, 1, compared)
}
