package kernel

import (
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/vk"
)

// Packed sequences. Where they begin is known on the device alone, so that a kernel's blocks of rows are a table that the device makes
// before it (shaders/common/row_table.comp). As many workgroups as there may be blocks are dispatched, and those beyond its end return at
// once; or, where the caller insists, it has the number of workgroups too, and that is what is dispatched: nothing of it is read back, nor
// does the host wait. Counting costs more than it saves where rows are full (docs/notes/masks.md).

// RowBlocks is how a kernel cuts the rows of sequences, and what it is dispatched over.
type RowBlocks struct {
	Keys    bool // rows are keys, and the kernel walks over queries
	Rows    int  // of a block
	Columns int  // rows of a tile that it walks over
	Members int  // query heads that share a block; 0 is 1
	Parts   int  // workgroups of a block, one for each part of the keys; 0 is 1
	Grid    Grid // of the most workgroups that there may be
	Counted bool // workgroups are counted on the device
}

// IndirectParameter is the tuning parameter that has the workgroups of packed sequences counted on the device (1) or not (0).
const IndirectParameter = "indirect"

// IndirectRange is that of kernels that can do with packed sequences.
var IndirectRange = Parameters{IndirectParameter: OnOff}

// Planned completes how rows are cut by a kernel's dispatches, of so many workgroups for each part, which are as short as its operations at
// its pace ask for, and takes the choice whether workgroups are counted on the device; prefix is that of the kernel's tuning parameters.
// Counting is refused where there is nothing to count.
func (b RowBlocks) Planned(e *Env, p *attn.Problem, groups uint64, flops float64, at Pace, prefix string, t *Tuning) (_ RowBlocks,
	err error) {
	if b.Grid, err = GridFor(e, groups*uint64(max(b.Parts, 1)), flops, at, t); err != nil {
		return b, err
	}
	switch name := prefix + IndirectParameter; {
	case !p.Packed.None():
		b.Counted = t.Get(name, 0) != 0
	case t.Given[name] != 0:
		t.Effect[name] = t.Given[name]
		return b, t.Bad(name, "counts the workgroups of packed sequences: it must be 0 where Problem.Packed is zero")
	}
	return b, nil
}

// Small completes the same rows of a self-check, in one dispatch of so many workgroups for each part.
func (b RowBlocks) Small(groups uint64, counted bool) (_ RowBlocks, err error) {
	b.Counted = counted
	b.Grid, err = NewGrid(groups*uint64(max(b.Parts, 1)), 0)
	return b, err
}

// Over completes how rows are cut by the kernel's dispatches.
func (b RowBlocks) Over(g Grid, parts int, counted bool) RowBlocks {
	b.Grid, b.Parts, b.Counted = g, parts, counted
	return b
}

// Most is the number of blocks of a head, or of Members heads, that there may be of a problem; with lists of keys none has rows of two
// queries.
func (b RowBlocks) Most(p *attn.Problem) uint64 {
	if b.Keys {
		return p.KeyBlocks(b.Rows)
	}
	if !p.Lists.None() {
		return p.QueryRows() * uint64(attn.CeilDiv(p.Group(), b.Rows))
	}
	return p.QueryBlocks(b.Rows, max(b.Members, 1))
}

// RowTableLabel is the module, and the label of its dispatches.
const RowTableLabel = "row_table"

// RowTableConstants are its specialization constants, with workgroups of so many threads.
func RowTableConstants(p *attn.Problem, b RowBlocks, threads int) Constants {
	parts, step := 0, 0
	if b.Counted {
		parts = max(b.Parts, 1)
		if b.Grid.Dispatches() > 1 {
			step = int(b.Grid.Step)
		}
	}
	return Constants{"WG": threads, "ROWS": b.Rows, "COLUMNS": b.Columns, "MEMBERS": max(b.Members, 1), "OWN_KEYS": BoolInt(b.Keys),
		"PARTS": parts, "STEP": step, "MOST_GROUPS": MaxGroupsX,
		"USED_KEYS": BoolInt(p.KeyLengths), "USED_QUERIES": BoolInt(p.QueryLengths)}.And(MaskConstants(p), LengthConstants(p))
}

// RowTableThreads are the invocations of the workgroup that makes a table.
func (e *Env) RowTableThreads() int {
	const most = 1024 // the shader's
	l := &e.Caps.Facts.Limits
	return 1 << (bits.Len32(min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0], most)) - 1)
}

// TableBytes is the size of a table, which rows.glsl describes: eight words, eight for each sequence and one more, two for each block.
// Behind lie the workgroups of each dispatch, where they are counted.
func (b RowBlocks) TableBytes(p *attn.Problem) uint64 {
	size := b.CountsAt(p)
	if b.Counted {
		size += CountBytes * uint64(b.Grid.Dispatches())
	}
	return size
}

// CountBytes is what a table has of the workgroups of one dispatch.
const CountBytes = vk.DispatchIndirectBytes

// CountsAt is where in a table the workgroups of dispatches begin.
func (b RowBlocks) CountsAt(p *attn.Problem) uint64 {
	return 4 * (8 + 8*(uint64(p.Batch)+1) + 2*b.Most(p))
}
