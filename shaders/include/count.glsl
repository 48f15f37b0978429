// Counts the bytes that a kernel loads from and stores to device memory, in builds with COUNT (counting/modules.txt); in every other
// build LOADED and STORED are their last argument and nothing else, so that counting changes no module that is used.
//
//   LOADED(T, bytes, load)           a load from tensor T
//   LOADED_IF(T, bytes, real, load)  the same where kernels clamp instead of branching: unless real, the place of the load was moved
//                                    inside from beyond an edge, and what it loads is thrown away or replaced by zero
//   STORED(T, bytes, store)          a store
//   COUNTING(code)                   only with COUNT
//
// The first three may stand in expressions. Bytes are those that an invocation asks for, whatever its neighbours ask for and a cache
// serves.
//
// COUNT is the binding after the kernel's last. There every invocation adds up, for each tensor below: bytes read, bytes written, and
// bytes of loads that were not real, as 64-bit numbers, low word first (flash/counting_test.go reads them).

#ifdef COUNT

#define COUNT_q 0
#define COUNT_k 1
#define COUNT_v 2
#define COUNT_o 3
#define COUNT_lse 4
#define COUNT_g 5           // dO
#define COUNT_x 6           // a gradient
#define COUNT_y 7           // another
#define COUNT_delta 8
#define COUNT_scores 9      // S, P, dS
#define COUNT_gradients 10  // dP
#define COUNT_statistics 11 // m and l
#define COUNT_sums 12       // O between blocks of keys
#define COUNT_TENSORS 13
#ifdef TANGENTS             // with those that they are of, that of lse in delta's place
#define COUNT_qt COUNT_q
#define COUNT_kt COUNT_k
#define COUNT_vt COUNT_v
#define COUNT_lse_tangent COUNT_delta
#endif

layout(set = 0, binding = COUNT, std430) buffer Counts { uint counts[6 * COUNT_TENSORS]; };
uint counted[3 * COUNT_TENSORS];

#define COUNT_PASTE(a, b) a##b
#define COUNT_OF(T) COUNT_PASTE(COUNT_, T)
#define LOADED(T, bytes, load) (counted[3 * COUNT_OF(T)] += (bytes), load)
#define LOADED_IF(T, bytes, real, load)                                                                                            \
  (counted[3 * COUNT_OF(T)] += (real) ? (bytes) : 0, counted[3 * COUNT_OF(T) + 2] += (real) ? 0 : (bytes), load)
#define COUNTING(code) code
#define STORED(T, bytes, store) (counted[3 * COUNT_OF(T) + 1] += (bytes), store)

// The kernel's main becomes a function, whatever way it returns.
void kernel();
void main() {
  [[unroll]] for (uint c = 0; c < 3 * COUNT_TENSORS; ++c) counted[c] = 0;
  kernel();
  [[unroll]] for (uint c = 0; c < 3 * COUNT_TENSORS; ++c)
    if (counted[c] != 0) {
      const uint before = atomicAdd(counts[2 * c], counted[c]);
      if (before + counted[c] < before) atomicAdd(counts[2 * c + 1], 1);  // carry
    }
}
#define main kernel

#else

#define COUNTING(code)
#define LOADED(T, bytes, load) load
#define LOADED_IF(T, bytes, real, load) load
#define STORED(T, bytes, store) store

#endif
