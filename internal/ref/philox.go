package ref

import "math/bits"

// philox4x32 is the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (2011): each round multiplies two of the four words and mixes the
// halves of the products with the other two and the key, which then takes a step.
func philox4x32(counter [4]uint32, key [2]uint32, rounds int) [4]uint32 {
	for r := 0; r < rounds; r++ {
		hi0, lo0 := bits.Mul32(0xD2511F53, counter[0])
		hi1, lo1 := bits.Mul32(0xCD9E8D57, counter[2])
		counter = [4]uint32{hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}
