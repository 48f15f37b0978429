package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// rows says where rows of a family's tensors lie, which of them count, and how keys and values are stored. Zero is a batch of dense
// tensors.
type rows struct {
	keyLengths, queryLengths bool
	packed                   bool
	page                     int // of keys and values, in rows
	compressed               bool
	keyType, valueType       flash.DType
}

// cached says that keys and values are those of a cache, which has no gradients.
func (o rows) cached() bool { return o.page > 0 || o.keyType != 0 || o.valueType != 0 }

// names are those of what there is, for people.
func (o rows) names() (out []string) {
	for _, x := range []struct {
		on   bool
		name string
	}{{o.keyLengths, "lengths of keys"}, {o.queryLengths, "lengths of queries"}, {o.packed, "packed sequences"},
		{o.page > 0, fmt.Sprintf("pages of %d", o.page)},
		{o.compressed, "compressed tables"}, {o.keyType != 0, fmt.Sprintf("%v keys", o.keyType)},
		{o.valueType != 0, fmt.Sprintf("%v values", o.valueType)}} {
		if x.on {
			out = append(out, x.name)
		}
	}
	return out
}

// drawRows has every second family of flash do more than a batch of dense tensors.
func (f *family) drawRows(r *rand.Rand) {
	o := &f.rows
	types := attn.QuantisedTypes()
	draw := func() flash.DType { return flash.DType(types[r.IntN(len(types))]) }
	what := r.IntN(16)
	switch what {
	case 0:
		o.keyLengths = true
	case 1:
		o.keyLengths, o.queryLengths = true, true
	case 2:
		o.packed = true
	case 3:
		o.packed, o.keyLengths, o.queryLengths = true, true, true
	case 4, 5, 7:
		o.page, o.compressed = 1<<r.IntN(8), what == 5
	}
	if what == 6 || what == 7 {
		o.keyType, o.valueType = draw(), draw()
		if what == 6 && r.IntN(2) == 0 {
			o.valueType = 0
		}
	}
	if *o == (rows{}) {
		return
	}
	delete(f.tuning, "parts") // which keys in a cache are left to some kernels for
	if o.cached() {
		f.gradients, f.accumulate = false, false
		f.backward = nil
	}
	for dim, t := range map[*int]flash.DType{&f.dim: o.keyType, &f.valueDim: o.valueType} {
		if block := attn.DType(t).Block(); t != 0 {
			*dim = attn.CeilDiv(*dim, block) * block
		}
	}
}

// place says so to a problem.
func (o rows) place(p *flash.Problem) {
	p.KeyLengths, p.QueryLengths, p.KeyType, p.ValueType = o.keyLengths, o.queryLengths, o.keyType, o.valueType
	if o.page > 0 {
		conformance.PagesFor(p, o.page, o.compressed)
	}
}

// apart runs cases of a family whose rows are more than those of dense tensors, from one to another. Each has a plan of its own: starts,
// and tables of pages, are as long as the case has it.
func (d *differential) apart(ctx context.Context, f *family, id ID, p flash.Problem, from, to int) error {
	for n := from; n < to && ctx.Err() == nil; n++ {
		id.Case = n
		c, more := f.draw(d.o.Seed, id, p)
		c.Tuning, c.Backward = f.tuning, f.backward
		r := c.Run(context.WithoutCancel(ctx), d.dev, f.target)
		if err := d.dev.Lost(); err != nil {
			return err
		}
		if r.Skipped != "" {
			return fmt.Errorf("%w: %s", flash.ErrUnsupported, r.Skipped)
		}
		d.tally.planned()
		name, _, _ := strings.Cut(r.Kernel, " ")
		d.tally.add(f, kernels{forward: name, backward: "behind " + name}, c, conformance.How{Accumulate: r.Accumulated}, &r,
			append(more, f.rows.names()...))
		if !r.Pass {
			d.failed(Failure{ID: id, Family: f.String(), Problem: c.Problem, Layouts: c.Layouts, Kinds: more, Why: r.Failure})
		}
	}
	return nil
}
