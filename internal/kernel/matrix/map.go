package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
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

// TileOfMaps is the tile on a device: as many row fragments as give each invocation of a subgroup a row, and two at least, which halves the reads of
// keys from shared memory; fewer subgroups where shared memory is small.
func TileOfMaps(c *kernel.Capabilities, f kernel.Fragment, dim int) (MapTile, error) {
	whole := max(f.N, f.K, 8)
	t := MapTile{Fragment: f, W: 4, RM: 2, CK: attn.CeilDiv(32, whole) * whole}
	for t.RM*f.M%f.Lanes != 0 && t.RM < 16 {
		t.RM++
	}
	if t.RM*f.M%f.Lanes != 0 {
		return t, &kernel.Declined{Why: fmt.Sprintf("fragments of %d rows do not give each of %d invocations a row", f.M, f.Lanes)}
	}
	t.BC = attn.CeilDiv(64, t.CK) * t.CK
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
func (t *MapTile) scorePitch() int      { return t.CK/4 | 1 }

// shared is the bytes of shared memory: keys, scores, and the columns of cells that have ended.
func (t *MapTile) shared(dim int) int {
	return 16*(t.BC*t.keyPitch(dim)+t.W*t.rows()*t.scorePitch()) + 4*t.W*t.rows()*kernel.MapEndedPitch
}

func (t *MapTile) String() string {
	return fmt.Sprintf("%dx%d %v", t.W*t.rows(), t.BC, t.Fragment)
}

// Constants are the specialization constants of matrix_map.
func (t *MapTile) Constants(p *attn.Problem, v kernel.MapVariant) kernel.Constants {
	f := &t.Fragment
	return kernel.Constants{"WG": t.threads(), "BR": t.W * t.rows(), "BC": t.BC, "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "RM": t.RM, "CK": t.CK,
		"K_PITCH": t.keyPitch(p.HeadDim), "KV_LEN": t.BC * t.keyPitch(p.HeadDim), "X_LEN": t.W * t.rows() * t.scorePitch()}.And(kernel.MapConstants(p, v))
}

// MapLacks says what the device or the problem lacks for maps on matrices, "" when it can make them.
func MapLacks(c *kernel.Capabilities, p *attn.Problem) string {
	q := kernel.MapProblem(p)
	switch {
	case q.HeadDim > kernel.PlainDims:
		return fmt.Sprintf("head dimension %d: it takes up to %d", q.HeadDim, kernel.PlainDims)
	case q.Cached():
		return "it reads no keys in pages, nor quantised ones"
	}
	if why := c.LacksArguments(&kernel.PassArgs().Map); why != "" {
		return why
	}
	return c.LacksMatrix(p.DType)
}

// NewMap plans maps of a problem's weights on cooperative matrices: shaders/matrix/matrix_map.comp.
func NewMap(e *kernel.Env, problem *attn.Problem) (*kernel.MapProgram, error) {
	p := kernel.MapProblem(problem)
	fragment, err := e.Caps.ChooseFragment(p.DType, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	t, err := TileOfMaps(&e.Caps, fragment, p.HeadDim)
	if err != nil {
		return nil, err
	}
	info := pipeline.KernelInfo{SubgroupSize: uint32(fragment.Lanes), FullSubgroups: true}
	return kernel.MapsOf(&kernel.MapProgram{Env: e, Problem: p, Module: MapLabel + "." + p.DType.Suffix(), Label: MapLabel, Named: t.String(),
		Tier: kernel.TierMatrix, Rows: t.rows(), Groups: t.W, Keys: t.BC, Pace: kernel.MatrixPace,
		Describe: func(v kernel.MapVariant) (kernel.Constants, pipeline.KernelInfo) { return t.Constants(&p, v), info }})
}
