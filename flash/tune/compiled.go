package tune

import (
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/specialize"
	"github.com/vkattn/vkattn/pipeline"
)

// Compilations tells what compiling kernels has cost a device so far, with those for which the driver was given what it made of them
// earlier.
func Compilations(d *flash.Device) pipeline.Compilations {
	env, err := within.Env(d)
	if err != nil {
		return pipeline.Compilations{}
	}
	return env.Ctx.Compilations()
}

// SpecializeEnv is the environment variable that says whether kernels' modules are specialized before the driver sees them: 1 for yes, 0
// for no, on every device that is opened or attached later; another value is an error of [flash.Open] and [flash.Attach]. Without it they
// are. A driver then compiles a kernel on matrices in a third to a twelfth of the time (NVIDIA, H100), and validation layers read a tenth
// of its module. The machine code that comes of it runs as fast, and computes the same.
const SpecializeEnv = specialize.Env

// Kernels gives the kernels that a device has made so far, in the order in which they were ready: with their constants, the time that it
// took, and, where the device was opened with [flash.CompileOnly] and its driver has them, statistics of the machine code.
func Kernels(d *flash.Device) []*pipeline.Kernel {
	env, err := within.Env(d)
	if err != nil {
		return nil
	}
	return env.Ctx.Kernels()
}
