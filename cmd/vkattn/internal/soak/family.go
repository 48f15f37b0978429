package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/maskdraw"
)

// family is a set of problems that share compiled pipelines: what a family fixes is what kernels are specialized for. Compiling costs as
// much as hundreds of problems, so that a family has to have thousands.
type family struct {
	index         int
	target        conformance.Target
	dtype         flash.DType
	dim, valueDim int
	causal        bool
	aligned       bool // rows of all tensors on 16 bytes, where the dimensions allow it
	grouped       bool // query heads share key heads
	drops         bool
	lse           bool
	gradients     bool
	accumulate    bool
	blocks        flash.Blocks       // of a block mask, or
	sees          score.MaskFunction // classed by this
	rows          rows
	tuning        map[string]int // of the forward kernel, besides the target's
	backward      map[string]int // of the backward kernels
}

func (f *family) String() string {
	var flags []string
	for _, flag := range []struct {
		on   bool
		name string
	}{{f.causal, "causal"}, {f.aligned, "aligned"}, {f.grouped, "grouped"}, {f.drops, "dropout"}, {!f.lse, "no lse"},
		{f.gradients, "gradients"}, {f.accumulate, "accumulated"}} {
		if flag.on {
			flags = append(flags, flag.name)
		}
	}
	switch {
	case !f.sees.Everything():
		flags = append(flags, fmt.Sprintf("classes %v of %v", f.blocks, f.sees))
	case f.blocks != (flash.Blocks{}):
		flags = append(flags, fmt.Sprintf("blocks %v", f.blocks))
	}
	flags = append(flags, f.rows.names()...)
	for _, t := range []map[string]int{f.tuning, f.backward} {
		if len(t) > 0 {
			flags = append(flags, strings.TrimPrefix(fmt.Sprint(t), "map"))
		}
	}
	return fmt.Sprintf("%v %v D%d Dv%d %s", f.target, f.dtype, f.dim, f.valueDim, strings.Join(flags, ", "))
}

// weights says how many families a target has for each of another's: what people run most is looked at most.
func weight(t conformance.Target) int {
	switch {
	case t.Family() == "flash2" && t.Tier == flash.TierMatrix && t.Tuning["form"] > 1:
		return 2
	case t.Family() == "flash2":
		return 4
	case t.Tuning["form"] > 1:
		return 1
	}
	return 2
}

// dims are head dimensions: whole fragments and rows of 16 bytes, and what is neither.
var dims = []int{64, 128, 32, 16, 80, 40, 96, 8, 256, 72, 33, 192, 64, 29, 128, 48, 1, 112, 160, 65, 24, 127, 7, 224}

// smallDims are those where matrix kernels take seconds to compile.
var smallDims = []int{16, 32, 8, 29, 24, 33}

// families draws n of them. The targets take turns, and for each of them storage types, head dimensions and features do, so that a few
// families hold some of everything. A CPU driver is given small dimensions with matrices.
func families(targets []conformance.Target, n int, seed uint64, cpu bool) []*family {
	var turns []int // indices of targets
	for round := 0; ; round++ {
		before := len(turns)
		for i, t := range targets {
			if weight(t) > round {
				turns = append(turns, i)
			}
		}
		if len(turns) == before {
			break
		}
	}
	seen := make([]int, len(targets))
	var out []*family
	for i := range n {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		at := turns[i%len(turns)]
		turn := seen[at]
		seen[at]++
		out = append(out, drawFamily(i, targets[at], turn, r, cpu))
	}
	return out
}

func drawFamily(index int, t conformance.Target, turn int, r *rand.Rand, cpu bool) *family {
	one := func(in int) bool { return r.IntN(in) == 0 }
	types := t.DTypes()
	f := &family{index: index, target: t, dtype: types[turn%len(types)]}
	from := dims
	if cpu && t.Tier == flash.TierMatrix {
		from = smallDims
	}
	// Storage types take turns first, so dimensions move on once for each of them; the target's index keeps targets apart.
	f.dim = from[(turn/len(types)+index)%len(from)]
	f.valueDim = f.dim
	if one(4) {
		f.valueDim = from[r.IntN(len(from))]
	}
	// scalar_decode has no dropout
	f.causal, f.aligned, f.grouped, f.drops, f.lse = one(2), !one(3), one(2), one(4) && !f.decodes(), !one(8)
	f.tuning, f.backward = map[string]int{}, map[string]int{}
	f.gradients = f.lse && !one(3) && t.HasBackward()
	f.accumulate = f.gradients && one(4)
	if t.Parts() && one(3) {
		f.tuning["parts"] = 2 + r.IntN(4)
	}
	if one(8) {
		f.tuning["max_groups"] = 1 + r.IntN(5)
	}
	if t.Implementation == flash.Flash && t.Tier == flash.TierMatrix && f.gradients {
		if form, ok := t.Tuning["form"]; ok {
			f.backward["form"] = form
		}
	}
	if t.MasksBlocks() {
		sizes := [][2]int{{16, 16}, {32, 32}, {64, 64}, {64, 32}, {8, 24}, {5, 7}, {1, 16}, {33, 10}}
		size := sizes[r.IntN(len(sizes))]
		f.blocks = flash.Blocks{Queries: size[0], Keys: size[1], PerHead: one(2), PerBatch: one(3)}
		if one(3) {
			f.sees, _ = score.NewMask(maskdraw.Condition(r)) // the same for all of the family: it is compiled
		}
	} else if t.Implementation == flash.Flash {
		f.drawRows(r)
	}
	return f
}
