// Which keys a query sees where each has a list of them: numbers of keys of the batch entry, list_keys for each query, in any order, for
// all key heads or with LISTS_PER_HEAD for one. A kernel walks over places in the list in the place of keys, and asks for the key at each.
//
// The list is not trusted. What is no key of the batch entry is NO_KEY, as is a key that the query does not see by its position: kernels
// neither read nor compute it.
//
// Needs mask.glsl, key_heads() and nq of the arguments, and LISTS_AT, a binding, and SCORE_AT: where the lists lie stands behind the
// further arguments (internal/kernel/scores.go).

layout(constant_id = 116) const bool LISTS_PER_HEAD = false;
layout(set = 0, binding = LISTS_AT, std430) readonly buffer Lists_ { int lists[]; };
layout(set = 0, binding = SCORE_AT, std430) readonly buffer ListsPlace_ { uint more_before_lists[25]; uint lists_off, list_keys; };

const uint NO_KEY = 0xffffffffu;

uint list_at;     // of the query's list: where it begins
Span list_span;   // keys that the query sees by its position

uint list_of(uint b, uint kh, uint query) { return lists_off + ((LISTS_PER_HEAD ? b * key_heads() + kh : b) * nq + query) * list_keys; }
void take_list(uint b, uint kh, uint query) {
  list_at = list_of(b, kh, query);
  list_span = keys_of(query);
}
uint listed_key(uint place) {
  if (place >= list_keys) return NO_KEY;
  const uint key = uint(lists[list_at + place]);
  return int(key) >= 0 && has(list_span, key) ? key : NO_KEY;
}
