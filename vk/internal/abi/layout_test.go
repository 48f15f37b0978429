package abi

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// typeOf is the type that Init gives a structure.
func typeOf[T any, P typed[T]]() uint64 {
	f := NewFrame()
	defer f.Free()
	return uint64(Struct[T, P](f).Base().SType)
}

// compiler is the C compiler of this machine, "" where there is none.
func compiler() string {
	for _, name := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// cName is a field's name in the headers.
func cName(f reflect.StructField) string {
	if c := f.Tag.Get("c"); c != "" {
		return c
	}
	return strings.ToLower(f.Name[:1]) + f.Name[1:]
}

// assertions are C that compiles only where structures and constants are as the headers have them.
func assertions(structures map[string]any, constants map[string]uint64) string {
	var b strings.Builder
	b.WriteString("#define VK_NO_PROTOTYPES 1\n#include <stddef.h>\n#include \"vulkan/vulkan_core.h\"\n")
	check := func(what string, n any, message string) {
		fmt.Fprintf(&b, "_Static_assert(%s == %d, %q);\n", what, n, message)
	}
	for name, s := range structures {
		t := reflect.TypeOf(s)
		check("sizeof("+name+")", t.Size(), "size of "+name)
		for f := range t.Fields() {
			c := cName(f)
			check(fmt.Sprintf("offsetof(%s, %s)", name, c), f.Offset, "offset of "+name+"."+c)
			check(fmt.Sprintf("sizeof(((%s *)0)->%s)", name, c), f.Type.Size(), "size of "+name+"."+c)
		}
	}
	for name, v := range constants {
		check(name, v, "value of "+name)
	}
	return b.String()
}

// compile says what the C compiler objects to.
func compile(t *testing.T, source string) (string, error) {
	t.Helper()
	cc := compiler()
	if cc == "" {
		if os.Getenv("VKATTN_REQUIRE_CC") == "1" {
			t.Fatal("VKATTN_REQUIRE_CC=1, but this machine has no C compiler")
		}
		t.Skip("this machine has no C compiler")
	}
	file := filepath.Join(t.TempDir(), "layout.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	out, err := exec.Command(cc, "-std=c11", "-fsyntax-only", "-I", filepath.Join("..", "..", "include"), file).CombinedOutput()
	return string(out), err
}

// Every structure has C's size, every field its offset and size, every constant its value.
func TestLayout(t *testing.T) {
	all := maps.Clone(constants)
	for name, v := range structureTypes {
		all["VK_STRUCTURE_TYPE_"+name] = v
	}
	out, err := compile(t, assertions(structures, all))
	require.NoError(t, err, "%.2000s", out)
}

// And the compiler would say so if not.
func TestLayoutNoticesMistakes(t *testing.T) {
	type swapped struct {
		Size   uint64 `c:"range"`
		Offset uint64
		Buffer uint64
	}
	type narrow struct {
		Buffer, Offset uint64
		Range          uint32
	}
	for _, c := range []struct {
		structure any
		constant  uint64
		says      string
	}{
		{swapped{}, SharingModeConcurrent, "offset of VkDescriptorBufferInfo."},
		{narrow{}, SharingModeConcurrent, "size of VkDescriptorBufferInfo.range"},
		{DescriptorBufferInfo{}, SharingModeConcurrent + 1, "value of VK_SHARING_MODE_CONCURRENT"},
	} {
		out, err := compile(t, assertions(map[string]any{"VkDescriptorBufferInfo": c.structure},
			map[string]uint64{"VK_SHARING_MODE_CONCURRENT": c.constant}))
		require.Error(t, err)
		require.Contains(t, out, c.says)
	}
}

// Frames are words that the collector does not look into, and what it cannot see must not be in them.
func TestNoPointers(t *testing.T) {
	var holds func(reflect.Type) bool
	holds = func(t reflect.Type) bool {
		switch t.Kind() {
		case reflect.Struct:
			return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return holds(f.Type) })
		case reflect.Array:
			return holds(t.Elem())
		case reflect.Uint32, reflect.Int32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Uint8:
			return false
		}
		return true
	}
	for name, s := range structures {
		require.False(t, holds(reflect.TypeOf(s)), name)
	}
	require.True(t, holds(reflect.TypeFor[struct{ P *int }]()))
}
