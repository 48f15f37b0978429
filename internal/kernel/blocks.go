package kernel

import (
	"encoding/binary"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// MaskWords is the number of words that one of the masks takes; with classes each takes twice as many.
func MaskWords(shape [3]int) int {
	return shape[1]*attn.CeilDiv(shape[2], 32) + shape[2]*attn.CeilDiv(shape[1], 32)
}

// PackMask lays bits out as shaders/include/mask.glsl reads them: of each mask every row of blocks in words of its own, the first block
// lowest, and behind them every column, which is what a walk over queries looks for.
func PackMask(shape [3]int, bits []bool) []byte {
	rows, columns := shape[1], shape[2]
	across, down, words := attn.CeilDiv(columns, 32), attn.CeilDiv(rows, 32), MaskWords(shape)
	out := make([]byte, 4*shape[0]*words)
	set := func(word, bit int) {
		at := out[4*word:]
		binary.NativeEndian.PutUint32(at, binary.NativeEndian.Uint32(at)|1<<bit)
	}
	for i, bit := range bits {
		if bit {
			mask, r, c := i/columns/rows*words, i/columns%rows, i%columns
			set(mask+r*across+c/32, c%32)
			set(mask+rows*across+c*down+r/32, r%32)
		}
	}
	return out
}

// UnpackMask gives the bits back that PackMask laid out.
func UnpackMask(shape [3]int, packed []byte) []bool {
	rows, columns := shape[1], shape[2]
	across, words := attn.CeilDiv(columns, 32), MaskWords(shape)
	bits := make([]bool, shape[0]*rows*columns)
	for i := range bits {
		r, c := i/columns%rows, i%columns
		word := packed[4*(i/columns/rows*words+r*across+c/32):]
		bits[i] = binary.NativeEndian.Uint32(word)>>(c%32)&1 != 0
	}
	return bits
}

// PackClasses lays the classes of blocks out: of each mask the bits of blocks of which some pair is seen, and behind them those of whole
// ones.
func PackClasses(shape [3]int, some, whole []bool) (out []byte) {
	one, n := [3]int{1, shape[1], shape[2]}, shape[1]*shape[2]
	for i := range shape[0] {
		out = append(append(out, PackMask(one, some[i*n:(i+1)*n])...), PackMask(one, whole[i*n:(i+1)*n])...)
	}
	return out
}

// BlockConstants are the specialization constants of shaders/include/mask.glsl.
func BlockConstants(b attn.Blocks) Constants {
	return Constants{"BLOCK_MASK": BoolInt(!b.None()), "BLOCK_ROWS": max(b.Queries, 1), "BLOCK_KEYS": max(b.Keys, 1),
		"BLOCK_PER_HEAD": BoolInt(b.PerHead), "BLOCK_PER_BATCH": BoolInt(b.PerBatch), "BLOCK_CLASSES": BoolInt(b.Classed)}
}

// SelfCheckBlock is the mask of a self-check: two blocks of three, the first not among them.
func SelfCheckBlock(head, row, column int) bool { return (head+2*row+column)%3 != 0 }

// selfCheckBlocks is the mask of a self-check, of the shape [masks, block rows, block columns].
func selfCheckBlocks(shape [3]int) []bool {
	var bits []bool
	for h := range shape[0] {
		for r := range shape[1] {
			for c := range shape[2] {
				bits = append(bits, SelfCheckBlock(h, r, c))
			}
		}
	}
	return bits
}

// RefBlocks is a block mask of a problem in the words of the oracle.
func RefBlocks(p *attn.Problem, bits []bool) *ref.BlockMask {
	shape, batch := p.MaskShape(), 1
	if p.Blocks.PerBatch {
		batch = p.Batch
	}
	return &ref.BlockMask{B: batch, H: shape[0] / batch, Rows: shape[1], Cols: shape[2], BQ: p.Blocks.Queries, BK: p.Blocks.Keys,
		Data: bits}
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
