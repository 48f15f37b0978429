package score_test

import (
	"fmt"

	"github.com/vkattn/vkattn/flash/score"
)

// A function of the user's own: scores fall off with the logarithm of the distance, by a slope of each head that is passed at every call
// and can be learned.
func ExampleNew() {
	slopes := score.Capture("slopes", 2) // [heads]
	distance := score.Position().Sub(score.Key()).Abs().Float()
	penalty := distance.Add(score.Const(1)).Log()
	f, err := score.New(score.S().Sub(slopes.At(score.Head()).Mul(penalty)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f)
	e, err := f.Bind(score.Data{"slopes": []float32{1, 0.5}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", e.Value(score.Point{S: 2, Head: 1, Position: 9, Key: 6}))
	// Output:
	// (s − (slopes[head]·log((float(abs((position − key))) + 1))))
	// 1.3069
}

// A window of 128 keys, and 4 keys that every query sees.
func ExampleNewMask() {
	back := score.Position().Sub(score.Key())
	sinks := score.Key().Less(score.ConstInt(4))
	m, err := score.NewMask(back.Less(score.ConstInt(128)).Or(sinks))
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := m.Bind(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Allows(score.Point{Position: 1000, Key: 900}), e.Allows(score.Point{Position: 1000, Key: 3}),
		e.Allows(score.Point{Position: 1000, Key: 500}))
	// Output: true true false
}

// What a mistake says.
func ExampleNew_mistake() {
	table := score.Table([]float32{1, 2, 3, 4}, 2, 2)
	_, err := score.New(score.S().Add(table.At(score.Head())))
	fmt.Println(err)
	// Output: score: At: 1 indices into a table of shape [2 2]
}

// The cap comes before the bias, as in most models: functions apply in the order of the list.
func ExampleCompose() {
	f, err := score.Compose(score.Softcap(30), score.ALiBi([]float32{0.5, 0.25}))
	fmt.Println(f, err)
	// Output: (tanh((s / 30))·30); (s − (table[head]·abs((float(position) − float(key))))) <nil>
}
