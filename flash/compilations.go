package flash

import "github.com/vkattn/vkattn/pipeline"

// Compilations counts the kernels that a device has compiled, and those for which the driver was given what it made of them earlier.
type Compilations = pipeline.Compilations

// Compilations tells what compiling kernels has cost so far.
func (d *Device) Compilations() Compilations {
	if d == nil || d.env == nil {
		return Compilations{}
	}
	return d.env.Ctx.Compilations()
}
