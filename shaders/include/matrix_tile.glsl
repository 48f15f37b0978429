// One staged tile of BC keys; included twice by matrix_forward.comp: without masks for the tiles that every row sees whole, and with
// MASKED for the rest. The driver merges two phases of one loop, which puts the mask code into the main loop; two loops it leaves alone.
// NEXT(1) is the tile after this one, NEXT(2) the one after that.

    if (PREFETCH == 3) {          // two tiles in shared memory: one barrier a tile
      at = TILE - at; STORE_K STORE_V
      at = TILE - at; FETCH_K(NEXT(2)) FETCH_V(NEXT(2))
    } else if (PREFETCH != 4) {   // with 4 the tile before has stored this one
      barrier();
      if (PREFETCH == 0) { FETCH_K(j) }
      STORE_K
      if (PREFETCH == 0 || PREFETCH == 2) { FETCH_V(j) }
      STORE_V
      barrier();
      if (PREFETCH == 1 || PREFETCH == 2) { FETCH_K(NEXT(1)) }
      if (PREFETCH == 1) { FETCH_V(NEXT(1)) }
    }
    // The branch keeps the loads here. Without it the driver moves them into the middle of the tile, where registers are free, and their
    // latency is waited for.
    if (PREFETCH >= 4) { if (NEXT(1) < end) { FETCH_K(NEXT(1)) FETCH_V(NEXT(1)) } }
#include "matrix_chunks.glsl"
    if (TWO_TILES) {
      at = TILE - at;
      if (PREFETCH == 4) { STORE_K STORE_V }
      barrier();
    }
