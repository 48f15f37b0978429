package rows

import (
	"bytes"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// agreement compares what a device wrote with a model in float64, which is stored on the host as the device should store it. What was only
// moved must be the same to the bit. What was computed in fp32 may lie on the other side of a border between two numbers of its type: it
// may be the next number, and that seldom.
type agreement struct {
	rows, elements, apart int
	most                  float64 // |x − model|
}

// row compares a row as it lies in memory. off is how far its elements may be off before they are stored, 0 where they were only moved.
func (a *agreement) row(t attn.DType, got []byte, want []float64, off float64) error {
	rounded, stored := make([]float32, len(want)), make([]byte, t.Bytes(len(want)))
	for i, v := range want {
		rounded[i] = float32(v)
	}
	attn.Encode(t, stored, rounded)
	a.rows++
	a.elements += len(want)
	right, x := rounded, make([]float32, len(want))
	attn.Decode(t, right, stored)
	attn.Decode(t, x, got)
	if off == 0 && !bytes.Equal(got[:len(stored)], stored) {
		return fmt.Errorf("row %d should be moved to the bit, and is not", a.rows-1)
	}
	for i := range x {
		a.most = max(a.most, math.Abs(float64(x[i])-want[i]))
		if x[i] == right[i] {
			continue
		}
		a.apart++
		if may := off + step(t, right, i); !(math.Abs(float64(x[i])-float64(right[i])) <= may) {
			return fmt.Errorf("column %d of row %d is %g, and should be %g within %.2g", i, a.rows-1, x[i], right[i], may)
		}
	}
	return nil
}

// step is how far neighbours are apart in a row of the type at column i, scales of blocks being neighbours too.
func step(t attn.DType, row []float32, i int) float64 {
	switch t {
	case attn.F32:
		return 0
	case attn.F16:
		return ref.F16.Ulp(float64(row[i]))
	}
	first := i - i%t.Block()
	most := 0.0
	for _, v := range row[first : first+t.Block()] {
		most = max(most, math.Abs(float64(v)))
	}
	if t == attn.Q4_0 { // the scale has the sign of the largest: of two that are as large it may be either
		return 2 * most / 8
	}
	return 1.25 * most / 127
}

// settle says whether few enough elements are another number than the model's.
func (a *agreement) settle() error {
	if most := a.elements/50 + attn.Q8_0.Block(); a.apart > most {
		return fmt.Errorf("%d of %d elements are not those of the model, and at most %d may be the next ones", a.apart, a.elements, most)
	}
	return nil
}
