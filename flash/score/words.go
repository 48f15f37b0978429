package score

import "math"

func floatOf(bits uint32) float32 { return math.Float32frombits(bits) }
