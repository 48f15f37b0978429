package bench

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/attn"
)

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

	Dropout float64 // probability

	// Where rows lie, and how.
	Packed string // sequences lie one behind the other, all N long (equal) or up to that (mixed); "": a batch
	Used   string // keys that each batch entry uses of its N: mixed, as packed sequences are long; "": all
	Page   int    // rows of a page of pools that keys and values lie in; 0: each batch entry has its own in one piece
	Cache  string // type of keys and values: q8_0, q4_0, fp8; "": DType

	// Density is the share of blocks that a block mask leaves, and like Impl no part of the shape: the same tensors are attended to
	// with and without. 0: there is no block mask.
	Density float64

	// Like Impl no part of the problem.
	Tuning Tuning // of the kernel; "": as the library chooses
}

// Shape is the case without its implementation, block mask, tuning and order of sums: rows of
// equal shape are compared with one another.
func (c Case) Shape() Case {
	for _, a := range ownLoops {
		a.clear(&c)
	}
	return c
}

// EmbDim is the width of the query embedding, heads × head dimension.
func (c Case) EmbDim() int { return c.H * c.D }

// Problem is the case as the library takes it.
func (c Case) Problem() (flash.Problem, error) {
	dtype, err := flash.ParseDType(c.DType)
	if err != nil {
		return flash.Problem{}, err
	}
	p := flash.Problem{Batch: c.B, Heads: c.H, KeyHeads: c.Hkv, QueryLen: c.Nq, KeyLen: c.N,
		HeadDim: c.D, ValueDim: c.Dv, DType: dtype, Dropout: c.Dropout, Blocks: c.blocks(), MaskBlocks: c.classes(),
		ScoreFunction: c.scoreOf(0, c.H), MaskFunction: c.sees(), Bias: c.bias(dtype), Sinks: c.Sinks, Packed: c.packed(),
		KeyLengths: c.Used != "",
		Pages:      c.paged()}
	if c.Cache != "" {
		p.KeyType = flash.DType(c.cacheType(attn.DType(dtype)))
		p.ValueType = p.KeyType
	}
	if c.Causal {
		p.Causal = flash.CausalBottomRight
	}
	if c.Window > 0 {
		p.Window = flash.SlidingWindow(c.reach())
	}
	return p.Normalize()
}

// reach is the window's, without end to the right where the causal order ends it.
func (c Case) reach() (left, right int) {
	if c.Causal {
		return c.Window, -1
	}
	return c.Window, c.Window
}

// ForwardFLOPs counts the operations of the forward pass as the FlashAttention
// papers do (flash.Problem.ForwardFLOPs), those of nonzero blocks alone, of
// entries of several lengths of each as a batch of one, and with a mask those of the
// pairs that are seen, each one counted; 0 for an
// impossible case. What becomes of a score is not counted: rates with and
// without it differ by what it costs.
func (c Case) ForwardFLOPs() float64 {
	p, err := c.Problem()
	if err != nil {
		return 0
	}
	flops := p.ForwardFLOPs()
	if c.uneven() {
		flops = 0
		for b := range c.B {
			flops += c.alone(b).ForwardFLOPs()
		}
		return flops
	}
	if c.Mask != "" {
		pairs := 0.0
		for i := range c.Nq {
			first, end := c.seen(i)
			pairs += float64(end - first)
		}
		flops = 2 * float64(c.B) * float64(c.H) * pairs * float64(c.D+c.Dv)
	}
	if c.Density > 0 {
		flops *= c.computed()
	}
	return flops
}

// BackwardFLOPs counts those of the backward pass.
func (c Case) BackwardFLOPs() float64 { return backwardWork * c.ForwardFLOPs() }

// Call is what measuring the case adds to what its plan knows: lse is written, and gradients are written over what was there.
func (c Case) Call() tune.Call {
	call := tune.Call{LSE: true}
	if m := c.blockMask(); m != nil {
		call.Blocks = m.Data
	}
	if c.classes() != (flash.Blocks{}) {
		call.Blocks = c.seenBlocks()
	}
	return call
}

// backwardWork is the operations of a backward pass for each of the forward
// pass, as the FlashAttention papers count them.
const backwardWork = 2.5

// String reads "flash2 float16 B16 H32 N2048 D64 causal".
func (c Case) String() string {
	var parts []string
	for _, a := range Axes {
		if a.Text == nil {
			continue
		}
		if text := a.Text(c); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, " ")
}

// Path reads "impl=flash2/dtype=float16/B=16/…/causal=true": the keys of result
// files with their values.
func (c Case) Path() string {
	var parts []string
	for _, a := range Axes {
		if v := a.in(&c); v != nil && (a.Sure || !empty(v)) {
			parts = append(parts, fmt.Sprintf("%s=%v", a.Key, reflect.ValueOf(v).Elem()))
		}
	}
	return strings.Join(parts, "/")
}

// validate says what is wrong with a case before any device sees it.
func (c Case) validate() error {
	for _, a := range Axes {
		if err := a.check(a.Name, &c); err != nil {
			return err
		}
	}
	if c.H%c.Hkv != 0 {
		return fmt.Errorf("kv-heads is %d: it must divide heads, which is %d", c.Hkv, c.H)
	}
	if err := c.checkLengths(); err != nil {
		return err
	}
	return c.checkScores()
}

var dtypeNames = map[string]string{
	"float16": "float16", "fp16": "float16", "f16": "float16", "half": "float16",
	"bfloat16": "bfloat16", "bf16": "bfloat16",
	"float32": "float32", "fp32": "float32", "f32": "float32", "float": "float32",
}

// ParseDType accepts the usual spellings (fp16, f16, half, float16, bf16, …)
// and returns the one that files use: float16, bfloat16 or float32.
func ParseDType(s string) (string, error) {
	if name, ok := dtypeNames[strings.ToLower(strings.TrimSpace(s))]; ok {
		return name, nil
	}
	return "", fmt.Errorf("dtype %q: it must be float16 (fp16), bfloat16 (bf16) or float32 (fp32)", s)
}
