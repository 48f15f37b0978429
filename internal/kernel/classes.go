package kernel

import (
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/pipeline"
)

// Classes of blocks. A mask function is asked of every pair once, on the device, and what comes of it is kept as bits
// (shaders/include/mask.glsl says how they lie): kernels then leave out the blocks of which no pair is seen, and ask the function of none
// of those that are whole.

// classesLabel is the module, and the label of its dispatches.
const classesLabel = "mask_classes"

// ClassWords is the number of words that the classes of a problem's blocks take.
func ClassWords(p *attn.Problem) int { s := p.MaskShape(); return 2 * s[0] * MaskWords(s) }

// Classifier is shaders/common/mask_classes.comp for a problem's mask functions.
type Classifier struct {
	env     *Env
	problem attn.Problem // without what else goes with scores
	kernel  *pipeline.Kernel
	grid    Grid
}

// NewClassifier builds the kernel. The problem has classes.
func NewClassifier(e *Env, p *attn.Problem) (c *Classifier, err error) {
	c = &Classifier{env: e, problem: p.MasksAlone()}
	q := &c.problem
	s := q.MaskShape()
	groups := uint64(s[0]) * uint64(s[1]) * uint64(s[2])
	const operations = 64 // of a function, for each pair
	if c.grid, err = GridFor(e, groups, operations*float64(s[0])*float64(q.QueryLen)*float64(q.KeyLen), ScalarPace,
		NewTuning(nil)); err != nil {
		return nil, err
	}
	c.kernel, err = e.Build(classesLabel, ClassConstants(q), pipeline.KernelInfo{}, q.Code())
	return c, err
}

// ClassConstants are the specialization constants.
func ClassConstants(p *attn.Problem) Constants {
	return Constants{"BLOCK_ROWS": p.Blocks.Queries, "BLOCK_KEYS": p.Blocks.Keys, "BLOCK_PER_HEAD": BoolInt(p.Blocks.PerHead)}.
		And(MaskConstants(p), ScoreConstants(p))
}

// Run computes the classes from what the mask functions capture into words, and waits.
func (c *Classifier) Run(captured *[MostCaptured]pipeline.Binding, words pipeline.Binding) error {
	r := &Recorder{}
	return c.env.once(func(rec *pipeline.Recording) error {
		r.Rec = rec
		if err := rec.Fill(words, 0, classesLabel); err != nil {
			return err
		}
		r.Access[0] = pipeline.Access{Binding: words, Mode: pipeline.ReadWrite}
		r.BindScores(1, c.kernel, &c.problem, &Scores{Captured: *captured}, words)
		at := r.Push.Begin(&PassArgs().Forward, &c.problem, &Draw{})
		return r.Dispatch(c.kernel, r.Accesses(c.kernel), at, c.grid, c.grid.Total, classesLabel)
	}, 1+c.grid.Dispatches())
}

// trialClasses are the classes of the blocks of a trial, of each pair by itself.
func trialClasses(p *attn.Problem, in *ref.Problem) ([]byte, error) {
	sees, err := in.Sees.Bind(in.Captured)
	if err != nil {
		return nil, err
	}
	shape, b, bounds := p.MaskShape(), p.Blocks, p.Mask()
	n := shape[1] * shape[2]
	some, hides := make([]bool, shape[0]*n), make([]bool, shape[0]*n)
	for mask := range shape[0] {
		at := score.Point{}
		switch {
		case b.PerHead && b.PerBatch:
			at.Batch, at.Head = mask/p.Heads, mask%p.Heads
		case b.PerHead:
			at.Head = mask
		default:
			at.Batch = mask
		}
		for i := range p.QueryLen {
			for keys, j := bounds.KeysOf(i), 0; j < p.KeyLen; j++ {
				at.Query, at.Key, at.Position = i, j, i+p.KeyLen-p.QueryLen
				if keys.Has(j) {
					to := some
					if !sees.Allows(at) {
						to = hides
					}
					to[mask*n+i/b.Queries*shape[2]+j/b.Keys] = true
				}
			}
		}
	}
	whole := make([]bool, len(some))
	for i := range whole {
		whole[i] = some[i] && !hides[i]
	}
	return PackClasses(shape, some, whole), nil
}
