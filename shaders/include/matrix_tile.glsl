// One staged tile of BC keys; included twice by matrix_forward.comp: without masks for the tiles that every row sees whole, and with
// MASKED for the rest. The driver merges two phases of one loop, which puts the mask code into the main loop; two loops it leaves alone.
// NEXT(1) is the tile after this one, NEXT(2) the one after that.

    if (PREFETCH == 3) {      // two tiles in shared memory: one barrier a tile
      at = TILE - at; STORE_K STORE_V
      at = TILE - at; FETCH_K(NEXT(2)) FETCH_V(NEXT(2))
    } else {
      barrier();
      if (PREFETCH == 0) { FETCH_K(j) }
      STORE_K
      if (PREFETCH != 1) { FETCH_V(j) }
      STORE_V
      barrier();
      if (PREFETCH != 0) { FETCH_K(NEXT(1)) }
      if (PREFETCH == 1) { FETCH_V(NEXT(1)) }
    }
#include "matrix_chunks.glsl"
    if (PREFETCH == 3) { barrier(); at = TILE - at; }
