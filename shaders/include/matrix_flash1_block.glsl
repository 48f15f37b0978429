// One block of queries i against the block of keys j that is staged; included twice by matrix_flash1.comp, for the same reason as
// matrix_tile.glsl: with MASKED for blocks that the diagonal or the end of the keys cuts, without for the rest.

    {
      const uint row0 = i * BR + gl_SubgroupID * RM * FM;
      const bool last = j + 1 == blocks_seen(i);   // no further block of keys for these queries
      if (PREFETCH == 0) ASK_Q(row0, nq)
      Q_THROUGH_PATCH
      if (PREFETCH != 0) ASK_Q(row0 + BR, nq)
      if (j == 0) NOTHING_SEEN else BRING_SUMS
#include "matrix_chunks.glsl"
      DIVIDE_BY_SUM((DROPOUT && last), true, span)
      if (last) STORE_O(nq) else LEAVE_SUMS
    }
