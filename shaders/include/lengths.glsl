// How many keys and queries the batch entry has that a workgroup works on: nk and nq, or of a padded batch as many as KEY_LENGTHS and
// QUERY_LENGTHS say, int32 numbers for each entry in device memory, which are taken to the nearest there can be. Tensors lie as for nk and
// nq whatever the lengths are: nk and nq are for addresses, key_count() and query_count() for what is seen. What lies beyond is never
// used, whatever it is: places are clamped to last_key() and last_query(), or replaced by zero.
//
// The diagonals of causal order and windows are those of the entry, bottom right: moved by (keys - nk) - (queries - nq). TOP_LEFT says that
// causal order is j <= i all the same; last_shift is that of the window alone then.
//
// Packed sequences are such a padded batch, with both constants true; their lengths are in the table of rows.glsl.
//
// A kernel that can do with lengths defines LENGTHS, the first of two bindings, which are there with both constants false too, and SCORE_AT
// (more.glsl), and calls take_lengths() before anything asks. In others both functions give nk and nq. In builds for caches entries with a
// compressed table of pages have the keys that it says (pages.glsl): KEY_LENGTHS is true for them too.

#ifndef LENGTHS_GLSL
#define LENGTHS_GLSL
#ifdef LENGTHS
#include "more.glsl"
#include "pages.glsl"
#endif
#include "rows.glsl"
#ifdef LENGTHS

layout(constant_id = 90) const bool KEY_LENGTHS = false;
layout(constant_id = 91) const bool QUERY_LENGTHS = false;
layout(constant_id = 92) const bool TOP_LEFT = false;
#ifdef CACHE
const bool LENGTHS_OR_PAGES = KEY_LENGTHS || COMPRESSED;
#define KEY_LENGTHS LENGTHS_OR_PAGES
#endif
const bool PADDED = KEY_LENGTHS || QUERY_LENGTHS;

layout(set = 0, binding = LENGTHS, std430) readonly buffer KeyLengths_ { int key_lengths[]; };
layout(set = 0, binding = LENGTHS + 1, std430) readonly buffer QueryLengths_ { int query_lengths[]; };

uint own_keys, own_queries;
int own_first_shift, own_last_shift;

uint key_count() { return KEY_LENGTHS ? own_keys : nk; }
uint query_count() { return QUERY_LENGTHS ? own_queries : nq; }
// The last of them; 0 where there is none.
uint last_key() { return KEY_LENGTHS ? max(own_keys, 1) - 1 : nk - 1; }
uint last_query() { return QUERY_LENGTHS ? max(own_queries, 1) - 1 : nq - 1; }
int low_shift() { return PADDED ? own_first_shift : first_shift; }
int high_shift() { return PADDED ? own_last_shift : last_shift; }
bool query_exists(uint query) { return !QUERY_LENGTHS || query < own_queries; }

// own_keys and own_queries as given for a batch entry.
uint given_keys(uint b) { return uint(clamp(key_lengths[key_lengths_off + b], 0, int(nk))); }
uint given_queries(uint b) { return uint(clamp(query_lengths[query_lengths_off + b], 0, int(nq))); }
// What follows of them.
void move_shifts() {
  const int moved = int(own_keys) - int(nk) - int(own_queries) + int(nq);
  own_first_shift = first_shift + moved;
  own_last_shift = last_shift + moved;
  if (TOP_LEFT) own_last_shift = min(own_last_shift, 0);
  own_last_shift = max(own_last_shift, own_first_shift - 1);   // a band that is empty ends before it begins by no more than one
}
void take_lengths(uint b) {
#ifdef CACHE
  take_pages(b);
#endif
  if (PADDED) {
    own_keys = nk; own_queries = nq;
    if (PACKED) {
      take_slots(b);
      own_keys = used_keys(b); own_queries = used_queries(b);
    } else {
      if (KEY_LENGTHS) own_keys = given_keys(b);
#ifdef CACHE
      if (COMPRESSED) own_keys = keys_of_pages(b, nk);
#endif
      if (QUERY_LENGTHS) own_queries = given_queries(b);
    }
    move_shifts();
  }
}
#else
const bool KEY_LENGTHS = false, QUERY_LENGTHS = false, PADDED = false;
uint key_count() { return nk; }
uint query_count() { return nq; }
uint last_key() { return nk - 1; }
uint last_query() { return nq - 1; }
int low_shift() { return first_shift; }
int high_shift() { return last_shift; }
bool query_exists(uint query) { return true; }
void take_lengths(uint b) {}
#endif
#endif
