// What dropout keeps of all that a draw of dropout.glsl serves, 16 bits: bit 8 i + 7 - t says whether byte i of word t is kept.
//
// A byte is at least drop_k when its first bit is greater than drop_k's, or no less and its last 7 bits are at least drop_k's. The 7 bits
// of four bytes are compared by one subtraction that borrows from no neighbour.
uint kept_bits(uvec4 drawn) {
  const uint low = (drop_k() & 127u) * 0x01010101u, small = drop_k() < 128u ? ~0u : 0u;
  uint bits = 0;
  [[unroll]] for (uint t = 0; t < 4; ++t) {
    const uint last7 = (drawn[t] | 0x80808080u) - low;
    bits |= ((drawn[t] & last7) | ((drawn[t] | last7) & small)) >> t & 0x80808080u >> t;
  }
  return bits;
}
