// Blocks of packed sequences in an order in which the keys and values that blocks share stay in a cache: those of `together` heads, of
// of_heads in all, go side by side, longest first, and then those of the next heads. Where queries see a part of the keys, the blocks of a
// sequence differ in length: among those of all heads, every other sequence's come between two of them. That ends sooner by a little where
// all keys and values fit into a cache.
Place place_of_items(uint id, uint of_heads, uint together) {
  const uint n = items(), side = min(together, of_heads), first_head = id / (side * n) * side, members = min(side, of_heads - first_head);
  const uint rest = id - first_head * n;
  const uvec2 at = item(rest / members);
  return Place(at.x * of_heads + first_head + rest % members, at.y);
}
