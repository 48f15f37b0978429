#version 460
// Before a step of decoding, or of prefill, over a cache in pages: what the host decided reaches the device.
//
//   COPY 0   words[i] = x                  for each edit (i, x): lengths of rows, and entries of their tables of pages that changed
//   COPY 1   pool[to] = pool[from]         for each copy of a page, in all pools of a buffer, those of all layers
//
// Copies are the copying on write of Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023,
// section 4.4: a sequence goes on in a page of its own. A page is copied whole, 16 bytes at a time, whatever its rows, layout and type are;
// rows that no token has yet are nobody's. No copy reads what another writes (internal/paging).
//
// How many edits and copies there are stands in memory, so that one recording serves all steps: invocations go through them in strides of
// all invocations, and those without any end at once.
//
// Bindings: 0 the step, host memory: counts (edits, copies), then COPIES places for copies (from, to), then edits (index, value); 1 words,
// or pools, POOL units of 16 bytes each, of pages of PAGE units. Workgroups: COPY 0 any number in x; COPY 1 (any number for the units of a
// page, pools, any number for copies).
//
//   0 WG   1 COPY   2 COPIES   3 PAGE   4 POOL

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const bool COPY = false;
layout(constant_id = 2) const uint COPIES = 1;
layout(constant_id = 3) const uint PAGE = 1;
layout(constant_id = 4) const uint POOL = 1;

layout(set = 0, binding = 0, std430) readonly buffer Step_ { uvec2 counts, entries[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Words_ { uint words[]; };
layout(set = 0, binding = 1, std430) buffer Pools_ { uvec4 pools[]; };

void main() {
  const uint first = gl_GlobalInvocationID.x, stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  if (!COPY) {
    for (uint i = first; i < counts.x; i += stride) {
      const uvec2 edit = entries[COPIES + i];
      words[edit.x] = edit.y;
    }
    return;
  }
  const uint pool = gl_WorkGroupID.y * POOL;
  for (uint i = gl_WorkGroupID.z; i < counts.y; i += gl_NumWorkGroups.z) {
    const uvec2 pages = entries[i];
    const uint from = pool + pages.x * PAGE, to = pool + pages.y * PAGE;
    for (uint at = first; at < PAGE; at += stride) pools[to + at] = pools[from + at];
  }
}
