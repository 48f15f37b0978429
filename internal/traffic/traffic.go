// Package traffic counts what attention's kernels do and move: operations, and the bytes that workgroups load from and store to device
// memory. A Model is an order of loops with the numbers of one kernel's tiling. Each kernel gives its own, result files hold it
// (Marshal), and whoever adds up asks it about any problem: no device is needed.
package traffic

import "github.com/vkattn/vkattn/internal/attn"

// Step is what one step of a pass costs, all heads together.
//
// Bytes are counted where an invocation asks for them: a tile of K that a hundred workgroups stage counts a hundred times, and
// the lse of a row that 16 lanes load counts 16 times, although caches serve most of them. Elements beyond a tensor's edge do
// not count: there shaders load something inside in their place, and throw it away. Nor do the bits of a block mask, nor the largest scores
// of heads, to which a workgroup adds a few numbers at most. Builds of the shaders that count what they move give the same numbers
// (shaders/counting).
//
// Of packed sequences nothing is known but the longest and how many rows all have: they count as so many of the longest as have these rows.
type Step struct {
	Name    string  `json:"step"`
	Kernel  string  `json:"kernel,omitempty"` // label of the dispatches that do it
	FLOPs   float64 `json:"flops"`
	Read    float64 `json:"read_bytes"`
	Written float64 `json:"written_bytes"`
}

// Bytes is Read + Written.
func (s Step) Bytes() float64 { return s.Read + s.Written }

// Total adds steps up.
func Total(steps []Step) Step {
	t := Step{Name: "total"}
	for _, s := range steps {
		t.FLOPs += s.FLOPs
		t.Read += s.Read
		t.Written += s.Written
	}
	return t
}

// Call is what one call of a pass adds to what its plan knows.
type Call struct {
	LSE bool // forward: lse is written
	// forward: v is the first columns of k, where it lies; kernels that know read them once
	ValuesInKeys bool

	// Of a problem with a block mask one of the two. Blocks is the mask, in row-major order and of the problem's MaskShape: the count is
	// exact. Nonzero is a share of blocks, above 0 and at most 1: the count is what is to be expected of masks in which each block is
	// nonzero with this probability, whatever the others are.
	Blocks  []bool
	Nonzero float64

	Accumulate bool // backward: gradients are added to what is there, which is read
	DLSE       bool // backward: the gradient of lse is read
	DBias      bool // backward: the gradient of the bias is wanted; counted where the kernels of the other gradients make it
}

// Model is the steps of a pass of one kernel, or of the kernels that make a pass together, as a function of the problem. The numbers in it
// may come from a file: what is far from any kernel's is refused with an *Error.
type Model interface {
	// Kind names the order of loops, in files.
	Kind() string
	// Steps are in the order of the mathematics. The problem has its defaults filled in.
	Steps(p attn.Problem, c Call) ([]Step, error)
}

// Names of the steps of a forward pass.
const (
	StepScores  = "QKᵀ"
	StepMask    = "mask"
	StepSoftmax = "softmax"
	StepDropout = "dropout"
	StepValues  = "PV"
	StepCombine = "combine" // keys in parts
)

// softmaxOps is what the softmax does with a score: the row's maximum, a difference, an exponential, the row's sum, and a
// division (in FlashAttention, of O at the end). maskOps and dropoutOps are a comparison, and a comparison and a product.
const (
	softmaxOps = 5
	maskOps    = 1
	dropoutOps = 2
)

// Bytes of a number in fp32: lse, δ, m, l, and sums between kernels.
const fp32 = 4

// forward is the operations of the steps of a forward pass, counted as ForwardFLOPs does: causal with Nq = Nk is half of all pairs. share
// is that of pairs in nonzero blocks.
func forward(p attn.Problem, share float64) []Step {
	pairs := share * p.AllHeads() * p.PaperPairs()
	steps := []Step{{Name: StepScores, FLOPs: 2 * pairs * float64(p.HeadDim)}}
	if p.Masked() {
		steps = append(steps, Step{Name: StepMask, FLOPs: maskOps * pairs})
	}
	steps = append(steps, Step{Name: StepSoftmax, FLOPs: softmaxOps * pairs})
	if p.Dropout > 0 {
		steps = append(steps, Step{Name: StepDropout, FLOPs: dropoutOps * pairs})
	}
	return append(steps, Step{Name: StepValues, FLOPs: 2 * pairs * float64(p.ValueDim)})
}

// put gives each step its kernel, and the bytes of the step of its name where there are any.
func put(steps []Step, kernel func(name string) string, bytes ...Step) []Step {
	for i := range steps {
		s := &steps[i]
		s.Kernel = kernel(s.Name)
		for _, b := range bytes {
			if b.Name == s.Name {
				s.Read, s.Written = b.Read, b.Written
			}
		}
	}
	return steps
}

// all is the kernel of every step.
func all(label string) func(string) string { return func(string) string { return label } }

// lse is the bytes of a row's lse.
func (c *Call) lse() float64 {
	if c.LSE {
		return fp32
	}
	return 0
}

// rowBytes are those of a row of Q or K, and of a row of V or O.
func rowBytes(p attn.Problem) (d, dv float64) {
	size := float64(p.DType.Size())
	return float64(p.HeadDim) * size, float64(p.ValueDim) * size
}

// cacheRowBytes are those of a row of K and of one of V, quantised or not.
func cacheRowBytes(p attn.Problem) (k, v float64) {
	k, v = rowBytes(p)
	if p.KeyType.Quantised() {
		k = float64(p.KeyType.Bytes(p.HeadDim))
	}
	if p.ValueType.Quantised() {
		v = float64(p.ValueType.Bytes(p.ValueDim))
	}
	return k, v
}

// pageNumber is the bytes that say where a key's rows lie: a page number is looked up for each key, most often in a cache.
func pageNumber(p attn.Problem) float64 { return one(!p.Pages.None()) * 4 }

// listNumber is the bytes that say which key an entry of a list is.
func listNumber(p attn.Problem) float64 { return one(!p.Lists.None()) * 4 }

func one(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
