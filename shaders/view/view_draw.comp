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
// Bindings: 0 items, 16 words each (item.go of package view); 1 cells of maps; 2 peaks, as the bits of fp32; 3 tables of 256 colours;
// 4 coverage of letters, a byte for each pixel of a cell; 5 pixels. Push constants: below. Workgroups: items of the layer.
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
  uint unused[5];
};

layout(set = 0, binding = 0, std430) readonly buffer Items { Item items[]; };
layout(set = 0, binding = 1, std430) readonly buffer Cells { float cells[]; };
layout(set = 0, binding = 2, std430) readonly buffer Peaks { uint peaks[]; };
layout(set = 0, binding = 3, std430) readonly buffer Tables { uint tables[]; };
layout(set = 0, binding = 4, std430) readonly buffer Coverage { uint coverage[]; };
layout(set = 0, binding = 5, std430) buffer Pixels { uint pixels[]; };

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
      color = weight_color(i, cells[i.offset + cell.y * n.x + cell.x]);
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
