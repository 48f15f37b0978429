// lse and delta of the workgroup's rows, for the backward kernels on matrices whose rows are queries: made once for a block of them.

float l[RM * SLOTS], delta_[RM * SLOTS];   // form 1: lse in units of log 2 and delta, of this lane's rows

float lse_at(uint row, uint col, uint r, uint e) { return FORM == 1 ? l[r * SLOTS + SLOT_OF(e)] : stats[row].x; }
float delta_at(uint row, uint col, uint r, uint e) { return FORM == 1 ? delta_[r * SLOTS + SLOT_OF(e)] : stats[row].y; }
void fetch_statistics(uint member, uint from) {}   // once for all tiles, instead:
void store_statistics(uint at, uint from) {}
float load_lse(uint row) {
  return row < query_count() ? log2_units(LOADED(lse, 4, lse[lse_off() + statistics_row(bh) + min(row, last_query())])) : infinity();
}
#ifdef TANGENTS
float load_delta(uint row) { return 0; }   // there is none
#else
float load_delta(uint row) {
  const float x = LOADED_IF(delta, 4, row < query_count(), delta[delta_off() + statistics_row(bh) + min(row, last_query())]);
  return query_exists(row) ? WITHOUT_SCALE(x) : 0;
}
#endif
void load_statistics() {
  if (FORM == 1) {
    [[unroll]] for (uint x = 0; x < RM * SLOTS; ++x) {
      const uint row = row0 + x / SLOTS * FM + row_lane + TABLE(ROW_OF_SLOT, x % SLOTS);
      l[x] = load_lse(row); delta_[x] = load_delta(row);
    }
  } else {
    for (uint x = tid; x < BR; x += WG) stats[x] = vec2(load_lse(first_query + x), load_delta(first_query + x));
  }
}
