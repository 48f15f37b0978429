// Surfaces, swapchains and copies to their images: what a program needs that shows in a window what it computed. Part of cvk.h.
#ifndef VKA_PRESENT_H
#define VKA_PRESENT_H

// A surface that the instance's functions can ask about; 0 where VK_KHR_surface is not enabled.
int vka_has_surfaces(vka_instance *t);
void vka_surface_destroy(vka_instance *t, uint64_t surface);
int32_t vka_headless_surface_create(vka_instance *t, uint64_t *out);
int32_t vka_surface_support(vka_instance *t, uint64_t physical, uint32_t family, uint64_t surface, uint32_t *out);
int32_t vka_surface_capabilities(vka_instance *t, uint64_t physical, uint64_t surface, VkSurfaceCapabilitiesKHR *out);
// Both fill at most cap entries, return the number there is, negative VkResult on failure.
int32_t vka_surface_formats(vka_instance *t, uint64_t physical, uint64_t surface, VkSurfaceFormatKHR *out, uint32_t cap);
int32_t vka_surface_modes(vka_instance *t, uint64_t physical, uint64_t surface, VkPresentModeKHR *out, uint32_t cap);

typedef struct {
	uint64_t surface, old;
	uint32_t images, format, color_space, width, height, usage, transform, alpha, mode;
} vka_swapchain_info;

int vka_has_swapchains(vka_device *d);
int32_t vka_swapchain_create(vka_device *d, const vka_swapchain_info *info, uint64_t *out);
void vka_swapchain_destroy(vka_device *d, uint64_t swapchain);
int32_t vka_swapchain_images(vka_device *d, uint64_t swapchain, uint64_t *out, uint32_t cap);
int32_t vka_swapchain_acquire(vka_device *d, uint64_t swapchain, uint64_t timeout_ns, uint64_t semaphore, uint32_t *index);
int32_t vka_present(vka_device *d, uint64_t queue, uint64_t swapchain, uint32_t index, uint64_t wait);
int32_t vka_semaphore_create(vka_device *d, uint64_t *out);

// Commands of a stream: the words of stream.go after the opcode.
void vka_image_barrier(vka_device *d, VkCommandBuffer c, const uint64_t *w);
void vka_image_copy(vka_device *d, VkCommandBuffer c, const uint64_t *w, int to_image);

#endif
