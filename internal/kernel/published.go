package kernel

import "github.com/vkattn/vkattn/internal/tiles"

// Layouts that drivers' sources and vendors' manuals describe: on devices that compile and do not run nothing can be probed.

// Held makes a layout from a rule: which element component e of a lane is.
func Held(lanes, components int, at func(lane, e int) Element) HeldElements {
	out := make(HeldElements, lanes)
	for lane := range out {
		for e := range components {
			out[lane] = append(out[lane], at(lane, e))
		}
	}
	return out
}

// Published is a layout of fragments of fp16 that are multiplied into fp32, as somebody describes it.
type Published struct {
	Name           string
	Family         string // of tiles, whose devices have it
	Shape          Fragment
	Accumulator, A HeldElements
}

// PublishedLayouts are those of families of GPUs with matrix units.
//
// NVIDIA: "Parallel Thread Execution ISA", matrix fragments of mma.m16n8k8 and .m16n8k16, of which its driver makes 16x16x16 (probed).
// AMD: Mesa's radv_nir_lower_cooperative_matrix, and the ISA manuals of RDNA3 (section 7.9) and RDNA4 (7.12): RDNA3 holds each element of
// an operand in every half (of 32) or quarter (of 64) of a subgroup; RDNA4 holds it once, and with 64 lanes rows 4 to 7 come behind rows 8
// to 11.
func PublishedLayouts() []Published {
	ampere16 := Held(32, 8, func(l, e int) Element { return Element{Row: l/4 + e/4*8, Col: 2*(l%4) + e%2 + e/2%2*8} })
	ampere8 := Held(32, 4, func(l, e int) Element { return Element{Row: l/4 + e/2*8, Col: 2*(l%4) + e%2} })
	quarter := func(lane int) int { return []int{0, 8, 4, 12}[lane/16] }
	all := []Published{
		{"RDNA3, 32 lanes", "rdna3", Fragment{16, 16, 16, 32},
			Held(32, 8, func(l, e int) Element { return Element{Row: 2*e + l/16, Col: l % 16} }),
			Held(32, 16, func(l, e int) Element { return Element{Row: l % 16, Col: e} })},
		{"RDNA3, 64 lanes", "rdna3", Fragment{16, 16, 16, 64},
			Held(64, 4, func(l, e int) Element { return Element{Row: 4*e + l/16, Col: l % 16} }),
			Held(64, 16, func(l, e int) Element { return Element{Row: l % 16, Col: e} })},
		{"RDNA4, 32 lanes", "rdna4", Fragment{16, 16, 16, 32},
			Held(32, 8, func(l, e int) Element { return Element{Row: 8*(l/16) + e, Col: l % 16} }),
			Held(32, 8, func(l, e int) Element { return Element{Row: l % 16, Col: 8*(l/16) + e} })},
		{"RDNA4, 64 lanes", "rdna4", Fragment{16, 16, 16, 64},
			Held(64, 4, func(l, e int) Element { return Element{Row: quarter(l) + e, Col: l % 16} }),
			Held(64, 4, func(l, e int) Element { return Element{Row: l % 16, Col: quarter(l) + e} })},
	}
	for _, family := range []string{"turing", "ampere", "hopper"} {
		all = append(all, Published{"16x16x16", family, Fragment{16, 16, 16, 32}, ampere16, ampere16},
			Published{"16x8x8", family, Fragment{16, 8, 8, 32}, ampere8, ampere8},
			Published{"16x8x16", family, Fragment{16, 8, 16, 32}, ampere8,
				Held(32, 8, func(l, e int) Element { return Element{Row: l/4 + e/2%2*8, Col: 2*(l%4) + e%2 + e/4*8} })})
	}
	return all
}

// publishedLayout is that of a device's fragments, as its family is described.
func (c *Capabilities) publishedLayout(s Fragment) FragmentLayout {
	family := tiles.For(c.TilesDevice()).Name // the built-in one, whatever tiles the user gives
	for _, p := range PublishedLayouts() {
		if p.Shape == s && p.Family == family {
			return DecodeLayout(s, p.Accumulator, p.A)
		}
	}
	return FragmentLayout{Form: FormShared, Why: "nobody describes it, and nothing runs that could be asked"}
}
