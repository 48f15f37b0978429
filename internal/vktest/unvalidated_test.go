package vktest

import (
	"strings"
	"testing"

	"github.com/vkattn/vkattn/vk"
)

// A layer that is installed and does not load is said once, with what the loader says of it, and tests run without; with
// VKATTN_REQUIRE_VALIDATION=1 they fail.
func TestLayerThatDoesNotLoad(t *testing.T) {
	t.Setenv(vk.ValidationEnv, "")
	t.Setenv(RequireValidation, "")
	Device(t) // or there is none
	said := BreakLayer(t)
	for range 2 {
		if in := Instance(t, Options{SyncValidation: true}); in.Validated() {
			t.Fatal("a layer without its library validates")
		}
	}
	if all := said(); len(all) != 1 || !strings.HasPrefix(all[0], "the layer VK_LAYER_KHRONOS_validation was found (1.4.309), but did "+
		"not load") || !strings.Contains(all[0], "libVkLayer_missing.so") {
		t.Fatalf("said %q", all)
	}
	t.Setenv(RequireValidation, "1")
	r := &recordingTB{TB: t}
	func() {
		defer func() { _ = recover() }()
		Instance(r, Options{})
	}()
	if !r.failed || r.skipped {
		t.Errorf("required: failed %v, skipped %v", r.failed, r.skipped)
	}
}
