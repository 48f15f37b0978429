package result

// List is the list of query i of batch entry b, Listed numbers: of the keys that it sees otherwise, all of them or so many in steps that
// come to each of them once, other steps for other queries; then −1. The PyTorch program has the same (tools/torch_case.py).
func (c Case) List(b, i int) []int32 {
	out := make([]int32, c.Listed)
	first, end := c.Entry(b).Seen(i)
	count := end - first
	start, step := 0, 1
	if c.Listed < count {
		start, step = (i*2654435761+b*40503)%count, 1+(i*7919+b*104729)%(count-1)
		for common(step, count) != 1 {
			step++
		}
	}
	for n := range out {
		out[n] = -1
		if n < count {
			out[n] = int32(first + (start+n*step)%count)
		}
	}
	return out
}

// common is the largest number that divides both.
func common(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// Lists are those of all queries, as device memory has them.
func (c Case) Lists() []int32 {
	out := make([]int32, 0, c.B*c.Nq*c.Listed)
	for b := range c.B {
		for i := range c.Nq {
			out = append(out, c.List(b, i)...)
		}
	}
	return out
}
