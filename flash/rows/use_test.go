package rows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// TestUsed: rotations and appends declare the uses of their tensors, a changed use writes a recording anew, and that allocates nothing.
func TestUsed(t *testing.T) {
	d := testDevice(t)
	mk := plainly(t, d)
	var x [4]*flash.Tensor
	for i := range x {
		x[i] = mk(flash.F32, [4]int{1, 2, 8, 16})
	}
	angles, at := mk(flash.F32, [4]int{1, 1, 8, 8}), integers(t, d, [4]int{1, 1, 1, 1}, []int{0})
	rotate, err := PlanRotate(d, RotateProblem{Batch: 1, Heads: 2, Rows: 8, HeadDim: 16, DType: flash.F32, Rotary: Rotary{Table: 8}})
	require.NoError(t, err)
	defer rotate.Close()
	appending, err := PlanAppend(d, AppendProblem{Batch: 1, KeyHeads: 2, Rows: 8, CacheRows: 8, HeadDim: 16, DType: flash.F32})
	require.NoError(t, err)
	defer appending.Close()
	pool, err := envOf(t, d).Dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	cmd, err := pool.Allocate()
	require.NoError(t, err)
	for _, plan := range []*Plan{rotate, appending} {
		t.Run(plan.what, func(t *testing.T) {
			r, err := plan.NewRecording()
			require.NoError(t, err)
			require.NoError(t, r.commands.Close())
			var commands *pipeline.Recording
			r.commands, err = within.NewRecording(d, access.Commands[*flash.Tensor]{Name: "Recording", Tensors: r.tensors,
				Info: kernel.RecordingInfo(plan.program.Dispatches(), false),
				Write: func(w *kernel.Recorder) error {
					commands = w.Rec
					return plan.program.Record(w, &r.ops)
				}}, "Rotate or Append")
			require.NoError(t, err)
			defer r.Close()
			with := map[flash.TensorUse]map[*flash.Tensor]*flash.Tensor{} // tensors are made once: recording anew allocates nothing
			give := func(u flash.TensorUse) {
				if with[u] == nil {
					with[u] = map[*flash.Tensor]*flash.Tensor{angles: angles.Used(u), at: at.Used(u)}
					for _, of := range x {
						with[u][of] = of.Used(u)
					}
				}
				w := with[u]
				var err error
				if plan == rotate {
					err = r.Rotate(Rotation{X: w[x[0]], Y: w[x[1]], Cos: w[angles], Sin: w[angles]})
				} else {
					err = r.Append(Append{K: w[x[0]], V: w[x[1]], KeyCache: w[x[2]], ValueCache: w[x[3]], At: w[at]})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				for _, u := range []struct {
					is            flash.TensorUse
					before, after int
				}{{flash.TensorUse{}, 1, 1},
					{flash.TensorUse{Prior: flash.Untouched}, 0, 1},
					{flash.TensorUse{Next: flash.Untouched}, 1, 0},
					{flash.TensorUse{Prior: flash.Untouched, Next: flash.Untouched}, 0, 0}} {
					give(u.is)
					require.Equal(t, u.before, commands.Barriers(), u.is)
					require.NoError(t, cmd.Begin(true))
					require.NoError(t, r.Record(cmd.Handle()))
					require.NoError(t, cmd.End())
					require.Equal(t, u.before+u.after, commands.Barriers(), u.is)
				}
			}
			i := 0
			require.Zero(t, testing.AllocsPerRun(20, func() {
				i++
				give([]flash.TensorUse{{}, {Prior: flash.Untouched}}[i%2])
			}))
		})
	}
}
