package result

import (
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// manyQueries is how many queries read a key before time goes into products more than into reading it, or nearly.
const manyQueries = 64

// Pages is the number of pages of a batch entry; 0: keys are in one piece.
func (c Case) Pages() int {
	if c.Page == 0 {
		return 0
	}
	return attn.CeilDiv(c.N, c.Page)
}

// paged says so for the library: pools of as many pages as are used.
func (c Case) paged() flash.Pages {
	if c.Page == 0 {
		return flash.Pages{}
	}
	return flash.Pages{Size: c.Page, Count: c.B * c.Pages(), PerSequence: c.Pages()}
}

// caches are types of keys and values by the names of files, beside that of q, which is "".
var caches = []struct {
	name  string
	dtype attn.DType
}{{"q8_0", attn.Q8_0}, {"q4_0", attn.Q4_0}, {"q4_1", attn.Q4_1}, {"q5_0", attn.Q5_0}, {"q5_1", attn.Q5_1}, {"iq4_nl", attn.IQ4_NL},
	{"fp8", attn.F8E4M3}, {"fp8_e5m2", attn.F8E5M2}}

// ParseCache reads a type of keys and values, or none, which is "" in files.
func ParseCache(s string) (string, error) {
	var names []string
	for _, t := range caches {
		names = append(names, t.name)
	}
	return parseName("cache", s, names)
}

// CacheType is the type of keys and values, given that of q.
func (c Case) CacheType(q attn.DType) attn.DType {
	for _, t := range caches {
		if t.name == c.Cache {
			return t.dtype
		}
	}
	return q
}

// readsKeys says that a case's time goes into reading keys and values: from a cache, or for few queries.
func (c Case) readsKeys() bool {
	return c.Page > 0 || c.Cache != "" || c.Nq < c.N && c.Nq*(c.H/c.Hkv) <= manyQueries
}
