package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/vk"
)

// MapLabel is the module of maps, and the label of its dispatches.
const MapLabel = "matrix_map"

// MapTile is the shape of the work of matrix_map; shaders/matrix/matrix_map.comp says what each number means.
type MapTile struct {
	Fragment kernel.Fragment
	W        int // subgroups of a workgroup
	RM       int // row fragments of a subgroup
	BC, CK   int // keys of a tile, and of a chunk of it
}

// TileOfMaps is the tile on a device: on an H200 the fastest of those tried; smaller where shared memory is.
func TileOfMaps(c *kernel.Capabilities, f kernel.Fragment, dim int) (MapTile, error) {
	const most, fewer = 32, 16 // keys of a chunk
	if f.N > most {
		return MapTile{}, &kernel.Declined{Why: fmt.Sprintf("fragments of %d columns: it takes up to %d", f.N, most)}
	}
	t := MapTile{Fragment: f, W: 4, RM: 2, CK: most / f.N * f.N}
	t.BC = attn.CeilDiv(64, t.CK) * t.CK
	if dim > kernel.PlainDims { // a row of Q is most of the registers, and a row of K two KiB of shared memory
		t.RM, t.CK = 1, attn.CeilDiv(fewer, f.N)*f.N
		t.BC = t.CK
	}
	if c.Facts.Type == vk.DeviceCPU { // whose compiler takes a minute for that
		t = MapTile{Fragment: f, W: 2, RM: 1, BC: 2 * f.N, CK: f.N}
	}
	var why string
	for ; t.W > 0; t.W /= 2 {
		if why = kernel.CheckSubgroups(t.W, f.Lanes, t.shared(dim), c); why == "" {
			return t, nil
		}
		t.BC = t.CK
	}
	return t, &kernel.Declined{Why: why}
}

func (t *MapTile) rows() int            { return t.RM * t.Fragment.M }
func (t *MapTile) threads() int         { return t.W * t.Fragment.Lanes }
func (t *MapTile) keyPitch(dim int) int { return attn.CeilDiv(dim, t.Fragment.K)*t.Fragment.K/8 | 1 }

// staged is the length in 16 bytes of what keys, and before them rows of Q, pass through.
func (t *MapTile) staged(dim int) int { return max(t.BC, t.W*t.Fragment.M) * t.keyPitch(dim) }

// shared is the bytes of shared memory: that, and the columns of cells that have ended.
func (t *MapTile) shared(dim int) int {
	return 16*t.staged(dim) + 4*t.W*max(t.rows(), t.Fragment.Lanes)*kernel.MapEndedPitch
}

func (t *MapTile) String() string {
	return fmt.Sprintf("%dx%d %v", t.W*t.rows(), t.BC, t.Fragment)
}

// Constants are the specialization constants of matrix_map.
func (t *MapTile) Constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.MapVariant) kernel.Constants {
	f := &t.Fragment
	c := kernel.Constants{"WG": t.threads(), "BR": t.W * t.rows(), "BC": t.BC, "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "RM": t.RM,
		"CK":      t.CK,
		"K_PITCH": t.keyPitch(p.HeadDim), "KV_LEN": t.staged(p.HeadDim)}.And(kernel.MapConstants(p, v), l.Constants())
	delete(c, "K_TYPE") // the build for caches has keys in pages alone
	delete(c, "V_TYPE")
	return c
}

// MapLacks says what the device or the problem lacks for maps on matrices, "" when it can make them.
func MapLacks(c *kernel.Capabilities, p *attn.Problem) string {
	q := kernel.MapProblem(p)
	switch {
	case q.HeadDim > attn.MostDim:
		return fmt.Sprintf("head dimension %d: it takes up to %d", q.HeadDim, attn.MostDim)
	case q.Quantised():
		return "it reads no quantised keys"
	case !q.Lists.None():
		return "it reads no lists of keys"
	}
	if why := c.LacksArguments(&kernel.PassArgs().Map); why != "" {
		return why
	}
	return c.LacksMatrix(p.DType)
}

// NewMap plans maps of a problem's weights on cooperative matrices: shaders/matrix/matrix_map.comp.
func NewMap(e *kernel.Env, problem *attn.Problem) (*pass.MapProgram, error) {
	p := kernel.MapProblem(problem)
	fragment, layout, form, err := e.ChooseForm(p.DType, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	if form == kernel.FormShared {
		return nil, &kernel.Declined{Why: "nothing is known of where accumulators have their rows"}
	}
	t, err := TileOfMaps(&e.Caps, fragment, p.HeadDim)
	if err != nil {
		return nil, err
	}
	return (&pass.Maps{Label: MapLabel, Module: kernel.CacheModule(MapLabel, &p) + "." + p.DType.Suffix(),
		Tile: t.String(), Tier: kernel.TierMatrix,
		Rows: t.rows(), Groups: t.W, Keys: t.BC, Pace: kernel.MatrixPace, Buffers: mapBuffers, Made: fragment.Subgroups(),
		Constants: func(p *attn.Problem, v kernel.MapVariant) kernel.Constants { return t.Constants(p, &layout, v) }}).Program(e, &p)
}

// mapBuffers are the names of its buffers.
var mapBuffers = &pass.Buffers{Q: "Q4_", K: "K4_", LSE: "Lse_"}
