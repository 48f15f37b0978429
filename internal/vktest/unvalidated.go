package vktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vkattn/vkattn/internal/tally"
	"github.com/vkattn/vkattn/vk"
)

// RequireValidation is the variable that makes running without the validation layer a failure.
const RequireValidation = "VKATTN_REQUIRE_VALIDATION"

// Unvalidated says whether an error of opening an instance or a device is that the validation layer is missing, or does not load, and
// tests may do without. The first time in a process it says so, there and in the summary of tools/test.sh. Where
// VKATTN_REQUIRE_VALIDATION=1 they may not.
func Unvalidated(err error) bool {
	if !errors.Is(err, vk.ErrLayerMissing) || os.Getenv(RequireValidation) == "1" {
		return false
	}
	a := announcing.Load()
	a.once.Do(func() {
		why := err.Error()
		a.say(why[max(strings.Index(why, "the layer "), 0):]) // vk's words, whoever opened the instance
	})
	return true
}

// announcer says once in a process that it tests without validation.
type announcer struct {
	once sync.Once
	say  func(why string)
}

var announcing atomic.Pointer[announcer]

func init() {
	announcing.Store(&announcer{say: func(why string) {
		fmt.Fprintln(os.Stderr, "tests run without validation:", why)
		tally.Add(tally.Line{Kind: tally.Unvalidated, Name: why})
	}})
}

// BreakLayer makes the loader find, for the length of a test, a validation layer that does not load. said is what Unvalidated says
// meanwhile, in place of saying it.
func BreakLayer(t *testing.T) (said func() []string) {
	t.Helper()
	if err := vk.Load(); err != nil {
		missing(t, err.Error())
	}
	dir := t.TempDir()
	layer := fmt.Sprintf(`{"file_format_version": "1.2.0", "layer": {"name": "VK_LAYER_KHRONOS_validation", "type": "GLOBAL",
		"library_path": %q,
		"api_version": "1.4.309", "implementation_version": "1", "description": "a layer whose library is missing",
		"instance_extensions": [{"name": "VK_EXT_debug_utils", "spec_version": "1"},
			{"name": "VK_EXT_validation_features", "spec_version": "2"}]}}`,
		filepath.Join(dir, "libVkLayer_missing.so"))
	if err := os.WriteFile(filepath.Join(dir, "layer.json"), []byte(layer), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VK_LAYER_PATH", dir)
	var mu sync.Mutex
	var all []string
	before := announcing.Swap(&announcer{say: func(why string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, why)
	}})
	t.Cleanup(func() { announcing.Store(before) })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}
