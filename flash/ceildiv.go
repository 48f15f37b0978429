package flash

func ceilDiv(a, b int) int { return (a + b - 1) / b }
