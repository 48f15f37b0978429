package onnx

import (
	"fmt"
	"math"
)

// attributes are those of a node, as JSON has them.
type attributes map[string]any

// integer is an attribute from low to high, or what stands for it where it is not given.
func (a attributes) integer(name string, absent, low, high int) (int, error) {
	v, ok := a[name]
	if !ok {
		return absent, nil
	}
	x, ok := v.(float64)
	if !ok || x != math.Trunc(x) || x < float64(low) || x > float64(high) {
		return 0, fmt.Errorf("onnx: attribute %s is %v: it must be an integer from %d to %d", name, v, low, high)
	}
	return int(x), nil
}

// number is an attribute that is a finite number of at least low.
func (a attributes) number(name string, absent, low float64) (float64, error) {
	v, ok := a[name]
	if !ok {
		return absent, nil
	}
	x, ok := v.(float64)
	if !ok || !(x >= low) || math.IsInf(float64(float32(x)), 0) {
		return 0, fmt.Errorf("onnx: attribute %s is %v: it must be a number of at least %g", name, v, low)
	}
	return x, nil
}

// most bounds what is counted: heads, columns, keys.
const most = 1 << 30
