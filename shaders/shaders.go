// Package shaders holds the compute shaders of vkattn as SPIR-V, packed by gzip and embedded in the program.
//
// The GLSL stands in folders by family: scalar, matrix and standard; common has what families share, tools what looks at a device, and
// include the shared parts. modules.txt lists what is compiled from it, and tools/glslc.sh compiles. Each shader's header comment tells
// what it computes, from which bindings, push constants and specialization constants. manifest.json records for each module the hash of its
// source with all it includes, its defines, target and compiler, so that a test can tell SPIR-V that was left behind by its source, and the
// module's interface: programs set specialization constants by name.
package shaders

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/internal/spirv"
)

//go:embed spv/*.spv.gz
var binaries embed.FS

//go:embed manifest.json
var manifestJSON []byte

// Shipped are the modules that programs run.
var Shipped = NewSet(binaries, manifestJSON)

// Names lists the embedded modules in alphabetical order.
func Names() []string { return Shipped.Names() }

// Module returns the SPIR-V words of the module called name, for example "scalar_forward.f16".
// The slice is the caller's own. An unknown name gives an error that wraps ErrUnknownModule.
func Module(name string) ([]uint32, error) { return Shipped.Module(name) }

// Describe returns what the manifest says of the module called name.
func Describe(name string) (Info, error) { return Shipped.Describe(name) }

// Info describes one compiled module as manifest.json records it.
type Info struct {
	Name         string `json:"name"`          // of the module: the source's name, a dot, the variant
	Source       string `json:"source"`        // GLSL file, relative to this folder
	TargetEnv    string `json:"target_env"`    // Vulkan version the module asks for, as glslc spells it
	Defines      string `json:"defines"`       // preprocessor options, separated by blanks
	Options      string `json:"options"`       // other compiler options
	Compiler     string `json:"compiler"`      // compiler and its version
	SourceSHA256 string `json:"source_sha256"` // of the source and everything it includes
	SPIRVSHA256  string `json:"spirv_sha256"`  // of the compiled module

	Interface Interface `json:"interface"` // what the source declares, whether the compiled module still uses it or not
}

// ErrUnknownModule is wrapped by the errors for a name that modules.txt does not list.
var ErrUnknownModule = errors.New("no such shader module")

// suffix ends the file names of modules. SPIR-V takes a third or less of its length so, in the repository and in programs.
const suffix = ".spv.gz"

// Set is a build list's modules: spv/NAME.spv.gz for each, and a manifest.
type Set struct {
	binaries fs.FS
	lines    func() (map[string][]byte, error) // of the manifest, by name of the module
	infos    sync.Map                          // what was read of them, by the same
}

// NewSet makes a set of the files that tools/glslc.sh writes for a build list.
func NewSet(binaries fs.FS, manifestJSON []byte) *Set {
	return &Set{binaries: binaries, lines: sync.OnceValues(func() (map[string][]byte, error) { return manifestLines(manifestJSON) })}
}

// manifestLines takes a manifest apart: a list in JSON, of which each module has a line that begins with its name. Of the modules a program
// uses a few: reading all of them takes longer than anything else that it does before a device is open.
func manifestLines(manifest []byte) (map[string][]byte, error) {
	byName := map[string][]byte{}
	n := 0
	for line := range bytes.Lines(manifest) {
		n++
		line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
		if bare := string(line); bare == "" || bare == "[" || bare == "]" {
			continue
		}
		rest, begins := bytes.CutPrefix(line, []byte(`{"name":"`))
		name, _, ends := bytes.Cut(rest, []byte(`"`))
		if !begins || !ends {
			return nil, fmt.Errorf("shaders: manifest.json: line %d does not begin with the name of a module", n)
		}
		byName[string(name)] = line
	}
	return byName, nil
}

// Names is Names of the set.
func (s *Set) Names() []string {
	entries, err := fs.ReadDir(s.binaries, "spv")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	slices.Sort(names)
	return names
}

// Module is Module of the set.
func (s *Set) Module(name string) ([]uint32, error) {
	raw, err := s.bytes(name)
	if err != nil {
		return nil, err
	}
	if len(raw) < 20 || len(raw)%4 != 0 {
		return nil, fmt.Errorf("shaders: module %q has %d bytes; SPIR-V has at least 20, a multiple of 4", name, len(raw))
	}
	words := make([]uint32, len(raw)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	if words[0] != spirv.Magic {
		return nil, fmt.Errorf("shaders: module %q begins with %#08x; SPIR-V begins with %#08x", name, words[0], spirv.Magic)
	}
	return words, nil
}

// Describe is Describe of the set.
func (s *Set) Describe(name string) (Info, error) {
	if known, ok := s.infos.Load(name); ok {
		return *known.(*Info), nil
	}
	byName, err := s.lines()
	if err != nil {
		return Info{}, err
	}
	line, ok := byName[name]
	if !ok {
		return Info{}, fmt.Errorf("shaders: module %q: %w", name, ErrUnknownModule)
	}
	info := &Info{}
	if err := json.Unmarshal(line, info); err != nil {
		return Info{}, fmt.Errorf("shaders: manifest.json: module %q: %w", name, err)
	}
	known, _ := s.infos.LoadOrStore(name, info)
	return *known.(*Info), nil
}

// bytes are those of a module, unpacked.
func (s *Set) bytes(name string) ([]byte, error) {
	file, err := s.binaries.Open("spv/" + name + suffix)
	if err != nil {
		return nil, fmt.Errorf("shaders: module %q: %w (there are %s)", name, ErrUnknownModule, strings.Join(s.Names(), ", "))
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err == nil {
		var raw []byte
		if raw, err = io.ReadAll(unpacked); err == nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("shaders: module %q: %w", name, err)
}
