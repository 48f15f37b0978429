package kernel

import (
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Packed sequences. Where they begin is known on the device alone, so that a kernel's blocks of rows are a table that the device makes before it
// (shaders/common/row_table.comp): as many workgroups are dispatched as there may be blocks, and those beyond the table's end at once.

// RowBlocks is how a kernel cuts the rows of sequences.
type RowBlocks struct {
	Keys    bool // rows are keys, and the kernel walks over queries
	Rows    int  // of a block
	Columns int  // rows of a tile that it walks over
	Members int  // query heads that share a block; 0 is 1
}

// Most is the number of blocks of a head, or of Members heads, that there may be of a problem.
func (b RowBlocks) Most(p *attn.Problem) uint64 {
	if b.Keys {
		return p.KeyBlocks(b.Rows)
	}
	return p.QueryBlocks(b.Rows, max(b.Members, 1))
}

// RowTables make the tables of a problem's sequences and of its kernels' blocks, one for each way to cut rows; none where rows are a batch.
type RowTables []*rowTable

// rowTable makes one of them.
type rowTable struct {
	problem attn.Problem
	blocks  RowBlocks
	kernel  *pipeline.Kernel
}

// rowTableLabel is the module, and the label of its dispatches.
const rowTableLabel = "row_table"

// NewRowTables builds them.
func NewRowTables(e *Env, p *attn.Problem, all ...RowBlocks) (tables RowTables, err error) {
	if p.Packed.None() {
		return nil, nil
	}
	const most = 1024 // the shader's
	threads := min(e.Caps.Facts.Limits.MaxWorkgroupInvocations, e.Caps.Facts.Limits.MaxWorkgroupSize[0], most)
	for _, b := range all {
		t := &rowTable{problem: *p, blocks: b}
		if t.kernel, err = e.Build(rowTableLabel, RowTableConstants(p, b, 1<<(bits.Len32(threads)-1)), pipeline.KernelInfo{}, p.Code()); err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, e.Caps.Holds(tables.Scratch())
}

// RowTableConstants are its specialization constants, with workgroups of so many threads.
func RowTableConstants(p *attn.Problem, b RowBlocks, threads int) Constants {
	return Constants{"WG": threads, "ROWS": b.Rows, "COLUMNS": b.Columns, "MEMBERS": max(b.Members, 1), "OWN_KEYS": BoolInt(b.Keys),
		"USED_KEYS": BoolInt(p.KeyLengths), "USED_QUERIES": BoolInt(p.QueryLengths)}.And(MaskConstants(p), LengthConstants(p))
}

// Scratch is the tables' memory, which rows.glsl describes: eight words, eight for each sequence and one more, two for each block.
func (all RowTables) Scratch() (sizes []uint64) {
	for _, t := range all {
		sizes = append(sizes, 4*(8+8*(uint64(t.problem.Batch)+1)+2*t.blocks.Most(&t.problem)))
	}
	return sizes
}

// Dispatches is the number of their dispatches.
func (all RowTables) Dispatches() int { return len(all) }

// Record writes the dispatches that make the tables in the first of the given buffers of workspace, and lets kernels find the first table.
func (all RowTables) Record(r *Recorder, s *Scores, to []pipeline.Binding) error {
	for i, t := range all {
		if err := t.record(r, s, to[i]); err != nil {
			return err
		}
	}
	all.Take(r, to, 0)
	return nil
}

// Take lets kernels from now on find table i of those that Record made there.
func (all RowTables) Take(r *Recorder, from []pipeline.Binding, i int) {
	if len(all) > 0 {
		r.Rows = from[i]
	}
}

func (t *rowTable) record(r *Recorder, s *Scores, to pipeline.Binding) error {
	p := &t.problem
	for i, x := range [...]struct {
		in bool
		o  *Operand
	}{{p.Packed.Queries > 0, &s.QueryStarts}, {p.Packed.Keys > 0, &s.KeyStarts}, {p.KeyLengths, &s.KeyLengths}, {p.QueryLengths, &s.QueryLengths}} {
		r.Access[i] = pipeline.Access{Binding: to, Mode: pipeline.Unused}
		if x.in {
			r.Access[i] = pipeline.Access{Binding: x.o.Binding, Mode: pipeline.Read}
		}
	}
	r.bindMore(4, p, s)
	r.Access[5] = pipeline.Access{Binding: to, Mode: pipeline.ReadWrite}
	at := r.Push.Begin(&PassArgs().Forward, p, &Draw{})
	r.Push.Set(at+4, 1)
	return r.Rec.Dispatch(t.kernel, r.Access[:6], r.Push.Bytes(), [3]uint32{1, 1, 1}, rowTableLabel)
}
