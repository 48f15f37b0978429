#version 460
// Draws a layer of the viewer's picture: rectangles, letters, maps of attention weights and the scale of their colours.
//
// A workgroup owns an item, a piece of a rectangle of at most 64 x 64 pixels, and walks over it row by row. The pieces of a layer do not
// overlap, so that no two workgroups share a pixel; layers follow one another with a barrier between them. Pixels lie in a buffer, one word
// each, from which they are copied to an image of a swapchain or to the host.
//
// A map's cell becomes a colour by its share of a peak, the largest cell of its picture, which view_peak.comp found: the table's
// entry floor(255 t + 1/2) with t = value / peak, or with decades > 0 t = 1 + log10(value / peak) / decades, both from 0 to 1
// (package picture). A cell without any weight has the item's own colour. Pixel x of W shows cell floor(x columns / W).
//
// With lists of keys, cells of whose pairs none is listed are grey, a third as light as their colours. Where cells are large enough, a line
// runs between them and the others.
//
// Bindings: 0 items, 16 words each (item.go of package view); 1 cells of maps; 2 peaks, as the bits of fp32; 3 tables of 256 colours;
// 4 coverage of letters, a byte for each pixel of a cell; 5 pixels; 6 a bit for each pair, set where the query
// lists the key. Push constants: below. Workgroups: items of the layer.
//
// Specialization constants: 0 WG, invocations of a workgroup

layout(local_size_x = 64, local_size_x_id = 0) in;

layout(push_constant) uniform Args {
  uint first;     // item of the layer
  uint width;     // of a row of pixels
  uint swap;      // pixels are blue, green, red in rising bytes, else red, green, blue
  uint letter;    // width of a letter's cell | height << 16
};

struct Item {
  uint kind;
  uint at, size;                // of the piece: x | y << 16, width | height << 16
  uint whole_at, whole_size;    // of what it is a piece of
  uint color;                   // 0xAARRGGBB
  uint offset;                  // first byte of coverage, or first cell
  uint cells;                   // columns | rows << 16
  uint peak;
  float decades;
  uint table;
  uint marks, pitch;            // the word after that in which bits of the head begin, 0: none; words of a row
  uint query, key, queries, keys;   // that the picture is of
};

layout(set = 0, binding = 0, std430) readonly buffer Items { Item items[]; };
layout(set = 0, binding = 1, std430) readonly buffer Cells { float cells[]; };
layout(set = 0, binding = 2, std430) readonly buffer Peaks { uint peaks[]; };
layout(set = 0, binding = 3, std430) readonly buffer Tables { uint tables[]; };
layout(set = 0, binding = 4, std430) readonly buffer Coverage { uint coverage[]; };
layout(set = 0, binding = 5, std430) buffer Pixels { uint pixels[]; };
layout(set = 0, binding = 6, std430) readonly buffer Marks { uint marks[]; };

const uint FILL = 0, LETTER = 1, PICTURE = 2, RAMP = 3;

uvec2 pair(uint x) { return uvec2(x & 0xffffu, x >> 16); }

uint table_color(uint table, float t) { return tables[table * 256 + uint(floor(clamp(t, 0.0, 1.0) * 255.0 + 0.5))]; }

uint weight_color(const Item i, float value) {
  const float peak = uintBitsToFloat(peaks[i.peak]);
  if (!(value > 0) || !(peak > 0)) return i.color;
  float t = value / peak;
  if (i.decades > 0) t = 1.0 + log2(t) * 0.30102999566 / i.decades;
  return table_color(i.table, t);
}

// listed says whether one of the cell's pairs is: cell y of n holds those from floor(y length / n) on.
bool listed(const Item i, uvec2 cell, uvec2 n) {
  const uvec2 length = uvec2(i.keys, i.queries), first = uvec2(i.key, i.query) + cell * length / n,
              last = uvec2(i.key, i.query) + (cell + 1) * length / n - 1;
  for (uint q = first.y; q <= last.y; ++q)
    for (uint w = first.x / 32; w <= last.x / 32; ++w) {
      uint bits = marks[i.marks - 1 + q * i.pitch + w];
      if (w == first.x / 32) bits &= ~0u << first.x % 32;
      if (w == last.x / 32) bits &= ~0u >> 31 - last.x % 32;
      if (bits != 0) return true;
    }
  return false;
}

const uint LINE = 0xffb454;   // accent of package view
const uint LINED = 6;         // pixels of a cell that has a line, at least

// marked is the colour of a pixel of a cell where lists are marked.
uint marked(const Item i, uint color, uvec2 in_whole, uvec2 whole_size, uvec2 cell, uvec2 n) {
  if (!listed(i, cell, n)) {
    if (color == (i.color & 0xffffffu)) return color;
    const uint light = (color >> 16 & 255u) * 54 + (color >> 8 & 255u) * 183 + (color & 255u) * 19;
    return light / 768 * 0x010101u;
  }
  if (any(lessThan(whole_size, n * LINED))) return color;
  const ivec2 beside[4] = ivec2[](ivec2(-1, 0), ivec2(1, 0), ivec2(0, -1), ivec2(0, 1));
  for (uint d = 0; d < 4; ++d) {
    const uvec2 p = uvec2(ivec2(in_whole) + beside[d]);
    if (any(greaterThanEqual(p, whole_size))) continue;
    const uvec2 other = p * n / whole_size;
    if (other != cell && !listed(i, other, n)) return LINE;
  }
  return color;
}

// over mixes 0xRRGGBB of a pixel with a colour, as far as alpha, 0 to 255, says.
uint over(uint below, uint color, uint alpha) {
  uint mixed = 0;
  for (uint shift = 0; shift < 24; shift += 8) {
    const uint a = below >> shift & 255u, b = color >> shift & 255u;
    mixed |= (a * (255u - alpha) + b * alpha + 127u) / 255u << shift;
  }
  return mixed;
}

uint swapped(uint c) { return c & 0xff00ff00u | c >> 16 & 255u | (c & 255u) << 16; }

void main() {
  const Item i = items[first + gl_WorkGroupID.x];
  const uvec2 at = pair(i.at), size = pair(i.size), whole_at = pair(i.whole_at), whole_size = pair(i.whole_size), n = pair(i.cells);
  const uvec2 glyph = pair(letter);
  for (uint pixel = gl_LocalInvocationIndex; pixel < size.x * size.y; pixel += gl_WorkGroupSize.x) {
    const uvec2 p = at + uvec2(pixel % size.x, pixel / size.x), in_whole = p - whole_at;
    const uint to = p.y * width + p.x;
    uint color = i.color, alpha = i.color >> 24;
    if (i.kind == LETTER) {
      const uint byte = i.offset + in_whole.y * glyph.x + in_whole.x;
      alpha = coverage[byte / 4] >> 8 * (byte % 4) & 255u;
    } else if (i.kind == PICTURE) {
      const uvec2 cell = in_whole * n / whole_size;
      color = weight_color(i, cells[i.offset + cell.y * n.x + cell.x]) & 0xffffffu;
      if (i.marks != 0) color = marked(i, color, in_whole, whole_size, cell, n);
      alpha = 255;
    } else if (i.kind == RAMP) {
      color = table_color(i.table, float(in_whole.x) / float(max(whole_size.x - 1, 1)));
      alpha = 255;
    }
    if (alpha == 0) continue;
    if (alpha < 255) {
      const uint below = pixels[to];
      color = over(swap == 0 ? swapped(below) : below, color, alpha);
    }
    color |= 0xff000000u;
    pixels[to] = swap == 0 ? swapped(color) : color;
  }
}
