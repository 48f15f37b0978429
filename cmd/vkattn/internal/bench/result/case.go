package result

// Case is one row to measure: an attention problem and who computes it.
//
// Shapes: q [B, H, Nq, D], k [B, Hkv, N, D], v [B, Hkv, N, Dv]. Causal is
// bottom-right: query i may attend key j iff j ≤ i + N − Nq.
type Case struct {
	Impl  string // "flash2", "standard", …; a peer's: "fa2", "cudnn", …
	DType string // "float16", "bfloat16", "float32"

	B      int // batch
	H, Hkv int // query heads, key/value heads
	Nq, N  int // queries, keys
	D, Dv  int // head dimension of q and k, of v
	Causal bool
	Window int // how many keys before its position a query sees and, if not Causal, after it; 0: all

	// What becomes of scores, as the flags spell it; "" is nothing.
	Score string // function: alibi, t5, softcap=30
	Bias  string // shape of a tensor that is added: full, heads, batch, pairs, keys
	Mask  string // which keys a query sees besides: documents=8, prefix=256
	Sinks bool   // a logit without a value beside each head's scores

	MaxLogit bool // the largest score of each head is an output
	Listed   int  // keys of the list that each query has, of those it sees otherwise; 0: it has none

	Dropout float64 // probability

	// Where rows lie, and how.
	Packed string // sequences lie one behind the other, all N long (equal) or up to that (mixed); "": a batch
	Used   string // keys that each batch entry uses of its N: mixed, as packed sequences are long; "": all
	Page   int    // rows of a page of pools that keys and values lie in; 0: each batch entry has its own in one piece
	Cache  string // type of keys and values: as ParseCache has them; "": DType
	Latent bool   // v is the first Dv columns of k, where they lie

	// Density is the share of blocks that a block mask leaves, and like Impl no part of the shape: the same tensors are attended to
	// with and without. 0: there is no block mask.
	Density float64

	// Like Impl no part of the problem.
	Tuning Tuning // of the kernel; "": as the library chooses
}

// EmbDim is the width of the query embedding, heads × head dimension.
func (c Case) EmbDim() int { return c.H * c.D }
