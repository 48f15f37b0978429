package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// base is that of the rotary frequencies, the usual one.
const base = 10000

// fp32Off is how far arithmetic in fp32 may be off in a sum of two products, relative to the largest of a row.
const fp32Off = 1e-6

// turned is what rotary position embedding makes of rows whose position is at[b] + i, in float64.
func turned(x ref.Tensor, at []float32) (ref.Array, error) {
	cos, sin := ref.NewTensor(x.B, 1, x.N, x.D/2), ref.NewTensor(x.B, 1, x.N, x.D/2)
	for b := range x.B {
		for i := range x.N {
			for j := range x.D / 2 {
				angle := (float64(at[b]) + float64(i)) * math.Pow(base, -2*float64(j)/float64(x.D))
				cos.Row(b, 0, i)[j], sin.Row(b, 0, i)[j] = float32(math.Cos(angle)), float32(math.Sin(angle))
			}
		}
	}
	return ref.Rotary(x, cos, sin, false)
}

// offOf is how far rows that were turned may be off.
func offOf(row []float64) float64 {
	most := 0.0
	for _, v := range row {
		most = max(most, math.Abs(v))
	}
	return fp32Off * most
}

// cache is one of keys or of values: noise, into which rows are appended.
type cache struct {
	tensor *flash.Tensor
	was    []byte
	rows   []ref.Array // of each set
	turned bool
}

// appending is where an append writes.
type appending struct {
	Case
	at     [][]float32 // first position of each sequence, of each set
	table  []float32   // pages of each sequence, in no order
	caches [2]cache
}

// pages is the number of pages of a sequence.
func (a *appending) pages() int { return attn.CeilDiv(a.CacheRows, a.Page) }

// place is the byte at which a row of a sequence lies.
func (a *appending) place(b, h, position int) int {
	row := (b*a.Heads+h)*a.CacheRows + position
	if a.Page > 0 { // [pages, Page, Heads, ·]
		page := int(a.table[b*a.pages()+position/a.Page])
		row = (page*a.Page+position%a.Page)*a.Heads + h
	}
	return row * a.stored().Bytes(a.Dim)
}

// room is the shape of a cache.
func (a *appending) room() [4]int {
	if a.Page > 0 {
		return [4]int{a.Batch * a.pages(), a.Heads, a.Page, a.Dim}
	}
	return [4]int{a.Batch, a.Heads, a.CacheRows, a.Dim}
}

// prepareAppend appends the rows of each set behind those of the set before, from a position of each sequence's own.
func prepareAppend(ctx context.Context, w *work, c Case) error {
	a := &appending{Case: c}
	w.sets = min(w.sets, c.CacheRows/c.Rows)
	p := rows.AppendProblem{Batch: c.Batch, KeyHeads: c.Heads, Rows: c.Rows, CacheRows: c.CacheRows, HeadDim: c.Dim, DType: flash.F16,
		Rotary: &rows.Rotary{}}
	if c.Cache != "" {
		p.KeyType, p.ValueType = flash.DType(c.stored()), flash.DType(c.stored())
	}
	if c.Page > 0 {
		p.CacheRows, p.Pages = 0, flash.Pages{Size: c.Page, Count: c.Batch * a.pages(), PerSequence: a.pages()}
		for _, page := range w.rng.Perm(p.Pages.Count) {
			a.table = append(a.table, float32(page))
		}
	}
	plan, err := rows.PlanAppend(w.dev, p)
	if plan, err = own(w, plan, err); err != nil {
		return err
	}
	var table *flash.Tensor
	if c.Page > 0 {
		if table, err = w.ints(ctx, [4]int{1, 1, c.Batch, a.pages()}, a.table); err != nil {
			return err
		}
	}
	room := a.room()
	for i := range a.caches {
		a.caches[i].turned = i == 0
		a.caches[i].was = w.noise(room[0] * room[1] * room[2] * c.stored().Bytes(c.Dim))
		if a.caches[i].tensor, err = w.tensor(ctx, c.stored(), room, c.Page > 0, a.caches[i].was); err != nil {
			return err
		}
	}
	first := make([]int, c.Batch)
	for b := range first {
		first[b] = w.rng.IntN(c.CacheRows - w.sets*c.Rows + 1)
	}
	for range w.sets {
		at := make([]float32, c.Batch)
		for b := range at {
			at[b] = float32(first[b])
			first[b] += c.Rows
		}
		a.at = append(a.at, at)
		f := rows.Append{KeyCache: a.caches[0].tensor, ValueCache: a.caches[1].tensor, PageTable: table}
		if f.At, err = w.ints(ctx, [4]int{1, 1, 1, c.Batch}, at); err != nil {
			return err
		}
		for i, to := range []**flash.Tensor{&f.K, &f.V} {
			x := w.normal(c.Batch, c.Heads, c.Rows, c.Dim)
			if *to, err = w.tensor(ctx, attn.F16, [4]int{c.Batch, c.Heads, c.Rows, c.Dim}, true, inTokens(x)); err != nil {
				return err
			}
			cache := &a.caches[i]
			model := ref.Array{B: x.B, H: x.H, N: x.N, D: x.D, Data: ref.Widen(x.Data)}
			if cache.turned {
				if model, err = turned(x, at); err != nil {
					return err
				}
			}
			cache.rows = append(cache.rows, model)
		}
		run, err := plan.NewRecording()
		if run, err = own(w, run, err); err != nil {
			return err
		}
		if err := run.Append(f); err != nil {
			return err
		}
		w.runs = append(w.runs, run)
	}
	w.check = a.check
	return nil
}

// check compares the rows that were appended with the model, and every other byte of the caches with what it was.
func (a *appending) check(ctx context.Context) (agreement, error) {
	var found agreement
	size := a.stored().Bytes(a.Dim)
	for i, name := range []string{"keys", "values"} {
		cache := &a.caches[i]
		got := make([]byte, len(cache.was))
		if err := cache.tensor.DownloadBytes(ctx, got); err != nil {
			return found, err
		}
		for set, rows := range cache.rows {
			for b := range rows.B {
				for h := range rows.H {
					for n := range rows.N {
						want, at := rows.Row(b, h, n), a.place(b, h, int(a.at[set][b])+n)
						off := 0.0
						if cache.turned { // values are quantised to the bit as the host does
							off = offOf(want)
						}
						if err := found.row(a.stored(), got[at:at+size], want, off); err != nil {
							return found, fmt.Errorf("%s of sequence %d, head %d, position %d: %w", name, b, h, int(a.at[set][b])+n, err)
						}
						copy(got[at:at+size], cache.was[at:])
					}
				}
			}
		}
		if !bytes.Equal(got, cache.was) {
			return found, errors.New(name + ": a row that nothing was appended to has changed")
		}
	}
	return found, nil
}
