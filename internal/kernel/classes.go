package kernel

import (
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Classes of blocks. A mask function is asked of every pair once, on the device, and what comes of it is kept as bits
// (shaders/include/mask.glsl says how they lie): kernels then leave out the blocks of which no pair is seen, and ask the function of none
// of those that are whole.

// ClassWords is the number of words that the classes of a problem's blocks take.
func ClassWords(p *attn.Problem) int { s := p.MaskShape(); return 2 * s[0] * MaskWords(s) }

// ClassConstants are the specialization constants.
func ClassConstants(p *attn.Problem) Constants {
	return Constants{"BLOCK_ROWS": p.Blocks.Queries, "BLOCK_KEYS": p.Blocks.Keys, "BLOCK_PER_HEAD": BoolInt(p.Blocks.PerHead)}.
		And(boundConstants(p.ClassMask()), ScoreConstants(p))
}

// selfCheckClasses are the classes of the blocks of a self-check, of each pair by itself.
func selfCheckClasses(p *attn.Problem, in *ref.Problem) ([]byte, error) {
	sees, err := in.Sees.Bind(in.Captured)
	if err != nil {
		return nil, err
	}
	shape, b, bounds := p.MaskShape(), p.Blocks, p.ClassMask()
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
			for j := range p.KeyLen {
				at.Query, at.Key, at.Position = i, j, i+p.KeyLen-p.QueryLen
				if bounds.Allows(i, j) {
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
