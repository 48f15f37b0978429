package vk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidationChecks(t *testing.T) {
	all := InstanceOptions{SyncValidation: true, GPUValidation: true, BestPractices: true}
	for _, c := range []struct {
		options     InstanceOptions
		environment string
		want        string
	}{
		{InstanceOptions{}, "", "off"},
		{InstanceOptions{}, "core,sync,gpu,best", "off"}, // a program that does not want the layer does not get it
		{InstanceOptions{Validation: true}, "", "core"},
		{InstanceOptions{Validation: true}, "core", "core"},
		{InstanceOptions{Validation: true}, "sync, best", "core,sync,best"},
		{InstanceOptions{Validation: true}, "gpu,", "core,gpu"},
		{InstanceOptions{SyncValidation: true}, "", "core,sync"},
		{all, "", "core,sync,gpu,best"},
		{all, "off", "off"},
	} {
		got, err := c.options.checks(c.environment)
		require.NoError(t, err)
		require.Equal(t, c.want, got.String(), "%+v, %q", c.options, c.environment)
	}
	for _, bad := range []string{"Sync", "core,off", "best practices"} {
		_, err := all.checks(bad)
		require.ErrorContains(t, err, ValidationEnv, bad)
		require.ErrorContains(t, err, "core, sync, gpu and best")
	}
	t.Setenv(ValidationEnv, "everything")
	_, err := NewInstance(InstanceOptions{Validation: true})
	if Load() == nil {
		require.ErrorContains(t, err, ValidationEnv)
	}
}

// What is not followed is left out, by its number and text, and nothing else.
func TestAdviceNotFollowed(t *testing.T) {
	var got []string
	in := &Instance{onMessage: func(m Message) { got = append(got, m.ID) }}
	f := func(m Message) { in.message(m, 0) }
	for _, n := range notFollowed {
		require.NotEmpty(t, n.why, n.id)
		f(Message{ID: n.id, Text: "vkSomething(): " + n.text + " and so on"})
	}
	require.Empty(t, got)
	others := []Message{
		{ID: "BestPractices-specialuse-extension", Text: "Attempting to enable extension VK_EXT_other"},
		{ID: "BestPractices-pipeline-stage-flags-compute", Text: "vkCmdPipelineBarrier(): dstStageMask using " +
			"VK_PIPELINE_STAGE_ALL_COMMANDS_BIT"},
		{ID: "WARNING-GPU-Assisted-Validation", Text: "Unable to instrument shader"},
		{ID: "VUID-vkCmdDispatch-None-08114", Text: "Forcing"},
	}
	for _, m := range others {
		f(m)
	}
	require.Len(t, got, len(others))
}

// KeepAdvice lets all advice through for the length of a test.
func KeepAdvice(t *testing.T) {
	all := notFollowed
	notFollowed = nil
	t.Cleanup(func() { notFollowed = all })
}
