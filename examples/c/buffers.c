/* Attention on VkBuffers of a device that this program has made, as a renderer or an engine has one, compared with a loop in float64:
 *
 *     make lib
 *     cc -O2 -Ibin -Ivk/include -o bin/buffers examples/c/buffers.c -Lbin -lvkattn -ldl -lm -Wl,-rpath,"$PWD/bin"
 *     tools/run.sh bin/buffers
 *
 * It prints the largest difference, and exits with 1 where it is beyond the bound or a call fails.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define VK_NO_PROTOTYPES
#include "vkattn.h"
#include "vulkan/vulkan_core.h"

enum { B = 1, H = 3, N = 45, D = 16, COUNT = B * H * N * D };

/* require ends the program with what went wrong. */
static void require(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "%s\n", what);
    exit(1);
  }
}

/* check ends the program where a call of the library has failed. */
static void check(vkattn_status status, char *error) { require(status == VKATTN_OK, error); }

/* The functions of Vulkan that this program calls. */
static PFN_vkGetInstanceProcAddr get;
static PFN_vkGetDeviceProcAddr get_of_device;
static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
#define INSTANCE(name) ((PFN_##name)get(instance, #name))
#define DEVICE(name) ((PFN_##name)get_of_device(device, #name))

/* open_device makes an instance and a device without any feature, and gives a queue that computes. */
static VkQueue open_device(uint32_t *family) {
  void *loader = dlopen("libvulkan.so.1", RTLD_NOW);
  require(loader != NULL, "no Vulkan loader");
  *(void **)&get = dlsym(loader, "vkGetInstanceProcAddr"); /* as POSIX has it: ISO C knows no such conversion */
  const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
  const VkInstanceCreateInfo make = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
  require(INSTANCE(vkCreateInstance)(&make, NULL, &instance) == VK_SUCCESS, "no Vulkan instance");

  uint32_t one = 1;
  INSTANCE(vkEnumeratePhysicalDevices)(instance, &one, &physical);
  require(one == 1, "no Vulkan device");
  VkQueueFamilyProperties families[16];
  uint32_t count = 16;
  INSTANCE(vkGetPhysicalDeviceQueueFamilyProperties)(physical, &count, families);
  for (*family = 0; *family < count && !(families[*family].queueFlags & VK_QUEUE_COMPUTE_BIT);) ++*family;
  require(*family < count, "no queue that computes");

  const float priority = 1;
  const VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = *family,
                                          .queueCount = 1, .pQueuePriorities = &priority};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues};
  require(INSTANCE(vkCreateDevice)(physical, &info, NULL, &device) == VK_SUCCESS, "no device");
  get_of_device = INSTANCE(vkGetDeviceProcAddr);
  VkQueue queue;
  DEVICE(vkGetDeviceQueue)(device, *family, 0, &queue);
  return queue;
}

/* new_buffer makes a buffer of COUNT floats in memory that the host sees too. */
static VkBuffer new_buffer(VkDeviceMemory *memory, float **mapped) {
  VkBuffer buffer;
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = COUNT * sizeof(float),
                                   .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
  require(DEVICE(vkCreateBuffer)(device, &info, NULL, &buffer) == VK_SUCCESS, "no buffer");
  VkMemoryRequirements needs;
  DEVICE(vkGetBufferMemoryRequirements)(device, buffer, &needs);
  VkPhysicalDeviceMemoryProperties has;
  INSTANCE(vkGetPhysicalDeviceMemoryProperties)(physical, &has);
  const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size};
  while (allocate.memoryTypeIndex < has.memoryTypeCount &&
         (!(needs.memoryTypeBits >> allocate.memoryTypeIndex & 1) ||
          (has.memoryTypes[allocate.memoryTypeIndex].propertyFlags & wanted) != wanted))
    allocate.memoryTypeIndex++;
  require(DEVICE(vkAllocateMemory)(device, &allocate, NULL, memory) == VK_SUCCESS, "no memory");
  require(DEVICE(vkBindBufferMemory)(device, buffer, *memory, 0) == VK_SUCCESS, "no memory for a buffer");
  require(DEVICE(vkMapMemory)(device, *memory, 0, VK_WHOLE_SIZE, 0, (void **)mapped) == VK_SUCCESS, "no mapping");
  return buffer;
}

/* A program that submits to the queue on other threads would lock a mutex here. */
static int locked, unlocked;
static void lock(void *count) { ++*(int *)count; }
static void unlock(void *count) { (void)count, unlocked++; }

int main(void) {
  uint32_t family;
  VkQueue queue = open_device(&family);
  VkBuffer buffers[4];
  VkDeviceMemory memory[4];
  float *x[4]; /* q, k, v and o */
  vkattn_tensor t[4];
  uint32_t state = 1;
  for (int i = 0; i < 4; i++) {
    buffers[i] = new_buffer(&memory[i], &x[i]);
    for (int j = 0; j < COUNT; j++) x[i][j] = (float)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1.0f;
    t[i] = (vkattn_tensor){.size = sizeof t[i], .buffer = (uint64_t)buffers[i], .bytes = COUNT * sizeof(float), .shape = {B, H, N, D}};
  }

  char *error = NULL;
  vkattn_device attached;
  const vkattn_external external = {
      .size = sizeof external, .api_version = VK_API_VERSION_1_1, .get_instance_proc_addr = *(void **)&get, .instance = instance,
      .physical_device = physical, .device = device, .queue = queue, .queue_family = family,
      .lock = lock, .unlock = unlock, .context = &locked};
  check(vkattn_device_attach(&external, &attached, &error), error);
  const vkattn_forward forward = {.size = sizeof forward, .q = &t[0], .k = &t[1], .v = &t[2], .o = &t[3]};
  check(vkattn_sdpa_forward(attached, NULL, &forward, &error), error); /* which has finished when it returns */
  check(vkattn_device_close(attached, &error), error);
  require(locked > 0 && locked == unlocked, "the queue was not locked");

  double largest = 0;
  int good = 1;
  for (int row = 0; row < B * H * N; row++) {
    const float *q = x[0] + row * D, *k = x[1] + row / N * N * D, *v = x[2] + row / N * N * D, *o = x[3] + row * D;
    double want[D] = {0}, sum = 0;
    for (int j = 0; j < N; j++) {
      double s = 0;
      for (int d = 0; d < D; d++) s += (double)q[d] * k[j * D + d];
      const double p = exp(s / sqrt(D));
      sum += p;
      for (int d = 0; d < D; d++) want[d] += p * v[j * D + d];
    }
    for (int d = 0; d < D; d++) {
      const double difference = fabs(o[d] - want[d] / sum);
      good = good && difference <= 1e-5;
      if (difference > largest) largest = difference;
    }
  }
  printf("largest difference %.2g of at most 1e-05, %d submissions%s\n", largest, locked, good ? "" : "  TOO LARGE");

  for (int i = 0; i < 4; i++) {
    DEVICE(vkDestroyBuffer)(device, buffers[i], NULL);
    DEVICE(vkFreeMemory)(device, memory[i], NULL);
  }
  DEVICE(vkDestroyDevice)(device, NULL);
  INSTANCE(vkDestroyInstance)(instance, NULL);
  return good ? 0 : 1;
}
