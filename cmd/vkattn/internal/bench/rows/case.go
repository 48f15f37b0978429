// Package rows measures what moves rows beside attention: new keys and values appended to caches, rotary position embedding, and parts
// merged. All of it is bound by memory, so that the figure to look at is the share of the bandwidth of copying. What a run writes is
// compared with a model on the host before any run is timed.
package rows

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
)

// What is measured.
const (
	Append = "append" // keys, turned by their positions, and values of each sequence into its cache
	Rotate = "rotate" // queries turned by their positions
	Merge  = "merge"  // attention over parts of the keys
)

// Operations lists them.
var Operations = []string{Append, Rotate, Merge}

// Case is one setting. Rows are fp16.
type Case struct {
	Operation string `json:"op"`
	Batch     int    `json:"B"`
	Heads     int    `json:"H"`    // of keys in an append, else of queries
	Rows      int    `json:"rows"` // of each sequence and head
	Dim       int    `json:"D"`
	DType     string `json:"dtype"` // of rows: float16

	CacheRows int    `json:"cache_rows,omitempty"` // of each sequence
	Cache     string `json:"cache,omitempty"`      // what rows are stored as: q8_0 or q4_0; "": as they are
	Page      int    `json:"page,omitempty"`       // rows of a page; 0: each sequence has its cache in one piece

	Parts   int  `json:"parts,omitempty"`
	Stacked bool `json:"stacked,omitempty"` // the parts lie in one tensor, not in one each
}

// sizes of the cases: a batch of decoding and of chunks of prompts on a GPU, with caches of 128 MiB, which any device binds; a fraction of
// it on a CPU.
type sizes struct{ batch, keyHeads, heads, dim, cacheRows, chunk int }

var (
	gpuSizes = sizes{batch: 64, keyHeads: 8, heads: 32, dim: 128, cacheRows: 1024, chunk: 64}
	cpuSizes = sizes{batch: 4, keyHeads: 2, heads: 4, dim: 64, cacheRows: 256, chunk: 8}
)

// Cases are the settings of those operations, in order, for a GPU or a CPU.
func Cases(cpu bool, operations []string) (all []Case) {
	s := gpuSizes
	if cpu {
		s = cpuSizes
	}
	wanted := func(operation string) bool { return slices.Contains(operations, operation) }
	each := Case{Batch: s.batch, Dim: s.dim, DType: attn.F16.String()}
	for _, rows := range []int{1, s.chunk} {
		for _, cache := range []string{"", attn.Q8_0.String(), attn.Q4_0.String()} {
			for _, page := range []int{0, 16} {
				c := each
				c.Operation, c.Heads, c.Rows, c.CacheRows, c.Cache, c.Page = Append, s.keyHeads, rows, s.cacheRows, cache, page
				if wanted(Append) {
					all = append(all, c)
				}
			}
		}
	}
	for _, rows := range []int{1, s.chunk} {
		c := each
		c.Operation, c.Heads, c.Rows = Rotate, s.heads, rows
		if wanted(Rotate) {
			all = append(all, c)
		}
	}
	for _, parts := range []int{2, 8, 64} {
		for _, stacked := range []bool{true, false} {
			c := each
			c.Operation, c.Heads, c.Rows, c.Parts, c.Stacked = Merge, s.heads, 1, parts, stacked
			if wanted(Merge) {
				all = append(all, c)
			}
		}
	}
	return all
}

// ParseOperations reads a list of operations.
func ParseOperations(list []string) ([]string, error) {
	for _, name := range list {
		if !slices.Contains(Operations, name) {
			last := len(Operations) - 1
			return nil, fmt.Errorf("op %q: it must be %s or %s", name, strings.Join(Operations[:last], ", "), Operations[last])
		}
	}
	return list, nil
}

// Shape tells the rows: batch × heads × rows × head dimension.
func (c Case) Shape() string {
	return fmt.Sprintf("%d × %d × %d × %d", c.Batch, c.Heads, c.Rows, c.Dim)
}

// How tells where rows go, or where they come from.
func (c Case) How() string {
	switch c.Operation {
	case Merge:
		if c.Stacked {
			return fmt.Sprintf("%d parts, stacked", c.Parts)
		}
		return fmt.Sprintf("%d parts", c.Parts)
	case Append:
		stored := c.Cache
		if stored == "" {
			stored = c.DType
		}
		if c.Page > 0 {
			return fmt.Sprintf("%s, pages of %d", stored, c.Page)
		}
		return stored
	}
	return c.DType
}

// String is the case in a line.
func (c Case) String() string { return c.Operation + " " + c.Shape() + ", " + c.How() }

// stored is what rows are stored as in a cache.
func (c Case) stored() attn.DType {
	for _, t := range []attn.DType{attn.Q8_0, attn.Q4_0} {
		if c.Cache == t.String() {
			return t
		}
	}
	return attn.F16
}

// count is the number of rows of a tensor of the case.
func (c Case) count() int { return c.Batch * c.Heads * c.Rows }

// Bytes is what is read and written at least: rows and statistics, as they are stored, and the numbers that say where each sequence goes
// on, each once. Tables of pages and of frequencies are left out.
func (c Case) Bytes() float64 {
	row, word := attn.F16.Bytes(c.Dim), attn.Int32.Size()
	switch c.Operation {
	case Append:
		return float64(2*c.count()*(row+c.stored().Bytes(c.Dim)) + c.Batch*word)
	case Rotate:
		return float64(2*c.count()*row + c.Batch*c.Rows*word)
	}
	return float64((c.Parts + 1) * c.count() * (row + attn.F32.Size()))
}
