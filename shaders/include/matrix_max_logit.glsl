// MAX_LOGIT in the forward kernels on matrices that own rows: what a subgroup sees of the largest score of each head. References stay
// behind maxima, so each lane notes the largest of its own scores, chunk after chunk, of each of its rows: products, or scores in units of
// log 2 where these are SCORED.
//
// Needs max_logit.glsl and matrix_layout.glsl, largest[], one for each row that a lane notes, scale, b, q_head, member_of() and, of noted
// row x of the lane, NOTED_ROW(x), its number, IS_NOTED(x), whether there is such a row, and NOTED_SUM(x), its l: of forms 1 and 2 that of
// the lane's columns, and row x is slot x.

void forget_scores() { [[unroll]] for (uint x = 0; x < largest.length(); ++x) largest[x] = -infinity(); }
// Forms 1 and 2: top has the largest of a chunk.
void note_scores() { [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) largest[x] = max(largest[x], top[x]); }

// The key of noted row x, NO_LOGIT from row `rows` on. Before sums of rows meet.
int noted(uint x, uint rows) {
  if (!IS_NOTED(x) || NOTED_ROW(x) >= rows) return NO_LOGIT;
  return logit_of(largest[x] * scale, NOTED_SUM(x));
}
// Of all rows that the lane notes, which are of one head.
int noted_of_all(uint rows) {
  int own = NO_LOGIT;
  [[unroll]] for (uint x = 0; x < largest.length(); ++x) own = max(own, noted(x, rows));
  return own;
}
// What lanes noted of head q_head, added to it by one of them.
void add_logit_of_subgroup(int own) {
  [[unroll]] for (uint step = 1; step < SG; step *= 2) own = max(own, subgroupShuffleXor(own, step));
  if (lane == 0) add_logit(b * heads() + q_head, own);
}
// What they noted of rows, each of which may be of another head.
void add_logits_of_rows(uint rows) {
  [[unroll]] for (uint x = 0; x < largest.length(); ++x) {
    int own = noted(x, rows);
    if (FORM != 3)
      [[unroll]] for (uint bit = 0; bit < 7; ++bit) if (WEIGHT(COL_LANE, bit) != 0u) own = max(own, subgroupShuffleXor(own, 1u << bit));
    if (FORM == 3 || col_lane == 0) add_logit(b * heads() + q_head + member_of(NOTED_ROW(x)), own);
  }
}
void add_logits(uint rows) { if (PACK) add_logits_of_rows(rows); else add_logit_of_subgroup(noted_of_all(rows)); }
