package result

import "fmt"

// Grid is a sweep: every combination of its axes is a case. An empty axis
// takes its default (Defaults). The embedding width, the heads and the head
// dimension are tied by EmbDim = Heads × HeadDim: two of the three are enough,
// and if all three are given every combination must agree.
type Grid struct {
	Impls    []string
	DTypes   []string
	Batch    []int
	Tokens   int // > 0: the batch is Tokens / Seq (the papers keep batch·seq at 16k)
	Heads    []int
	KVHeads  []int // 0 means as many as Heads
	QueryLen []int // 0 means as many as Seq
	Seq      []int
	HeadDim  []int
	ValueDim []int // 0 means the same as HeadDim
	EmbDim   []int
	Causal   []bool
	Window   []int    // 0 means none
	Scores   []string // score functions, as ParseScore spells them; "" is none
	Biases   []string // shapes, as ParseBias spells them; "" is none
	Masks    []string // besides the causal one and the window, as ParseMask spells them; "" is none
	Sinks    []bool
	MaxLogit []bool
	Listed   []int // keys of a query's list; 0 means no lists
	Dropout  []float64
	Packed   []string  // packed sequences, as ParsePacked spells them; "" is a batch
	Used     []string  // keys in use, as ParseUsed spells them; "" is all
	Pages    []int     // rows of a page of keys and values; 0 means none
	Caches   []string  // types of keys and values, as ParseCache spells them; "" is that of q
	Latent   []bool    // values that are the first columns of keys
	Density  []float64 // of blocksparse: shares of nonzero blocks; default 1
	Tunings  []Tuning  // of flash2, flash1 and blocksparse, the implementations whose tile this is about; "" is the library's choice

	Passes Passes // the zero value: forward
}

// Defaults are the reports' usual setting: batch 16, 32 heads of 64, fp16. Of
// axes that are not named, the value is zero, or what zero stands for.
var Defaults = Grid{
	Impls:   []string{"standard", "flash2"},
	DTypes:  []string{"float16"},
	Batch:   []int{16},
	Heads:   []int{32},
	Seq:     []int{512, 1024, 2048},
	HeadDim: []int{64},
	Causal:  []bool{false, true},
	Density: []float64{1},
}

type headShape struct{ heads, dim int }

// headShapes resolves EmbDim = Heads × HeadDim.
func (g Grid) headShapes() ([]headShape, error) {
	var out []headShape
	switch {
	case len(g.EmbDim) == 0:
		for _, h := range g.Heads {
			for _, d := range g.HeadDim {
				out = append(out, headShape{h, d})
			}
		}
	case len(g.Heads) > 0 && len(g.HeadDim) > 0:
		for _, e := range g.EmbDim {
			for _, h := range g.Heads {
				for _, d := range g.HeadDim {
					if h*d != e {
						return nil, fmt.Errorf("emb-dim is %d: it must be heads × head-dim, which is %d × %d = %d (leave one of the "+
							"three out)", e, h, d, h*d)
					}
					out = append(out, headShape{h, d})
				}
			}
		}
	case len(g.Heads) > 0:
		for _, e := range g.EmbDim {
			for _, h := range g.Heads {
				if h < 1 || e%h != 0 {
					return nil, fmt.Errorf("emb-dim is %d: it must be a multiple of heads, which is %d", e, h)
				}
				out = append(out, headShape{h, e / h})
			}
		}
	default:
		for _, e := range g.EmbDim {
			for _, d := range g.HeadDim {
				if d < 1 || e%d != 0 {
					return nil, fmt.Errorf("emb-dim is %d: it must be a multiple of head-dim, which is %d", e, d)
				}
				out = append(out, headShape{e / d, d})
			}
		}
	}
	return out, nil
}
