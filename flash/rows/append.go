package rows

import (
	"context"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// AppendProblem writes new keys [Batch, KeyHeads, Rows, HeadDim] and values [Batch, KeyHeads, Rows, ValueDim] into caches of CacheRows
// rows:
//
//	KeyCache[b, h, at_b + i, :]   = K[b, h, i, :]       turned by Rotary, where there is one
//	ValueCache[b, h, at_b + i, :] = V[b, h, i, :]
//
// or, of a Circular cache, to row at_b + i modulo CacheRows. Rows outside the cache are not written, and other rows keep what they hold.
// The position by which row i is turned is at_b + i, unless Rotary.Positions says that they are given. ONNX calls this TensorScatter; at
// are its write_indices, of any sign here.
//
// With Counts, entry b has only the first counts_b rows, from 0 to Rows, so that one plan serves entries that have a chunk of a prompt and
// others that have one token. With Tokens instead of Rows, rows are packed, [1, KeyHeads, Tokens, ·] (memory [Tokens, KeyHeads, ·] is a
// tensor of NewTensorBNHD): token t is row Positions[t] of batch entry TokenBatch[t], and is not written where that is no entry of the
// batch, such as −1 for padding. That is the form of FlashInfer's append_paged_kv_cache. Which of several tokens of one entry and position
// is kept is not defined.
//
// With Pages the caches are pools: row p of entry b is row p mod Size of the page that the table has for b at p / Size. Rows beyond the
// table, and of pages whose number is outside of the pool, are not written.
//
// Quantised caches, of KeyType or ValueType, hold rows as [flash.DType] says, made of their fp32 values after the turn: blocks to the bit
// as ggml's, floats of a byte x/scale to nearest even. Blocks of numbers that are all below 2⁻¹¹⁸ are zeros, and those of Q4_1 and Q5_1
// whose numbers are less than that apart are all the least of them; what becomes of blocks with infinities or NaNs is undefined.
//
// With Heads > 0, queries Q [Batch, Heads, Rows, HeadDim], or [1, Heads, Tokens, HeadDim], are turned at the same positions in the same
// dispatch, those of rows that are not written too; rows that no entry has (Counts, TokenBatch) stay what they were.
type AppendProblem struct {
	Batch, KeyHeads    int
	Rows               int // of each entry, or with Counts the most; 0 with Tokens
	Tokens             int // packed rows in all; 0: there are Rows of each entry
	CacheRows          int // of each entry; 0 with Pages
	HeadDim, ValueDim  int // ValueDim 0 means HeadDim
	DType              flash.DType
	KeyType, ValueType flash.DType // of the caches, where they are quantised: flash.Q8_0 or a type after it; 0 means DType
	Pages              flash.Pages // the caches are pools of pages; zero: tensors
	Circular           bool        // the cache begins again where it ends; Rows ≤ CacheRows
	Counts             bool        // entries have numbers of rows of their own
	KeysOnly           bool        // there are no values
	Rotary             *Rotary     // nil: nothing is turned
	Heads              int         // of queries that are turned too, 0 for none
}

// Append names the tensors of new rows and the caches that they are written into. K, V, Q and RotatedQ, caches, Cos and Sin may have any
// strides whose last is 1, the others are in row-major order. What the problem does not have is nil.
type Append struct {
	K, V *flash.Tensor // inputs; V is nil with KeysOnly
	// [Batch, KeyHeads, CacheRows, ·] or pools [Pages.Count, KeyHeads, Pages.Size, ·]; they overlap no other tensor
	KeyCache, ValueCache *flash.Tensor
	At                   *flash.Tensor // first row that is written, for each batch entry: Int32 [1, 1, 1, Batch]; nil with Tokens
	Counts               *flash.Tensor // rows of each batch entry: Int32 [1, 1, 1, Batch]
	TokenBatch           *flash.Tensor // batch entry of each token: Int32 [1, 1, 1, Tokens]
	Cos, Sin, Positions  *flash.Tensor // as of Rotation; Positions are Int32 [1, 1, 1, Tokens] with Tokens, and always given then

	PageTable, PageStarts  *flash.Tensor // as Pages says
	KeyScales, ValueScales *flash.Tensor // of F8E4M3 and F8E5M2: F32 [1, 1, Batch, KeyHeads]

	Q, RotatedQ *flash.Tensor // queries, and where they go turned; RotatedQ nil: Q is turned in place
}

// PlanAppend builds the kernel that writes rows into caches. Errors are as of PlanRotate. Quantised caches need the device's
// storageBuffer16BitAccess whatever the type of the rows is.
//
// Which rows are moved sixteen columns at a time is as PlanRotate says, of ValueDim as of HeadDim; rows of quantised caches must begin at
// multiples of 4 bytes for it, of 8 if a row is a multiple of 8 bytes long.
func PlanAppend(d *flash.Device, p AppendProblem) (_ *Plan, err error) {
	defer within.During("PlanAppend", &err)
	if p.ValueDim == 0 && !p.KeysOnly {
		p.ValueDim = p.HeadDim
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	r := kernel.Rows{Batch: p.Batch, Heads: p.KeyHeads, Rows: p.Rows, Dim: p.HeadDim, ValueDim: p.ValueDim, DType: attn.DType(p.DType),
		KeyType: storedAs(p.KeyType, p.DType), ValueType: storedAs(p.ValueType, p.DType), Scattered: true, CacheRows: p.CacheRows,
		Circular: p.Circular,
		Pages:    attn.Pages(p.Pages), Counts: p.Counts, QueryHeads: p.Heads}
	if p.Tokens != 0 {
		r.Rows, r.Packed, r.Positions = p.Tokens, true, true
	}
	return plan(d, "Append", "AppendProblem", r, p.Rotary)
}

// storedAs is the type of a cache.
func storedAs(t, dtype flash.DType) attn.DType {
	if q := attn.DType(t); q.Quantised() {
		return q
	}
	return attn.DType(dtype)
}

// check checks what does not hold of a rotation too.
func (p *AppendProblem) check() error {
	paged := p.Pages != flash.Pages{}
	if paged {
		if err := within.Pages("AppendProblem", attn.Pages(p.Pages)); err != nil {
			return err
		}
	}
	switch {
	case p.KeysOnly && p.ValueDim != 0:
		return badArgument("AppendProblem.ValueDim", p.ValueDim, "must be 0 where there are keys only")
	case p.KeysOnly && p.ValueType != 0:
		return badArgument("AppendProblem.ValueType", p.ValueType, "must be 0 where there are keys only")
	case p.Tokens != 0 && p.Rows != 0:
		return badArgument("AppendProblem.Rows", p.Rows, "must be 0 where rows are Tokens")
	case p.Tokens != 0 && p.Counts:
		return badArgument("AppendProblem.Counts", p.Counts, "must be false where rows are Tokens")
	case paged && p.CacheRows != 0:
		return badArgument("AppendProblem.CacheRows", p.CacheRows, "must be 0 where caches are pools of pages")
	case paged && p.Circular:
		return badArgument("AppendProblem.Circular", p.Circular, "must be false where caches are pools of pages")
	case p.Pages.PerSequence > 0 && p.Pages.PerSequence < attn.CeilDiv(p.Rows, p.Pages.Size):
		return badArgument("AppendProblem.Pages.PerSequence", p.Pages.PerSequence, "must be at least %d, the pages of Rows = %d rows",
			attn.CeilDiv(p.Rows, p.Pages.Size), p.Rows)
	case !paged && (p.CacheRows < 1 || p.CacheRows > math.MaxInt32/2):
		return badArgument("AppendProblem.CacheRows", p.CacheRows, "must be from 1 to %d", math.MaxInt32/2)
	case p.Circular && p.Rows > p.CacheRows:
		return badArgument("AppendProblem.Rows", p.Rows, "must be at most CacheRows = %d of a circular cache", p.CacheRows)
	case p.Heads < 0 || p.Heads > math.MaxInt32/2:
		return badArgument("AppendProblem.Heads", p.Heads, "must be from 0 to %d", math.MaxInt32/2)
	case p.Heads > 0 && p.Rotary == nil:
		return badArgument("AppendProblem.Heads", p.Heads, "must be 0 without Rotary: there is nothing to do with queries")
	}
	if err := attn.CheckStored("AppendProblem.KeyType", attn.DType(p.KeyType), attn.DType(p.DType), "AppendProblem.HeadDim",
		p.HeadDim); err != nil {
		return within.Public(err)
	}
	return within.Public(attn.CheckStored("AppendProblem.ValueType", attn.DType(p.ValueType), attn.DType(p.DType), "AppendProblem.ValueDim",
		p.ValueDim))
}

// appendOperands lists the tensors of an append, in the order in which Recording.Append gives them.
func appendOperands(r *kernel.Rows, entries int, turning []attn.Operand, inPlace bool) []attn.Operand {
	values, queries := when(r.ValueDim > 0), when(r.QueryHeads > 0)
	room := [3]int{r.Batch, r.Heads, r.CacheRows}
	table := attn.Problem{Batch: r.Batch, KeyHeads: r.Heads, Pages: r.Pages}
	if !r.Pages.None() {
		room = [3]int{r.Pages.Count, r.Heads, r.Pages.Size}
	}
	q := shaped(entries, r.QueryHeads, r.Rows, r.Dim)
	ints := func(name string, in bool, of [4]int) attn.Operand {
		return attn.Operand{Name: name, Shape: shaped(of[:]...), Type: typed(attn.Int32), When: when(in), Statistics: true}
	}
	scales := func(name string, t attn.DType) attn.Operand {
		of := table.ScalesShape()
		return attn.Operand{Name: name, Shape: shaped(of[:]...), When: when(t.Float8()), Statistics: true}
	}
	each := table.LengthsShape()
	list := []attn.Operand{
		{Name: "K", Shape: shaped(entries, r.Heads, r.Rows, r.Dim)},
		{Name: "V", Shape: shaped(entries, r.Heads, r.Rows, r.ValueDim), When: values},
		{Name: "KeyCache", Shape: shaped(room[0], room[1], room[2], r.Dim), Type: typed(r.KeyType), Output: true},
		{Name: "ValueCache", Shape: shaped(room[0], room[1], room[2], r.ValueDim), Type: typed(r.ValueType), When: values, Output: true},
		ints("At", !r.Packed, each),
		ints("Counts", r.Counts, each),
		ints("TokenBatch", r.Packed, [4]int{1, 1, 1, r.Rows}),
		ints("PageTable", !r.Pages.None(), table.PageTableShape()),
		ints("PageStarts", r.Pages.Compressed(), table.PageStartsShape()),
		scales("KeyScales", r.KeyType), scales("ValueScales", r.ValueType),
		{Name: "Q", Shape: q, When: queries, Output: inPlace},
		{Name: "RotatedQ", Shape: q, When: queries, Output: !inPlace, Optional: inPlace},
	}
	return append(list, turning...)
}

// Append writes rows into caches and waits.
func (p *Plan) Append(ctx context.Context, t Append) (err error) {
	defer within.During("Append", &err)
	return p.run(ctx, func(r *Recording) error { return r.Append(t) })
}

// Append is Rotate for a plan of PlanAppend.
func (r *Recording) Append(t Append) (err error) {
	defer within.During("Recording.Append", &err)
	if err := r.is("Append"); err != nil {
		return err
	}
	r.given = [mostGiven]*flash.Tensor{t.K, t.V, t.KeyCache, t.ValueCache, t.At, t.Counts, t.TokenBatch, t.PageTable, t.PageStarts,
		t.KeyScales, t.ValueScales, t.Q, t.RotatedQ, t.Cos, t.Sin, t.Positions}
	r.inPlace = t.RotatedQ == nil
	return within.Rewrite(r.commands, r.placing)
}
