// What the arguments of both passes have in common: words that are packed, and how a workgroup finds its work.

// heads_large holds the larger of the number of key heads and the number of query heads of each (the group), with its highest bit set
// where that is the group; the upper half of bytes holds the smaller one. Their product is below 2^30, so that 16 bits are enough.
bool group_is_large() { return heads_large >> 31 != 0u; }
uint group() { return mix(bytes >> 16, heads_large & 0x7fffffffu, group_is_large()); }   // query heads of a key head
uint key_heads() { return mix(heads_large, bytes >> 16, group_is_large()); }
uint heads() { return (heads_large & 0x7fffffffu) * (bytes >> 16); }                     // query heads

uint drop_k() { return bytes & 255u; }   // dropout: see dropout.glsl

// A grid is flattened, since a dimension may not pass 65,535, and may be cut into several dispatches by base.
uint workgroup_index() { return base + gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x; }
