#include "cvk.h"
#include "tables.h"

int vka_has_surfaces(vka_instance *t) {
	return t->DestroySurfaceKHR && t->GetPhysicalDeviceSurfaceSupportKHR && t->GetPhysicalDeviceSurfaceCapabilitiesKHR &&
		t->GetPhysicalDeviceSurfaceFormatsKHR && t->GetPhysicalDeviceSurfacePresentModesKHR;
}

void vka_surface_destroy(vka_instance *t, uint64_t surface) { t->DestroySurfaceKHR(t->instance, (VkSurfaceKHR)surface, NULL); }

int32_t vka_headless_surface_create(vka_instance *t, uint64_t *out) {
	if (!t->CreateHeadlessSurfaceEXT)
		return VK_ERROR_EXTENSION_NOT_PRESENT;
	VkHeadlessSurfaceCreateInfoEXT info = {VK_STRUCTURE_TYPE_HEADLESS_SURFACE_CREATE_INFO_EXT, NULL, 0};
	VkSurfaceKHR s = VK_NULL_HANDLE;
	VkResult r = t->CreateHeadlessSurfaceEXT(t->instance, &info, NULL, &s);
	*out = (uint64_t)s;
	return r;
}

#define PHYSICAL(p) ((VkPhysicalDevice)(uintptr_t)(p))

int32_t vka_surface_support(vka_instance *t, uint64_t physical, uint32_t family, uint64_t surface, uint32_t *out) {
	return t->GetPhysicalDeviceSurfaceSupportKHR(PHYSICAL(physical), family, (VkSurfaceKHR)surface, out);
}

int32_t vka_surface_capabilities(vka_instance *t, uint64_t physical, uint64_t surface, VkSurfaceCapabilitiesKHR *out) {
	return t->GetPhysicalDeviceSurfaceCapabilitiesKHR(PHYSICAL(physical), (VkSurfaceKHR)surface, out);
}

// filled turns the result of a call that fills an array into a count: one that did not hold all counts as full.
static int32_t filled(VkResult r, uint32_t n, uint32_t cap) {
	return r < 0 ? (int32_t)r : (int32_t)(r == VK_INCOMPLETE && n < cap ? cap : n);
}

int32_t vka_surface_formats(vka_instance *t, uint64_t physical, uint64_t surface, VkSurfaceFormatKHR *out, uint32_t cap) {
	uint32_t n = cap;
	VkResult r = t->GetPhysicalDeviceSurfaceFormatsKHR(PHYSICAL(physical), (VkSurfaceKHR)surface, &n, out);
	return filled(r, n, cap);
}

int32_t vka_surface_modes(vka_instance *t, uint64_t physical, uint64_t surface, VkPresentModeKHR *out, uint32_t cap) {
	uint32_t n = cap;
	VkResult r = t->GetPhysicalDeviceSurfacePresentModesKHR(PHYSICAL(physical), (VkSurfaceKHR)surface, &n, out);
	return filled(r, n, cap);
}

int vka_has_swapchains(vka_device *d) {
	return d->CreateSwapchainKHR && d->DestroySwapchainKHR && d->GetSwapchainImagesKHR && d->AcquireNextImageKHR && d->QueuePresentKHR;
}

int32_t vka_swapchain_create(vka_device *d, const vka_swapchain_info *i, uint64_t *out) {
	VkSwapchainCreateInfoKHR info = {
		.sType = VK_STRUCTURE_TYPE_SWAPCHAIN_CREATE_INFO_KHR,
		.surface = (VkSurfaceKHR)i->surface,
		.minImageCount = i->images,
		.imageFormat = (VkFormat)i->format,
		.imageColorSpace = (VkColorSpaceKHR)i->color_space,
		.imageExtent = {i->width, i->height},
		.imageArrayLayers = 1,
		.imageUsage = i->usage,
		.imageSharingMode = VK_SHARING_MODE_EXCLUSIVE,
		.preTransform = (VkSurfaceTransformFlagBitsKHR)i->transform,
		.compositeAlpha = (VkCompositeAlphaFlagBitsKHR)i->alpha,
		.presentMode = (VkPresentModeKHR)i->mode,
		.clipped = VK_FALSE, // whoever reads images back reads all of them
		.oldSwapchain = (VkSwapchainKHR)i->old,
	};
	VkSwapchainKHR s = VK_NULL_HANDLE;
	VkResult r = d->CreateSwapchainKHR(d->device, &info, NULL, &s);
	*out = (uint64_t)s;
	return r;
}

void vka_swapchain_destroy(vka_device *d, uint64_t s) { d->DestroySwapchainKHR(d->device, (VkSwapchainKHR)s, NULL); }

int32_t vka_swapchain_images(vka_device *d, uint64_t swapchain, uint64_t *out, uint32_t cap) {
	uint32_t n = cap;
	VkResult r = d->GetSwapchainImagesKHR(d->device, (VkSwapchainKHR)swapchain, &n, (VkImage *)out);
	return filled(r, n, cap);
}

int32_t vka_swapchain_acquire(vka_device *d, uint64_t swapchain, uint64_t timeout_ns, uint64_t semaphore, uint32_t *index) {
	return d->AcquireNextImageKHR(d->device, (VkSwapchainKHR)swapchain, timeout_ns, (VkSemaphore)semaphore, VK_NULL_HANDLE, index);
}

int32_t vka_present(vka_device *d, uint64_t queue, uint64_t swapchain, uint32_t index, uint64_t wait) {
	VkSwapchainKHR s = (VkSwapchainKHR)swapchain;
	VkSemaphore w = (VkSemaphore)wait;
	VkPresentInfoKHR info = {
		.sType = VK_STRUCTURE_TYPE_PRESENT_INFO_KHR,
		.waitSemaphoreCount = 1,
		.pWaitSemaphores = &w,
		.swapchainCount = 1,
		.pSwapchains = &s,
		.pImageIndices = &index,
	};
	return d->QueuePresentKHR((VkQueue)(uintptr_t)queue, &info);
}

int32_t vka_semaphore_create(vka_device *d, uint64_t *out) {
	VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, NULL, 0};
	VkSemaphore s = VK_NULL_HANDLE;
	VkResult r = d->CreateSemaphore(d->device, &info, NULL, &s);
	*out = (uint64_t)s;
	return r;
}

void vka_image_barrier(vka_device *d, VkCommandBuffer c, const uint64_t *w) {
	VkImageMemoryBarrier b = {
		.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
		.srcAccessMask = (VkAccessFlags)w[1],
		.dstAccessMask = (VkAccessFlags)w[3],
		.oldLayout = (VkImageLayout)w[4],
		.newLayout = (VkImageLayout)w[5],
		.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.image = (VkImage)w[6],
		.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1},
	};
	d->CmdPipelineBarrier(c, (VkPipelineStageFlags)w[0], (VkPipelineStageFlags)w[2], 0, 0, NULL, 0, NULL, 1, &b);
}

void vka_image_copy(vka_device *d, VkCommandBuffer c, const uint64_t *w, int to_image) {
	VkBufferImageCopy r = {
		.bufferOffset = w[2],
		.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
		.imageExtent = {(uint32_t)w[3], (uint32_t)w[4], 1},
	};
	VkImage image = (VkImage)w[0];
	VkBuffer buffer = (VkBuffer)w[1];
	if (to_image)
		d->CmdCopyBufferToImage(c, buffer, image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &r);
	else
		d->CmdCopyImageToBuffer(c, image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, buffer, 1, &r);
}
