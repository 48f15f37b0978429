package kernel

import (
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// Module gives a shader as this device's pipelines take it: fp16 conversions round to nearest even, and keep denormals,
// infinities and NaNs, where the device can be asked for it. Exponentials of scores far below the row's maximum are fp16
// denormals once they are operands of the second product, and a device that flushes them loses what many of them add up to.
func (e *Env) Module(name string) ([]uint32, error) {
	modules := e.shaders(name).Module
	if e.Modules != nil {
		modules = e.Modules
	}
	code, err := modules(name)
	if err != nil {
		return nil, err
	}
	return vk.WithFloatControls16(code, e.Dev.FloatControls()), nil
}

// shaders is the set that this device takes a module from: its counting build where there is one.
func (e *Env) shaders(module string) *shaders.Set {
	if e.Counting != nil {
		if _, err := e.Counting.Modules.Describe(module); err == nil {
			return e.Counting.Modules
		}
	}
	return shaders.Shipped
}

// CountingBuilds replace a device's kernels by builds of them that add up the bytes they load and store, for tests of the byte
// model (shaders/include/count.glsl). They have one binding more, after the others.
type CountingBuilds struct {
	Modules *shaders.Set
	Counts  func(label string) pipeline.Binding // where the dispatches of a label count
}

// bind adds the binding of a counting build.
func (c *CountingBuilds) bind(access []pipeline.Access, label string) []pipeline.Access {
	if c == nil {
		return access
	}
	return append(access, pipeline.Access{Binding: c.Counts(label), Mode: pipeline.ReadWrite})
}
