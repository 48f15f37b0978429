package kernel

import "github.com/vkattn/vkattn/internal/attn"

// Cache is the tensors that say where keys and values lie in a cache, and how: see attn.Pages.
type Cache struct {
	PageTable, PageStarts, LastPages Operand
	KeyScales, ValueScales           Operand
}

// list gives them in the order of attn.ForwardOperands, whose last they are.
func (c *Cache) list() [5]*Operand {
	return [...]*Operand{&c.PageTable, &c.PageStarts, &c.LastPages, &c.KeyScales, &c.ValueScales}
}

// CacheModule is the build of a forward kernel that a problem takes: where queries have lists of keys, one that reads those; where keys and
// values lie in a cache, one that reads those alone.
func CacheModule(name string, p *attn.Problem) string {
	if !p.Lists.None() {
		return name + "_lists"
	}
	if p.Cached() {
		return name + "_cache"
	}
	return name
}

// CacheConstants are the specialization constants of pages.glsl and quantised.glsl, which builds for caches have, and those for lists,
// which read keys and values from anywhere; nothing for others.
func CacheConstants(p *attn.Problem) Constants {
	if !p.Cached() && p.Lists.None() {
		return nil
	}
	return Constants{"PAGE": p.Pages.Size, "COMPRESSED": BoolInt(p.Pages.Compressed()), "K_TYPE": quantisedType(p.KeyType),
		"V_TYPE": quantisedType(p.ValueType)}
}

// quantisedType is the number that shaders/include/quantised_types.glsl has for a type of keys or values.
func quantisedType(t attn.DType) int {
	switch t {
	case attn.Q8_0:
		return 1
	case attn.Q4_0:
		return 2
	case attn.F8E4M3:
		return 3
	case attn.Q4_1:
		return 4
	case attn.Q5_0:
		return 5
	case attn.Q5_1:
		return 6
	case attn.IQ4_NL:
		return 7
	case attn.F8E5M2:
		return 8
	}
	return 0
}

// arguments are the further arguments, in the order of cacheNames.
func (c *Cache) arguments(p *attn.Problem) [7]uint32 {
	return [...]uint32{c.PageTable.Offset, uint32(p.PageTableShape()[3]), uint32(p.Pages.Count), c.PageStarts.Offset, c.LastPages.Offset,
		c.KeyScales.Offset, c.ValueScales.Offset}
}
