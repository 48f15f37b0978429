// Package counting holds the compute shaders of vkattn as SPIR-V that also counts the bytes they load and store, for tests of the
// byte model. Sources and names are those of package shaders; modules.txt lists the builds, ../include/count.glsl says what is counted
// and where. Programs do not import it.
package counting

import (
	"embed"

	"github.com/vkattn/vkattn/shaders"
)

//go:embed spv/*.spv.gz
var binaries embed.FS

//go:embed manifest.json
var manifest []byte

// Modules are the counting builds. A module has one binding more than its namesake in package shaders, after the others.
var Modules = shaders.NewSet(binaries, manifest)
