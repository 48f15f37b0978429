package pass

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// classesLabel is the module that makes classes of blocks, and the label of its dispatches.
const classesLabel = "mask_classes"

// Classifier is shaders/common/mask_classes.comp for a problem's mask functions.
type Classifier struct {
	env  *kernel.Env
	pass *ready
}

// NewClassifier builds the kernel. The problem has classes.
func NewClassifier(e *kernel.Env, problem *attn.Problem) (*Classifier, error) {
	p := problem.MasksAlone()
	constants := kernel.ClassConstants(&p)
	p = p.Dense() // positions are asked about, wherever their rows lie
	s := p.MaskShape()
	groups := uint64(s[0]) * uint64(s[1]) * uint64(s[2])
	const operations = 64 // of a function, for each pair
	grid, err := kernel.GridFor(e, groups, operations*float64(s[0])*float64(p.QueryLen)*float64(p.KeyLen), kernel.ScalarPace,
		kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	c := &Classifier{env: e}
	c.pass, err = (&Pass{Problem: &p, Scratch: []Scratch{{Name: "classes"}}, Stages: []Stage{{Label: classesLabel, Module: classesLabel,
		Constants: constants, Grid: grid, Args: Args{As: AsTable, Problem: &p}, Idle: "classes",
		Bind: []Bind{{Name: "Classes_", To: "classes", Mode: pipeline.ReadWrite}}}}}).build(e, nil)
	return c, err
}

// Run computes the classes from what the mask functions capture into words, and waits.
func (c *Classifier) Run(captured *[kernel.MostCaptured]pipeline.Binding, words pipeline.Binding) error {
	return c.env.Once(func(rec *pipeline.Recording) error {
		if err := rec.Fill(words, 0, classesLabel); err != nil {
			return err
		}
		return c.pass.record(&kernel.Recorder{Rec: rec, Scratch: []pipeline.Binding{words}},
			&tensors{forward: &kernel.Operands{Scores: kernel.Scores{Captured: *captured}}})
	}, 1+c.pass.Dispatches())
}
