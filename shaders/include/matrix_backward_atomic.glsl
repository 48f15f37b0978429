// dQ in the kernel of keys (matrix_backward_kv.comp with ATOMIC_DQ): the five products of Dao, "FlashAttention-2", 2023, algorithm 2, line
// 15, "load dQ_i, update dQ_i <- dQ_i + dS_ij K_j and write it back, atomically". The order in which workgroups add is not fixed, so the
// last bits of dQ differ from run to run.
//
// dS of a chunk goes from all subgroups into shared memory, by query, and comes back as left operands: queries are rows now, and keys what
// is summed over. Right operands are the workgroup's keys. The product of a chunk is MQ x DN fragments, MQ = CK/FM: a subgroup has one
// column of them, or every W-th, and all its rows, or where there are more subgroups than columns every SHARES-th. Its accumulators live
// for the one product. As columns stay a subgroup's own, its part of K can stay in registers, K_REG slices of FK keys of it; the other
// slices of K are in shared memory, whole.
//
// Shared memory holds dS of one chunk where tiles are single chunks, as the barriers between tiles keep the next one's dS apart; else of
// two by turns. So there is one barrier a chunk.
//
// Specialization constants beside those of matrix_backward.glsl (CK must be a multiple of FM, BR one of FK, FM one of 8):
//  45 K_REG     slices of FK keys whose columns stay in registers, 0 .. BR/FK
//  46 K_LEN     16 bytes: (BR - K_REG FK) A_PITCH, at least 16
//  47 DS_LEN    16 bytes: CK odd(BR/8), twice that where CK < BC or PREFETCH is 2
// Binding 14: matrix_backward_sums.glsl.

#extension GL_EXT_shader_atomic_float : require
#include "matrix_backward_sums.glsl"

layout(constant_id = 45) const uint K_REG = 0;
layout(constant_id = 46) const uint K_LEN = 16;
layout(constant_id = 47) const uint DS_LEN = 48;

const uint W = WG / SG, MQ = CK / FM, SLICES = BR / FK;
const uint SHARES = W < DN ? 1 : W / DN;          // subgroups that share a column of fragments
const uint QN = (DN + W - 1) / W, QM = (MQ + SHARES - 1) / SHARES;   // columns and rows of fragments of a subgroup
const uint DS_PITCH = BR / 8 | 1u;
const bool BY_TURNS = CHUNKS + PREFETCH / 2 > 1;
const uint FITTING = TILE_LEN / (FK * A_PITCH);   // slices of K that the staged tiles have room for
const uint FITTING_PIECES = FITTING * FK * A_WIDTH, FITTING_EACH = (FITTING_PIECES + WG - 1) / WG;

shared uvec4 K_rows[K_LEN];      // keys from K_REG FK on
shared uvec4 DS_TILE[DS_LEN];         // dS of a chunk, queries by keys
FRAG_B K_columns[K_REG > 0 ? QN * K_REG : 1];
uint ds_at;                      // which of two

// Column j of the subgroup, which may be beyond the last, and its share of the rows.
uint own_column(uint j) { return W < DN ? gl_SubgroupID + j * W : gl_SubgroupID % DN; }
uint own_share() { return W < DN ? 0 : gl_SubgroupID / DN; }

// 16 bytes of a key of the workgroup's, 0 beyond the last key and column.
uvec4 key_piece(uint row, uint c) {
  const uvec4 y = row_a(first_row + row, min(c, AU - 1), first_row + row < key_count() && c < AU);
  return first_row + row < key_count() && c < AU ? y : uvec4(0);
}
// The keys as right operands. Slices that stay in registers enter through the room of the tiles, of which none is staged yet. Their loops
// have constant counts, as docs/notes.md asks of loops over fragments ("The trap").
void take_keys() {
  ds_at = 0;
  for (uint x = tid; x < (BR - K_REG * FK) * A_WIDTH; x += WG)
    K_rows[x / A_WIDTH * A_PITCH + x % A_WIDTH] = key_piece(K_REG * FK + x / A_WIDTH, x % A_WIDTH);
  if (K_REG > 0) {
    [[unroll]] for (uint from = 0; from < K_REG; from += FITTING) {
      EACH(FITTING_PIECES, FITTING_EACH, u, x)
        T[x / A_WIDTH * A_PITCH + x % A_WIDTH] = key_piece(min(from * FK + x / A_WIDTH, BR - 1), x % A_WIDTH);
      barrier();
      [[unroll]] for (uint s = 0; s < FITTING; ++s) [[unroll]] for (uint j = 0; j < QN; ++j) if (from + s < K_REG)
        coopMatLoad(K_columns[j * K_REG + min(from + s, K_REG - 1)], T, s * FK * A_PITCH + min(own_column(j), DN - 1) * FN / 8, A_PITCH,
          BY_ROW);
      barrier();
    }
  }
}

// Keys beyond the last have weights of their own, which nothing else uses: their dS is 0 here. Each 16 bytes are of one subgroup's keys.
void drop_unreal_keys() {
  if (first_row + BR > key_count()) {   // of all subgroups together: lavapipe takes a barrier of one for one of the workgroup
    MEET
    for (uint x = lane; x < CK * (RM * FM / 8); x += SG) {
      const uint c = x % (RM * FM / 8), at = ds_at + x / (RM * FM / 8) * DS_PITCH + sub0 / 8 + c;
      const uint n = uint(clamp(int(key_count()) - int(row0 + c * 8), 0, 8));   // of the 8 keys
      const uvec4 kept = uvec4(n < 1 ? 0 : n < 2 ? 0xffffu : ~0u, n < 3 ? 0 : n < 4 ? 0xffffu : ~0u,
        n < 5 ? 0 : n < 6 ? 0xffffu : ~0u, n < 7 ? 0 : n < 8 ? 0xffffu : ~0u);
      DS_TILE[at] &= kept;
    }
  }
}

// dQ += dS K for chunk c, over all keys of the workgroup.
void add_dq(uint c) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NP; ++n)
    coopMatStore(dS[r * NP + n], DS_TILE, ds_at + n * FK * DS_PITCH + (sub0 + r * FM) / 8, DS_PITCH, BY_COLUMN);
  drop_unreal_keys();
  barrier();
  if (own_share() < SHARES && own_column(0) < DN) {
    ACC dQ[QM * QN];
    [[unroll]] for (uint x = 0; x < QM * QN; ++x) dQ[x] = ACC(0.0);
    [[unroll]] for (uint s = 0; s < SLICES; ++s) {
      FRAG_B k[QN];
      [[unroll]] for (uint j = 0; j < QN; ++j) {
        if (s < K_REG) k[j] = K_columns[j * K_REG + min(s, K_REG - 1)];
        else coopMatLoad(k[j], K_rows, (s - K_REG) * FK * A_PITCH + min(own_column(j), DN - 1) * FN / 8, A_PITCH, BY_ROW);
      }
      [[unroll]] for (uint m = 0; m < QM; ++m) {
        FRAG_A ds; coopMatLoad(ds, DS_TILE, ds_at + min(own_share() + m * SHARES, MQ - 1) * FM * DS_PITCH + s * FK / 8, DS_PITCH, BY_ROW);
        [[unroll]] for (uint j = 0; j < QN; ++j) dQ[m * QN + j] = coopMatMulAdd(ds, k[j], dQ[m * QN + j]);
      }
    }
    [[unroll]] for (uint m = 0; m < QM; ++m) [[unroll]] for (uint j = 0; j < QN; ++j) {
      const uint row = own_share() + m * SHARES, query = first_query + c * CK + row * FM;
      if (row < MQ && own_column(j) < DN && query < query_count()) {
        const uint to = sums_at(tile_head, query, own_column(j)) + lane;
        [[unroll]] for (uint e = 0; e < dQ[0].length(); ++e) STORED(sums, 4, atomicAdd(sums[to + e * SG], dQ[m * QN + j][e]));
      }
    }
  }
  if (BY_TURNS) ds_at = CK * DS_PITCH - ds_at;
}
