package kernel

import (
	"encoding/binary"

	"github.com/vkattn/vkattn/internal/attn"
)

// MaskWords is the number of words that a row of blocks takes.
func MaskWords(shape [3]int) int { return attn.CeilDiv(shape[2], 32) }

// PackMask lays bits out as shaders/include/mask.glsl reads them: every row of blocks in words of its own, the first block lowest.
func PackMask(shape [3]int, bits []bool) []byte {
	words := MaskWords(shape)
	out := make([]byte, 4*shape[0]*shape[1]*words)
	for i, bit := range bits {
		if bit {
			row, c := i/shape[2], i%shape[2]
			at := out[4*(row*words+c/32):]
			binary.NativeEndian.PutUint32(at, binary.NativeEndian.Uint32(at)|1<<(c%32))
		}
	}
	return out
}

// blockConstants are the specialization constants of shaders/include/mask.glsl.
func blockConstants(b attn.Blocks) Constants {
	return Constants{"BLOCK_MASK": BoolInt(!b.None()), "BLOCK_ROWS": max(b.Queries, 1), "BLOCK_KEYS": max(b.Keys, 1),
		"BLOCK_PER_HEAD": BoolInt(b.PerHead)}
}

// TrialBlock is the mask of a self-check: two blocks of three, the first not among them.
func TrialBlock(head, row, column int) bool { return (head+2*row+column)%3 != 0 }

// trialBlocks is the mask of a self-check, of the shape [heads, block rows, block columns].
func trialBlocks(shape [3]int) []bool {
	var bits []bool
	for h := range shape[0] {
		for r := range shape[1] {
			for c := range shape[2] {
				bits = append(bits, TrialBlock(h, r, c))
			}
		}
	}
	return bits
}

// GrowForBlocks makes the problem of a self-check long enough for some blocks, unless they are very large. Without masks keys stay a
// multiple of a block, which is one of the tile.
func GrowForBlocks(p *attn.Problem, masks bool) {
	const largest = 512
	if b := p.Blocks; !b.None() && b.Queries <= largest && b.Keys <= largest {
		p.QueryLen = max(p.QueryLen, b.Queries+5)
		if masks {
			p.KeyLen = max(p.KeyLen, 2*b.Keys+b.Keys/2+3)
		} else {
			p.KeyLen = 3 * b.Keys
		}
	}
}
