// Where the row of a key lies. In builds for caches (CACHE) keys and values may lie in pages of PAGE rows of two pools, and a table says
// which pages are those of a batch entry, in order (Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", 2023, section 4): key j is row j % PAGE of page number table[j / PAGE]. Strides of batch are those between pages then.
// PAGE is 0 where keys lie as tensors.
//
// A table is dense, [batch, page_row], or COMPRESSED: all numbers one behind the other, those of entry b from page_starts[b] up to
// page_starts[b + 1], and last_pages[b] says how many rows of its last page there are: its number of keys.
//
// A number outside of the pool is never followed: the row is read as zeros. Who reads asks is_lost, and replaces what it read of the first
// page by zeros. Nothing is read beyond the table, nor beyond the numbers of an entry with a dense one, for keys are clamped to nk.
//
// A kernel defines PAGES, the binding of the table, LENGTHS, where page_starts lie (a compressed table has no other lengths), and SCORE_AT.
// In other builds there is none of it, and the macros below are what they were.

#ifndef PAGES_GLSL
#define PAGES_GLSL
#ifdef CACHE
#include "more.glsl"

layout(constant_id = 104) const uint PAGE = 0;
layout(constant_id = 105) const bool COMPRESSED = false;
const uint PAGE_ROWS = PAGE == 0 ? 1 : PAGE;

layout(set = 0, binding = PAGES, std430) readonly buffer PageTable_ { uint page_table[]; };
layout(set = 0, binding = LENGTHS, std430) readonly buffer PageStarts_ { int page_starts[]; };
layout(set = 0, binding = SCORE_AT + 4, std430) readonly buffer LastPages_ { int last_pages[]; };

uint page_at, page_end;   // of the entry's numbers in the table: the first, and the last that may be read

void take_pages(uint b) {
  if (PAGE == 0) return;
  page_at = page_table_off + b * page_row;
  page_end = page_at + page_row - 1;
  if (COMPRESSED) {
    page_end = page_table_off + page_row - 1;
    page_at = page_table_off + uint(clamp(page_starts[page_starts_off + b], 0, int(page_row)));
  }
}
// COMPRESSED: the entry's keys, `most` at most.
uint keys_of_pages(uint b, uint most) {
  const int first = clamp(page_starts[page_starts_off + b], 0, int(page_row));
  const int pages = clamp(page_starts[page_starts_off + b + 1], first, int(page_row)) - first;
  // rows before the last page, or more than there can be
  const uint whole = min(uint(max(pages, 1)) - 1, most / PAGE_ROWS + 1) * PAGE_ROWS;
  return pages == 0 ? 0 : min(most, whole + uint(clamp(last_pages[last_pages_off + b], 1, int(PAGE_ROWS))));
}

uint page_of(uint key) { return PAGE == 0 ? 0 : page_table[min(page_at + key / PAGE_ROWS, page_end)]; }
bool is_lost(uint page) { return PAGE != 0 && page >= page_count; }
// The element where the row of a key of this page begins; origin is where those of the entry and head do, or of the head with pages.
uint row_in_page(uint origin, uint key, uint page, uint sb, uint sn) {
  return PAGE == 0 ? origin + key * sn : origin + (is_lost(page) ? 0 : page) * sb + key % PAGE_ROWS * sn;
}
#define K_OFF (K_TYPE == 0 ? k_off() : 0)   // of quantised tensors it counts other steps than elements: quantised.glsl
#define V_OFF (V_TYPE == 0 ? v_off() : 0)
#else
const uint PAGE = 0;
#define K_OFF k_off()
#define V_OFF v_off()
#endif
#endif
