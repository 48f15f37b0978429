package flash

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// Keys in parts. With few queries there are too few workgroups to fill a GPU, so kernels may cut the keys into parts. The workgroups of
// part s compute, for each row i, attention over the keys of that part alone,
//
//	t_si = log2 Σ_{j ∈ s} exp(scale q_i·k_j),   o_si = Σ_{j ∈ s} exp(scale q_i·k_j) v_j / 2^{t_si}
//
// and combine_parts puts them together: o_i = Σ_s 2^{t_si − t_i} o_si with 2^{t_i} = Σ_s 2^{t_si}. (Dao, "FlashAttention-2", 2023, section
// 2.3.1; Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023.) The plan fixes the number of parts, and nothing is
// added atomically: the same inputs give the same bits.

const (
	mostParts      = 1024     // more is of no use to anything
	leastPartKeys  = 256      // with fewer, starting and combining a part costs more than it saves
	mostPartsBytes = 32 << 20 // of memory between the two steps
)

// mostPartsOf is the number of parts into which the keys of a problem may sensibly be cut.
func mostPartsOf(p *Problem) int {
	if !p.Blocks.none() {
		return 1
	}
	return max(1, int(min(uint64(p.KeyLen/leastPartKeys), mostPartsBytes/partBytes(p), mostParts)))
}

// checkParts gives the rule that a number of parts breaks, "" for none.
func checkParts(parts int, p *Problem) string {
	most := mostParts
	if !p.Blocks.none() {
		most = 1 // a block mask has few keys as it is
	}
	if parts < 1 || parts > most {
		return fmt.Sprintf("parts = %d must be from 1 to %d", parts, most)
	}
	return ""
}

// multiprocessors is how many there are: of a large GPU where the device does not say.
func (c *capabilities) multiprocessors() int {
	if n := c.facts.Multiprocessors; n > 0 {
		return int(n)
	}
	return fewGroups
}

// partsSuffix says in a tile's name how many parts there are.
func partsSuffix(parts int) string {
	if parts < 2 {
		return ""
	}
	return fmt.Sprintf(", keys in %d parts", parts)
}

// cutPartsSuffix takes what partsSuffix said off a kernel's name.
func cutPartsSuffix(kernel string) (rest string, parts int) {
	rest, text, found := strings.Cut(kernel, ", keys in ")
	if !found {
		return kernel, 1
	}
	number, _, _ := strings.Cut(text, " ")
	if n, err := strconv.Atoi(number); err == nil && n > 1 {
		return rest, n
	}
	return kernel, 1
}

// combiner is the second step, for any tier: shaders/common/combine_parts.comp.
type combiner struct {
	dev     *Device
	problem Problem
	module  string
	parts   int
	share   int    // invocations of four columns of a row
	items   uint32 // fours of columns
	grid    grid
	kernels [variants]atomic.Pointer[pipeline.Kernel]
}

const combineThreads = 128 // of a workgroup; every device allows it

// partsLabel is the label of its dispatches.
const partsLabel = "combine_parts"

func newCombiner(d *Device, p *Problem, parts int, t *tuning) (*combiner, error) {
	if err := d.caps.holds(partsScratch(p, parts)); err != nil {
		return nil, err
	}
	c := &combiner{dev: d, problem: *p, module: "combine_parts." + p.DType.suffix(), parts: parts, share: 1}
	for 4*c.share < parts && c.share < 32 { // four parts at least for an invocation
		c.share *= 2
	}
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(p.QueryLen)
	items := rows * uint64(ceilDiv(p.ValueDim, 4))
	per := uint64(combineThreads / c.share)
	var err error
	// It reads the parts and no more: reckon with 16 operations a number.
	c.grid, err = gridFor(d, (items+per-1)/per, 64*float64(items)*float64(parts), scalarPace, t)
	if err != nil {
		return nil, err
	}
	c.items = uint32(items)
	_, err = c.kernel(p.ValueDim*p.DType.Size()%16 == 0, true) // the usual case
	return c, err
}

// partsScratch is the memory between the two steps: o_si in fp32, rows of whole eights, and t_si.
func partsScratch(p *Problem, parts int) []uint64 {
	rows := uint64(parts) * uint64(p.Batch) * uint64(p.Heads) * uint64(p.QueryLen)
	return []uint64{4 * rows * uint64(ceilDiv(p.ValueDim, 8)*8), 4 * rows}
}

// partBytes is what one part takes of that memory.
func partBytes(p *Problem) (n uint64) {
	for _, size := range partsScratch(p, 1) {
		n += size
	}
	return n
}

// scratch is partsScratch, nothing where there are no parts.
func (c *combiner) scratch() []uint64 {
	if c == nil {
		return nil
	}
	return partsScratch(&c.problem, c.parts)
}

// dispatches is the number of its dispatches, 0 where there are no parts.
func (c *combiner) dispatches() int {
	if c == nil {
		return 0
	}
	return c.grid.dispatches()
}

// bind puts the memory between the steps in the place of o and lse, for the first step to write.
func (c *combiner) bind(r *recorder) {
	r.access[3] = pipeline.Access{Binding: r.scratch[0], Mode: pipeline.Write}
	r.access[4] = pipeline.Access{Binding: r.scratch[1], Mode: pipeline.Write}
}

func (c *combiner) kernel(aligned, lse bool) (*pipeline.Kernel, error) {
	v := variant{aligned: aligned, lse: lse}
	return c.dev.variant(&c.kernels[v.index()], c.module, func() (constants, pipeline.KernelInfo) { return c.constants(v), pipeline.KernelInfo{} })
}

func (c *combiner) constants(v variant) constants {
	return constants{{"WG", combineThreads}, {"SHARE", c.share}, {"DV", c.problem.ValueDim}, {"PARTS", c.parts},
		{"ALIGNED", boolInt(v.aligned)}, {"WRITE_LSE", boolInt(v.lse)}}
}

func (c *combiner) record(r *recorder, f *operands) error {
	k, err := c.kernel(f.o.aligned, f.hasLSE)
	if err != nil {
		return err
	}
	r.access[0] = pipeline.Access{Binding: r.scratch[0], Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: r.scratch[1], Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	r.access[3] = f.lseAccess()
	at := r.push.forward(&c.problem, f)
	return r.dispatch(k, r.access[:4], at, c.grid, c.items, partsLabel)
}
