// The form of the two backward kernels in which subgroups divide the columns of the sums, which are the head dimension, so that S and dP
// are made once where a subgroup cannot hold the sums of its own rows (built with SLICED).
//
// Dao, "FlashAttention-2", 2023, algorithm 2, as matrix_backward.glsl has it; what differs is who computes what of a staged tile:
//
//   1. scores   SHARE subgroups have the same RM row fragments and divide the tile's columns; with two ROLES half of them make S and P, the
//               others dP, each for twice as many columns, and a subgroup keeps operands of A or of B alone
//   2. weights  P (kv) and dS go to shared memory (H) as elements of the storage type, rows of the workgroup by columns of the tile. With
//               two roles P meets dP on the way, in fp32 (E), and those that have dP make dS
//   3. sums     W / COLUMNS teams of COLUMNS subgroups: a team has BR COLUMNS / W rows, each subgroup of it one slice of D and DV, and it
//               takes P and dS of all rows of the team, for all columns of the tile
//
// Why: A and B of one row fragment of 16 are (D + DV)/4 registers of each of 32 lanes, dK and dV (D + DV)/2: 384 at D 256, where there are
// 255. Divided so, 64 keys of D 256 take 64 registers of 8 subgroups for operands and 128 for sums; and a fragment of the tile that is read
// for the sums serves all rows of a team. The price is P and dS through shared memory and a barrier a tile, two with roles. docs/notes.md
// counts them.
//
// Form 1 makes weights in registers; in forms 2 and 3 S and dP go to shared memory, and all invocations take pieces of 8 columns.
//
// Specialization constants: 50 COLUMNS    slices of the sums' columns; it divides W, and W / COLUMNS divides the row fragments BR/FM
//   51 SHARE    subgroups that have the same rows in step 1; it divides W. BC is a multiple of CK SHARE / ROLES
//   52 ROLES    1 or 2; with 2 SHARE is even, BC is CK SHARE / 2, and A_REG and B_REG keep all slices

const uint SUM_RM = BR / FM * COLUMNS * SG / WG;                // row fragments of a team
const uint H_PITCH = BC / 8 | 1u, E_PITCH = BC + 8;             // of rows in shared memory: no bank conflicts
const uint DS_AT = 0, P_AT = BR * H_PITCH;                      // in H
const uint SECOND = BR * E_PITCH;                               // in E: dP behind S; slopes behind P
const uint H_PIECES = BR * (BC / 8), H_EACH = (H_PIECES + WG - 1) / WG;

uint slice, team0;   // of the sums: which slice of columns, and the team's first row in the block

// Roles lie W/2 subgroups apart, so that every scheduler of a multiprocessor has subgroups of both.
void take_share() {
  const uint of_role = WG / SG / ROLES, place = gl_SubgroupID % of_role, each = SHARE / ROLES;
  role = gl_SubgroupID / of_role; own = place % each; sub0 = place / each * RM * FM;
  slice = gl_SubgroupID % COLUMNS; team0 = gl_SubgroupID / COLUMNS * SUM_RM * FM;
}
// Rows are the team's from here on.
void take_sums() { row0 = row0 - sub0 + team0; }

// Chunk c of the tile as the subgroup's operands are put where the team finds them.
#define PUT(operands, at, c)                                                                                              \
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NP; ++n)                                        \
    coopMatStore(operands[r * NP + n], H, at + (sub0 + r * FM) * H_PITCH + ((c) * CK + n * FK) / 8, H_PITCH, BY_ROW);
// Row fragment r of the team, columns from k on.
FRAG_A of_team(uint at, uint r, uint k) {
  FRAG_A x; coopMatLoad(x, H, at + (team0 + r * FM) * H_PITCH + k / 8, H_PITCH, BY_ROW);
  return x;
}
// Steps of the sums over a tile: FK columns each. Those of a chunk are unrolled.
#define EACH_STEP(k) \
  [[dont_unroll]] for (uint k0 = 0; k0 < BC; k0 += CK) [[unroll]] for (uint k = k0; k < k0 + CK; k += FK)
#define IN_SLICE(d, each, n) (n % COLUMNS == 0 || slice * each + d < n)
// sum += X y over the tile: X the team's rows of what lies at `at` in H, y the subgroup's columns of what lies at `from` in T, `each` of
// its n fragments across. (A macro, as sum is an array of any length.)
#define ADD_TEAM(sum, at, from, pitch, each, n)                                                                            \
  EACH_STEP(k) {                                                                                                          \
    FRAG_A x[SUM_RM];                                                                                                     \
    [[unroll]] for (uint r = 0; r < SUM_RM; ++r) x[r] = of_team(at, r, k);                                                \
    [[unroll]] for (uint d = 0; d < each; ++d) if (IN_SLICE(d, each, n)) {                                                \
      FRAG_B y; coopMatLoad(y, T, from + k * pitch + (slice * each + d) * FN / 8, pitch, BY_ROW);                         \
      [[unroll]] for (uint r = 0; r < SUM_RM; ++r) sum[r * each + d] = coopMatMulAdd(x[r], y, sum[r * each + d]);         \
    }                                                                                                                     \
  }

// Fragment n of row fragment r of chunk c, in E.
uint exchanged(uint c, uint r, uint n) { return (sub0 + r * FM) * E_PITCH + c * CK + n * FN; }

// ROLES 2: S or dP (on top of what is there), in the place of dP.
void products_of_role(uint c) {
  const uint from = role == 0 ? tile_at : tile_at + B_AT, pitch = A_PITCH == B_PITCH || role == 0 ? A_PITCH : B_PITCH;
  [[unroll]] for (uint d = 0; d < AM; ++d) if (DF == EF || d < (role == 0 ? DF : EF)) [[unroll]] for (uint n = 0; n < NS; ++n) {
    FRAG_B b; coopMatLoad(b, T, from + (c * CK + n * FN) * pitch + d * FK / 8, pitch, BY_COLUMN);
    [[unroll]] for (uint r = 0; r < RM; ++r) dP[r * NS + n] = coopMatMulAdd(Am[r * AM + d], b, dP[r * NS + n]);
  }
}

// The subgroup's own chunk c of the staged tile: what scores are made of, up to where others need it.
void chunk(uint c, bool masked) {
  c += own * CHUNKS;
#ifndef KV
  if (BIAS_PAIRS && role == 0) ask_bias(first_key + c * CK + col_lane);
#endif
  if (ROLES == 2) {
    zero_gradients();
    if (FORM == 1) { if (role == 1) minus_delta(c); }
    products_of_role(c);                  // S = A a^T or dP - delta = B b^T - delta
    if (FORM == 1) {
      if (role == 0) {
        [[unroll]] for (uint x = 0; x < RM * NS; ++x) S[x] = dP[x];
        weights(c, masked);               // P = exp(scale S - lse)
        [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) {
          coopMatStore(S[r * NS + n], E, exchanged(c, r, n), E_PITCH, BY_ROW);
          if (SLOPES) coopMatStore(slopes[r * NS + n], E, SECOND + exchanged(c, r, n), E_PITCH, BY_ROW);
        }
#ifdef KV
        weights_to_operand(c);
        PUT(P, P_AT, c)
#endif
      }
    } else [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n)
      coopMatStore(dP[r * NS + n], E, role * SECOND + exchanged(c, r, n), E_PITCH, BY_ROW);
    return;
  }
  scores(c);                              // S = A a^T
  if (FORM == 1) {
    weights(c, masked);                   // P = exp(scale S - lse)
#ifdef KV
    weights_to_operand(c);
    PUT(P, P_AT, c)
#endif
    minus_delta(c);                       // dP - delta = B b^T - delta
    weight_gradients(c);
    score_gradients(c);                   // dS = P o (dP - delta)
    gradients_to_operand();
    PUT(dS, DS_AT, c)
  } else {
    zero_gradients();
    weight_gradients(c);
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) {
      coopMatStore(S[r * NS + n], E, exchanged(c, r, n), E_PITCH, BY_ROW);
      coopMatStore(dP[r * NS + n], E, SECOND + exchanged(c, r, n), E_PITCH, BY_ROW);
    }
  }
}

// Form 1, ROLES 2: dS, by those that have dP, for the chunk that is theirs.
void gradients_of_role() {
  if (role == 1) {
    [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint n = 0; n < NS; ++n) {
      coopMatLoad(S[r * NS + n], E, exchanged(own, r, n), E_PITCH, BY_ROW);
      if (SLOPES) coopMatLoad(slopes[r * NS + n], E, SECOND + exchanged(own, r, n), E_PITCH, BY_ROW);
    }
    score_gradients(own);
    gradients_to_operand();
    PUT(dS, DS_AT, own)
  }
}
// P and dS of the tile are in H, and all may read them.
void shared_weights(bool masked) {
  barrier();
  if (FORM != 1) {
    EACH(H_PIECES, H_EACH, u, x) {
      const uint row = x / (BC / 8), col0 = x % (BC / 8) * 8, at = row * E_PITCH + col0;
      uvec4 p, ds;
      weights_of_piece(row, col0, at, at + SECOND, masked, p, ds);
      H[DS_AT + row * H_PITCH + col0 / 8] = ds;
#ifdef KV
      H[P_AT + row * H_PITCH + col0 / 8] = p;
#endif
    }
    barrier();
  }
}
