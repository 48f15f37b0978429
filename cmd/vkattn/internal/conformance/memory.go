package conformance

import "github.com/vkattn/vkattn/flash"

// footprint estimates the bytes that a case holds, of the host and the device together: shared ones while any target may still run it,
// and those of its run on each target. The tensors of a run lie in the device once, and in the host as bytes, as fp32 and as float64.
func (c *Case) footprint(targets []Target) (shared int64, runs []int64) {
	runs = make([]int64, len(targets))
	p, err := c.Problem.Normalize()
	if err != nil {
		return 0, runs
	}
	in := elements(p.QShape()) + elements(p.KShape()) + elements(p.VShape())
	out := elements(p.OShape()) + elements(p.LSEShape())
	compared := out
	if rows := elements(p.LSEShape()); c.Sample > 0 && int64(c.Sample) < rows {
		compared = int64(c.Sample) * out / rows
	}
	const plain, exact = 4, 8 // bytes of an element
	shared = in*plain + compared*4*exact
	size := int64(p.DType.Size())
	each := (in + out) * (2*size + plain + exact)
	scores := elements([4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen}) * size
	if c.hasGradients() {
		shared += out*plain + in*2*exact
		each *= 2
		scores *= 4 // of a pass without weights kept, and of one with, and both of the backward pass
		if !p.ScoreFunction.UnitSlope() {
			scores += scores / 4 // and the scores themselves
		}
	}
	for i, t := range targets {
		if t.skip(c) != "" {
			continue
		}
		runs[i] = each
		if t.Implementation == flash.Standard {
			runs[i] += scores
		}
	}
	return shared, runs
}

func elements(shape [4]int) int64 {
	return int64(shape[0]) * int64(shape[1]) * int64(shape[2]) * int64(shape[3])
}

// mostMemory bounds what cases hold at once where the device has plenty: host memory is not asked for.
const mostMemory = 4 << 30

// budget is the bytes that cases which run at once may hold together: half of what the device has left for this process.
func budget(dev *flash.Device) int64 {
	heaps, err := dev.Heaps()
	if err != nil {
		return mostMemory
	}
	var free uint64
	for _, h := range heaps {
		if h.DeviceLocal {
			free = max(free, h.Budget-min(h.Usage, h.Budget))
		}
	}
	return min(mostMemory, int64(free/2))
}
