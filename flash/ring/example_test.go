package ring_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

// Two ranks of one process compute attention over a sequence that each of them has half of.
func Example() {
	problem := flash.Problem{Batch: 1, Heads: 4, QueryLen: 1000, HeadDim: 32, DType: flash.F16, Causal: flash.CausalBottomRight}
	const ranks = 2
	devices, err := ring.Open(ranks, true) // shared, where there are fewer
	if err != nil {
		fmt.Println(err)
		return
	}
	comms, err := ring.Local(ranks)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // how long ranks wait for one another
	defer cancel()

	tokens, errs := make([]int, ranks), make([]error, ranks)
	var wait sync.WaitGroup
	for rank := range ranks {
		wait.Go(func() { tokens[rank], errs[rank] = attend(ctx, comms[rank], devices[rank], problem) })
	}
	wait.Wait()
	for _, d := range devices {
		errs = append(errs, d.Close())
	}
	fmt.Println(errors.Join(errs...))
	fmt.Println(tokens)
	// Output:
	// <nil>
	// [488 512]
}

// attend is what each rank does, and gives how many of the tokens are its own.
func attend(ctx context.Context, comm ring.Comm, dev *flash.Device, problem flash.Problem) (tokens int, err error) {
	r, err := ring.New(comm, dev)
	if err != nil {
		return 0, err
	}
	plan, err := r.Plan(ctx, problem, ring.Shard{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	own := plan.Local() // shapes of the rank's tensors; plan.Queries and plan.Keys say which tokens these are
	var t [4]*flash.Tensor
	for i, s := range [4][4]int{own.QShape(), own.KShape(), own.VShape(), own.OShape()} {
		if t[i], err = dev.NewTensor(problem.DType, s[0], s[1], s[2], s[3]); err != nil {
			return 0, err
		}
		defer t[i].Close()
		if err := t[i].Upload(ctx, make([]float32, t[i].Elements())); err != nil { // a program has queries, keys and values here
			return 0, err
		}
	}
	return own.QueryLen, plan.Forward(ctx, flash.Forward{Q: t[0], K: t[1], V: t[2], O: t[3]})
}
