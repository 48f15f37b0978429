package tune_test

import (
	"context"
	"log"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// must gives a value that there is no going on without.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// The tiles that a device offers for a problem are timed, and the fastest is stored: later plans of such problems take it. `vkattn tune`
// does so for many problems, in turn, and compares results first.
func Example() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	problem := must(flash.Problem{Batch: 1, Heads: 8, QueryLen: 2048, HeadDim: 64, DType: flash.F16}.Normalize())
	tensor := func(s [4]int) *flash.Tensor { return must(dev.NewTensor(problem.DType, s[0], s[1], s[2], s[3])) }
	pass := flash.Forward{Q: tensor(problem.QShape()), K: tensor(problem.KShape()), V: tensor(problem.VShape()),
		O: tensor(problem.OShape())}

	var builtIn, least time.Duration
	var best tune.Candidate
	for _, c := range must(tune.Candidates(dev, problem)) {
		plan := must(dev.Plan(problem, flash.WithTuning(c.Tuning), flash.WithoutStoredTuning()))
		run := must(plan.NewRecording())
		check(run.Forward(pass))
		mean := must(tune.TimeRuns(ctx, dev, []*flash.Recording{run}, 20)).Mean()
		check(run.Close())
		check(plan.Close())
		if c.Default {
			builtIn = mean
		}
		if c.Default || mean < least {
			least, best = mean, c
		}
	}
	if !best.Default {
		check(tune.Store(tune.Entry{Key: must(tune.KeyOf(dev, best.Kernel, problem)), Tuning: best.Tuning, Tile: best.Tile,
			Gain: float64(builtIn) / float64(least), Problem: problem.String()}))
	}
}
