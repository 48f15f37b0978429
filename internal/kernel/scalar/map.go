package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// MapLabel is the module of maps, and the label of its dispatches.
const MapLabel = "scalar_map"

// MapTile is the shape of the work of scalar_map: a row for each invocation. It suits every device, and shared memory of 16 KiB.
type MapTile struct{ BR, BC, MR, MC, DK int }

// TileOfMaps is the tile on a device.
func TileOfMaps(c *kernel.Capabilities) MapTile {
	t := MapTile{BR: 64, BC: 32, MR: 8, MC: 4, DK: 16}
	if c.Facts.Limits.MaxSharedMemory >= 24<<10 {
		t.DK = 32 // half the barriers
	}
	return t
}

// sharedV4 is the length of the shader's array of vec4s.
func (t *MapTile) sharedV4() int { return max((t.BR+t.BC)*(t.DK/4|1), t.BR*(t.BC/4|1)) }

// Constants are the specialization constants of scalar_map.
func (t *MapTile) Constants(p *attn.Problem, v kernel.MapVariant) kernel.Constants {
	return kernel.Constants{"WG": t.BR, "BR": t.BR, "BC": t.BC, "MR": t.MR, "MC": t.MC, "DK": t.DK,
		"SHARED_V4": t.sharedV4()}.And(kernel.MapConstants(p, v))
}

// MapLacks says what the device or the problem lacks for maps, "" when it can make them.
func MapLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if why := c.LacksArguments(&kernel.PassArgs().Map); why != "" {
		return why
	}
	return c.LacksScalar(p.DType)
}

// NewMap plans maps of a problem's weights in fp32 arithmetic: shaders/scalar/scalar_map.comp.
func NewMap(e *kernel.Env, problem *attn.Problem) (*pass.MapProgram, error) {
	t, p := TileOfMaps(&e.Caps), kernel.MapProblem(problem)
	return (&pass.Maps{Label: MapLabel, Module: kernel.CacheModule(MapLabel, &p) + "." + p.DType.Suffix(),
		Tile: fmt.Sprintf("%dx%d", t.BR, t.BC), Tier: kernel.TierScalar, Rows: t.BR, Groups: 1, Keys: t.BC, Pace: kernel.ScalarPace,
		Trusted: true, Buffers: pass.Views, Constants: t.Constants}).Program(e, &p)
}
