package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/vk"
)

// MapLabel is the module of maps, and the label of its dispatches.
const MapLabel = "scalar_map"

// MapTile is the shape of the work of scalar_map: a row for each invocation; shaders/scalar/scalar_map.comp says what each number means.
type MapTile struct{ BR, BC, MR, MC, DK int }

// mapFields are the numbers of a MapTile.
var mapFields = kernel.Fields[MapTile]{
	{Name: "br", Constant: "BR", Of: func(t *MapTile) any { return &t.BR }},
	{Name: "bc", Constant: "BC", Of: func(t *MapTile) any { return &t.BC }},
	{Name: "mr", Constant: "MR", Of: func(t *MapTile) any { return &t.MR }},
	{Name: "mc", Constant: "MC", Of: func(t *MapTile) any { return &t.MC }},
	{Name: "dk", Constant: "DK", Of: func(t *MapTile) any { return &t.DK }},
}

// String is rows of a workgroup x keys of a tile.
func (t *MapTile) String() string { return fmt.Sprintf("%dx%d", t.BR, t.BC) }

// ChooseMapTile takes the first row that the device has the shared memory and the invocations for. No parameter overrides it.
func ChooseMapTile(c *kernel.Capabilities, p *attn.Problem, tn *kernel.Tuning) (t MapTile, err error) {
	why := "no shape is for the problem"
	for _, r := range c.Suiting(kernel.Asked(p, c.Lanes()), MapLabel) {
		mapFields.Read(&t, r)
		if why = t.Check(p.DType.Size(), &c.Facts.Limits); why == "" {
			tn.Took(r)
			return t, nil
		}
	}
	return MapTile{}, &kernel.Declined{Why: why}
}

// mostMapKeys is the most keys of a tile: an invocation has a bit for each in one word.
const mostMapKeys = 32

// Check gives the rule that a tile breaks on a device, for elements of so many bytes; "" when it breaks none.
func (t *MapTile) Check(elem int, l *vk.Limits) string {
	if why := checkPieces("", t.BR, t.BC, t.MR, t.MC, t.DK, elem); why != "" {
		return why
	}
	if t.BC != t.MR*t.MC || t.BC > mostMapKeys {
		return fmt.Sprintf("bc = %d must be mr·mc = %d, so that each row has an invocation, and at most %d", t.BC, t.MR*t.MC, mostMapKeys)
	}
	return kernel.CheckLimits(t.BR, t.shared(), l)
}

// sharedV4 is the length of the shader's array of vec4s.
func (t *MapTile) sharedV4() int { return max((t.BR+t.BC)*(t.DK/4|1), t.BR*(t.BC/4|1)) }

// shared is the shared memory of a workgroup in bytes: that array, and sums of the columns that have ended, which are 16 at most.
func (t *MapTile) shared() int { return 16*t.sharedV4() + 4*t.BR*(min(t.BR, 16)+1) }

// Constants are the specialization constants of scalar_map.
func (t *MapTile) Constants(p *attn.Problem, v kernel.MapVariant) kernel.Constants {
	return kernel.Constants{"WG": t.BR, "SHARED_V4": t.sharedV4()}.And(mapFields.Constants(t), kernel.MapConstants(p, v))
}

// MapLacks says what the device or the problem lacks for maps, "" when it can make them.
func MapLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if !p.Lists.None() {
		return "it reads no lists of keys"
	}
	if why := c.LacksArguments(&kernel.PassArgs().Map); why != "" {
		return why
	}
	return c.LacksScalar(p.DType)
}

// NewMap plans maps of a problem's weights in fp32 arithmetic: shaders/scalar/scalar_map.comp.
func NewMap(e *kernel.Env, problem *attn.Problem) (*pass.MapProgram, error) {
	p := kernel.MapProblem(problem)
	t, err := ChooseMapTile(&e.Caps, &p, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	return (&pass.Maps{Label: MapLabel, Module: kernel.CacheModule(MapLabel, &p) + "." + p.DType.Suffix(),
		Tile: t.String(), Tier: kernel.TierScalar, Rows: t.BR, Groups: 1, Keys: t.BC, Pace: kernel.ScalarPace,
		Trusted: true, Buffers: pass.Views, Constants: t.Constants}).Program(e, &p)
}
