// Parts of the keys (KEY_PARTS): a workgroup takes one of PARTS parts of the tiles that its queries see, and stores what it found for
// combine_parts.comp: O over the part's own sum in fp32, row after row, and the logarithm to base 2 of that sum.

layout(constant_id = 48) const uint PARTS = 1;
layout(binding = 3) writeonly buffer Sums_ { vec4 sums[]; };              // [PARTS,B,Hq,Nq,DV rounded up to 8]
layout(binding = 4) writeonly buffer Statistics_ { float statistics[]; };  // [PARTS,B,Hq,Nq]

uint part_rows;   // where the part's rows begin, in rows
uint part_row(uint row) { return part_rows + statistics_row(b * heads() + q_head + member_of(row)) + query_of(row); }

// As store_o, but nothing is converted and rows are whole.
void store_part(uint rows) {
  [[unroll]] for (uint r = 0; r < RM; ++r) [[unroll]] for (uint d = 0; d < VF; ++d) {
    coopMatStore(O[r * VF + d], PATCH_ROWS, patch_at, PATCH_PITCH, BY_ROW);
    MEET
    [[unroll]] for (uint u = 0; u < (FM * FN / 4 + SG - 1) / SG; ++u) {
      const uint x = u * SG + lane, y = min(x, FM * FN / 4 - 1), row = row0 + r * FM + y / (FN / 4), c = d * FN / 4 + y % (FN / 4);
      const vec4 four = from_v_order(uintBitsToFloat(PATCH_ROWS[patch_at + y / (FN / 4) * PATCH_PITCH + y % (FN / 4)]));
      if (((FM * FN / 4) % SG == 0 || x < FM * FN / 4) && row < rows && c < 2 * VU)
        STORED(sums, 16, sums[part_row(row) * (2 * VU) + c] = four);
    }
    MEET
  }
}
