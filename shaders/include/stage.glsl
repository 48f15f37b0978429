// Copies a block of a tensor's rows into workgroup shared memory as fp32. Included once per tensor, with these defined
// (they cannot be arguments: GLSL passes no storage buffers, and what is computed of specialization constants would be code):
//
//   STAGE        name of the function
//   STAGE_T      tensor (declared with INPUT)
//   STAGE_ROWS   rows of the block
//   STAGE_WIDTH  vec4s of a row that are staged
//   STAGE_COLS   columns that the tensor has
//   STAGE_PITCH  vec4s from one staged row to the next
//   STAGE_SLOT   function that gives the place of row r among the staged rows
//   STAGE_SCALE  factor for every element
//   STAGE_TYPE   in builds for caches, of K and V: K_TYPE or V_TYPE. Rows may lie in pages then
//
// The function's arguments: first vec4 of the destination, element at which row 0 of the tensor lies, elements from row to row,
// first row, rows that the tensor has (at least one, but with PADDED), first column, and whether the block may reach beyond the last row.
// Rows and columns beyond the tensor become zeros and are never read, so that nothing that lies there can leak into a sum, NaN included.
// Loads are not branched around: what lies outside is replaced first by an element inside, then by zero.
//
// Needs WG (workgroup size), lid (local index), ALIGNED, lengths.glsl and the shared array tile[]. With ALIGNED, sixteen bytes are read at
// a time, eight loads in flight before the first is stored; else element by element.

#ifdef STAGE_TYPE
#define STAGE_PAGE(row) const uint page = page_of(row);
#define STAGE_ROW(row) row_in_page(origin, row, page, PASTE(STAGE_T, _sb), stride)
#define STAGE_LOST || is_lost(page)
#else
#define STAGE_PAGE(row)
#define STAGE_ROW(row) origin + row * stride
#define STAGE_LOST
#endif

void STAGE(uint dst, uint origin, uint stride, uint row0, uint rows, uint col0, bool edge) {
  const uint last_row = PADDED ? max(rows, 1) - 1 : rows - 1;
#ifdef STAGE_TYPE
  if (STAGE_TYPE != NATIVE) {
    const uint N = STAGE_ROWS * STAGE_WIDTH;
    [[dont_unroll]] for (uint t = 0; t < (N + WG - 1) / WG; ++t) {
      const uint i = min(t * WG + lid, N - 1), r = i / STAGE_WIDTH, c = i % STAGE_WIDTH, col = col0 + 4 * c;
      STAGE_PAGE(min(row0 + r, last_row))
      vec4 x = PASTE(STAGE_T, _four)(STAGE_ROW(min(row0 + r, last_row)), col < STAGE_COLS ? col : 0);
      if (row0 + r >= rows || col >= STAGE_COLS STAGE_LOST) x = vec4(0);
      tile[dst + STAGE_SLOT(r) * STAGE_PITCH + c] = x * STAGE_SCALE;
    }
    return;
  }
#endif
  if (ALIGNED) {
    const uint W = STAGE_WIDTH / UNIT4;   // 16-byte units in a row
    const uint N = STAGE_ROWS * W;
    const uint LOADS = (N + WG - 1) / WG; // of each invocation
    const uint BATCH = LOADS < 8 ? LOADS : 8;
    // A constant column and a constant step from row to row where the division comes out even.
    const bool EVEN = WG % W == 0;
    const uint r0 = lid / W, c0 = lid % W;
    [[dont_unroll]] for (uint t0 = 0; t0 < LOADS; t0 += BATCH) {
      uvec4 u[8];
      [[unroll]] for (uint b = 0; b < BATCH; ++b) {
        const uint t = t0 + b, i = t * WG + lid;
        const uint r = EVEN ? r0 + t * (WG / W) : i / W;
        const uint c = EVEN ? c0 : i % W;
        const uint row = edge ? min(row0 + r, last_row) : row0 + min(r, STAGE_ROWS - 1);
        const uint col = STAGE_COLS % (4 * STAGE_WIDTH) == 0 ? col0 + c * UNIT : min(col0 + c * UNIT, STAGE_COLS - UNIT);
        STAGE_PAGE(row)
        u[b] = LOADED_IF(STAGE_T, 16, i < N && row0 + r < rows && col0 + c * UNIT < STAGE_COLS,
          PASTE(STAGE_T, 16)[(STAGE_ROW(row) + col) / UNIT]);
#ifdef STAGE_TYPE
        if (is_lost(page)) u[b] = uvec4(0);
#endif
        if (edge && row0 + r >= rows || STAGE_COLS % (4 * STAGE_WIDTH) != 0 && col0 + c * UNIT >= STAGE_COLS) u[b] = uvec4(0);
      }
      [[unroll]] for (uint b = 0; b < BATCH; ++b) {
        const uint t = t0 + b, i = t * WG + lid;
        const uint r = EVEN ? r0 + t * (WG / W) : i / W;
        const uint c = EVEN ? c0 : i % W;
        if (N % (WG * BATCH) == 0 || i < N) {
          vec4 x[UNIT4];
          decode16(u[b], x);
          [[unroll]] for (uint e = 0; e < UNIT4; ++e) tile[dst + STAGE_SLOT(r) * STAGE_PITCH + UNIT4 * c + e] = x[e] * STAGE_SCALE;
        }
      }
    }
  } else {
    const uint N = STAGE_ROWS * STAGE_WIDTH;
    [[dont_unroll]] for (uint t = 0; t < (N + WG - 1) / WG; ++t) {
      const uint i = min(t * WG + lid, N - 1), r = i / STAGE_WIDTH, c = i % STAGE_WIDTH;
      STAGE_PAGE(min(row0 + r, last_row))
      const uint at = STAGE_ROW(min(row0 + r, last_row));
      vec4 x;
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        const uint col = col0 + 4 * c + e;
        x[e] = decode(LOADED_IF(STAGE_T, BYTES, t * WG + lid < N && row0 + r < rows && col < STAGE_COLS,
          PASTE(STAGE_T, 1)[at + min(col, STAGE_COLS - 1)]));
        if (row0 + r >= rows || col >= STAGE_COLS STAGE_LOST) x[e] = 0;
      }
      tile[dst + STAGE_SLOT(r) * STAGE_PITCH + c] = x * STAGE_SCALE;
    }
  }
}

#undef STAGE
#undef STAGE_T
#undef STAGE_ROWS
#undef STAGE_WIDTH
#undef STAGE_COLS
#undef STAGE_PITCH
#undef STAGE_SLOT
#undef STAGE_SCALE
#undef STAGE_TYPE
#undef STAGE_PAGE
#undef STAGE_ROW
#undef STAGE_LOST
