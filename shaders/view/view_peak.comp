#version 460
// Finds the largest cell of each of several pictures, for the scale of their colours in view_draw.comp.
//
// Cells are not negative, so that their bits are in the order of their values. A workgroup takes the largest of a chunk of a picture's
// cells and joins it to the picture's peak, and to the one of all pictures. Peaks must be 0 before. The order in which workgroups come does
// not matter: the same cells give the same bits.
//
// Bindings: 0 cells, pictures one behind the other; 1 peaks. Push constants: below. Workgroups: chunks of a picture, times pictures.
//
// Specialization constants: 0 WG, invocations of a workgroup

layout(local_size_x = 64, local_size_x_id = 0) in;

layout(push_constant) uniform Args {
  uint first;       // cell of the first picture
  uint each;        // cells of a picture
  uint chunk;       // that a workgroup takes
  uint first_peak;
  uint joint_peak;  // of all pictures
};

layout(set = 0, binding = 0, std430) readonly buffer Cells { float cells[]; };
layout(set = 0, binding = 1, std430) buffer Peaks { uint peaks[]; };

shared uint largest;

void main() {
  if (gl_LocalInvocationIndex == 0) largest = 0;
  barrier();
  uint own = 0;
  const uint begin = gl_WorkGroupID.x * chunk, end = min(begin + chunk, each);
  for (uint i = begin + gl_LocalInvocationIndex; i < end; i += gl_WorkGroupSize.x)
    own = max(own, floatBitsToUint(max(cells[first + gl_WorkGroupID.y * each + i], 0.0)));
  atomicMax(largest, own);
  barrier();
  if (gl_LocalInvocationIndex == 0) {
    atomicMax(peaks[first_peak + gl_WorkGroupID.y], largest);
    atomicMax(peaks[joint_peak], largest);
  }
}
