package result

import (
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/attn"
)

// Problem is the case as the library takes it.
func (c Case) Problem() (flash.Problem, error) {
	dtype, err := flash.ParseDType(c.DType)
	if err != nil {
		return flash.Problem{}, err
	}
	p := flash.Problem{Batch: c.B, Heads: c.H, KeyHeads: c.Hkv, QueryLen: c.Nq, KeyLen: c.N,
		HeadDim: c.D, ValueDim: c.Dv, DType: dtype, Dropout: c.Dropout, Blocks: c.blocks(), MaskBlocks: c.classes(),
		ScoreFunction: c.ScoreOf(0, c.H), Bias: c.bias(dtype), Sinks: c.Sinks, Packed: c.packed(),
		KeyLengths: c.Used != "", Lists: flash.Lists{Keys: c.Listed}, Pages: c.paged(), MaxLogit: c.MaxLogit}
	if c.Cache != "" {
		p.KeyType = flash.DType(c.CacheType(attn.DType(dtype)))
		p.ValueType = p.KeyType
	}
	c.masks(&p)
	return p.Normalize()
}

// ForwardFLOPs counts the operations of the forward pass as the FlashAttention
// papers do (flash.Problem.ForwardFLOPs), those of nonzero blocks alone, of
// entries of several lengths of each as a batch of one, and with a mask or lists those
// of the pairs that are seen, each one counted; 0 for an
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
	if c.Mask != "" || c.Listed > 0 {
		flops = 2 * float64(c.B) * float64(c.H) * c.pairs() * float64(c.D+c.Dv)
	}
	if c.Density > 0 {
		flops *= c.computed()
	}
	return flops
}

// BackwardFLOPs counts those of the backward pass.
func (c Case) BackwardFLOPs() float64 { return BackwardWork * c.ForwardFLOPs() }

// JVPFLOPs are those of forward mode: five products where the forward pass has two.
func (c Case) JVPFLOPs() float64 { return 2.5 * c.ForwardFLOPs() }

// Call is what measuring the case adds to what its plan knows: lse is written, and gradients are written over what was there.
func (c Case) Call() tune.Call {
	call := tune.Call{LSE: true, ValuesInKeys: c.Latent}
	if m := c.BlockMask(); m != nil {
		call.Blocks = m.Data
	}
	if c.classes() != (flash.Blocks{}) {
		call.Blocks = c.SeenBlocks()
	}
	return call
}

// Counted says whether models of kernels count the case's bytes. They leave a bias out, and it is most of them; and they know no lengths
// but the longest. None are better than wrong ones.
func (c Case) Counted() bool { return c.Bias == "" && c.Used == "" && c.Packed != "mixed" }

// BackwardWork is the operations of a backward pass for each of the forward
// pass, as the FlashAttention papers count them.
const BackwardWork = 2.5

// Least is what a pass moves at least, the fused kernels' tensors each once: of keys that are in use of some, of each batch entry.
func (c Case) Least(of func(flash.Problem, flash.Implementation) (float64, error)) (bytes float64, err error) {
	entries := []Case{c}
	if c.Used != "" {
		entries = entries[:0]
		for b := range c.B {
			entries = append(entries, c.alone(b))
		}
	}
	for _, own := range entries {
		p, err := own.Problem()
		if err != nil {
			return 0, err
		}
		n, err := of(p, flash.Flash)
		if err != nil {
			return 0, err
		}
		bytes += n
		if c.Latent { // read as keys
			bytes -= float64(p.KeyHeads*p.Batch) * float64(own.N) * float64(attn.DType(p.ValueType).Bytes(p.ValueDim))
		}
	}
	return bytes, nil
}

// MultiplyAdds is the multiply-adds of all rows' forward pass without a mask.
func (c Case) MultiplyAdds() (n float64) {
	for b := range c.B {
		own := c.Entry(b)
		n += float64(c.H) * float64(own.Nq) * float64(own.N) * float64(c.D+c.Dv)
	}
	return n
}
