#include "cvk.h"
#include "tables.h"
#include <string.h>

#define COMMAND(c) ((VkCommandBuffer)(uintptr_t)(c))

int32_t vka_command_pool_create(vka_device *d, uint32_t family, uint64_t *out) {
	VkCommandPoolCreateInfo info = {
		VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, NULL, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, family};
	VkCommandPool p = VK_NULL_HANDLE;
	VkResult r = d->CreateCommandPool(d->device, &info, NULL, &p);
	*out = (uint64_t)p;
	return r;
}

void vka_command_pool_destroy(vka_device *d, uint64_t pool) { d->DestroyCommandPool(d->device, (VkCommandPool)pool, NULL); }

int32_t vka_command_pool_reset(vka_device *d, uint64_t pool) {
	return d->ResetCommandPool(d->device, (VkCommandPool)pool, 0);
}

int32_t vka_command_allocate(vka_device *d, uint64_t pool, uint64_t *out) {
	VkCommandBufferAllocateInfo info = {
		VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, NULL, (VkCommandPool)pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
	VkCommandBuffer c = VK_NULL_HANDLE;
	VkResult r = d->AllocateCommandBuffers(d->device, &info, &c);
	*out = (uint64_t)(uintptr_t)c;
	return r;
}

void vka_command_free(vka_device *d, uint64_t pool, uint64_t cmd) {
	VkCommandBuffer c = COMMAND(cmd);
	d->FreeCommandBuffers(d->device, (VkCommandPool)pool, 1, &c);
}

int32_t vka_command_begin(vka_device *d, uint64_t cmd, int one_time) {
	VkCommandBufferBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = one_time ? VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT : 0,
	};
	return d->BeginCommandBuffer(COMMAND(cmd), &info);
}

int32_t vka_command_end(vka_device *d, uint64_t cmd) { return d->EndCommandBuffer(COMMAND(cmd)); }

int32_t vka_command_reset(vka_device *d, uint64_t cmd) { return d->ResetCommandBuffer(COMMAND(cmd), 0); }

// barrier records one memory barrier, or buffer barriers in chunks: every chunk has the same scopes, so that together they
// say what one call with all of them would.
static void barrier(vka_device *d, VkCommandBuffer c, const uint64_t *w, size_t buffers) {
	enum { CHUNK = 32 };
	VkPipelineStageFlags src = (VkPipelineStageFlags)w[0], dst = (VkPipelineStageFlags)w[2];
	if (buffers == 0) {
		VkMemoryBarrier m = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, NULL, (VkAccessFlags)w[1], (VkAccessFlags)w[3]};
		d->CmdPipelineBarrier(c, src, dst, 0, 1, &m, 0, NULL, 0, NULL);
		return;
	}
	VkBufferMemoryBarrier b[CHUNK];
	const uint64_t *r = w + 4;
	while (buffers) {
		uint32_t n = buffers < CHUNK ? (uint32_t)buffers : CHUNK;
		for (uint32_t i = 0; i < n; i++, r += 3) {
			b[i] = (VkBufferMemoryBarrier){
				.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
				.srcAccessMask = (VkAccessFlags)w[1],
				.dstAccessMask = (VkAccessFlags)w[3],
				.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
				.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
				.buffer = (VkBuffer)r[0],
				.offset = r[1],
				.size = r[2],
			};
		}
		d->CmdPipelineBarrier(c, src, dst, 0, 0, NULL, n, b, 0, NULL);
		buffers -= n;
	}
}

// The opcodes of stream.go.
enum {
	OP_BIND = 1,
	OP_PUSH,
	OP_DISPATCH,
	OP_BARRIER,
	OP_COPY,
	OP_FILL,
	OP_TIMESTAMP,
	OP_RESET_QUERIES,
	OP_LABEL,
	OP_END_LABEL,
	OP_IMAGE_BARRIER,
	OP_COPY_TO_IMAGE,
	OP_COPY_FROM_IMAGE,
	OP_DISPATCH_INDIRECT,
};

int64_t vka_command_execute(vka_device *d, uint64_t cmd, const uint64_t *words, size_t n) {
	VkCommandBuffer c = COMMAND(cmd);
	for (size_t at = 0; at < n;) {
		size_t len = (size_t)(words[at] >> 8);
		const uint64_t *w = words + at + 1;
		if (len == 0 || len > n - at)
			return (int64_t)at;
		switch (words[at] & 0xff) {
		case OP_BIND: {
			d->CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, (VkPipeline)w[0]);
			VkDescriptorSet set = (VkDescriptorSet)w[2];
			if (set)
				d->CmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, (VkPipelineLayout)w[1], 0, 1, &set, 0, NULL);
			break;
		}
		case OP_PUSH:
			d->CmdPushConstants(c, (VkPipelineLayout)w[0], VK_SHADER_STAGE_COMPUTE_BIT, 0, (uint32_t)w[1], w + 2);
			break;
		case OP_DISPATCH:
			d->CmdDispatch(c, (uint32_t)w[0], (uint32_t)w[1], (uint32_t)w[2]);
			break;
		case OP_BARRIER:
			barrier(d, c, w, (len - 5) / 3);
			break;
		case OP_COPY: {
			VkBufferCopy r = {w[2], w[3], w[4]};
			d->CmdCopyBuffer(c, (VkBuffer)w[0], (VkBuffer)w[1], 1, &r);
			break;
		}
		case OP_FILL:
			d->CmdFillBuffer(c, (VkBuffer)w[0], w[1], w[2], (uint32_t)w[3]);
			break;
		case OP_TIMESTAMP:
			d->CmdWriteTimestamp(c, (VkPipelineStageFlagBits)w[2], (VkQueryPool)w[0], (uint32_t)w[1]);
			break;
		case OP_RESET_QUERIES:
			d->CmdResetQueryPool(c, (VkQueryPool)w[0], (uint32_t)w[1], (uint32_t)w[2]);
			break;
		case OP_LABEL:
			if (d->CmdBeginDebugUtilsLabelEXT) {
				VkDebugUtilsLabelEXT l = {VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT, NULL, (const char *)w, {0}};
				d->CmdBeginDebugUtilsLabelEXT(c, &l);
			}
			break;
		case OP_END_LABEL:
			if (d->CmdEndDebugUtilsLabelEXT)
				d->CmdEndDebugUtilsLabelEXT(c);
			break;
		case OP_IMAGE_BARRIER:
			vka_image_barrier(d, c, w);
			break;
		case OP_COPY_TO_IMAGE:
			vka_image_copy(d, c, w, 1);
			break;
		case OP_COPY_FROM_IMAGE:
			vka_image_copy(d, c, w, 0);
			break;
		case OP_DISPATCH_INDIRECT:
			d->CmdDispatchIndirect(c, (VkBuffer)w[0], w[1]);
			break;
		default:
			return (int64_t)at;
		}
		at += len;
	}
	return -1;
}

// Fences, semaphores, submission.

int32_t vka_fence_create(vka_device *d, int signaled, uint64_t *out) {
	VkFenceCreateInfo info = {
		VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, NULL, signaled ? VK_FENCE_CREATE_SIGNALED_BIT : 0};
	VkFence f = VK_NULL_HANDLE;
	VkResult r = d->CreateFence(d->device, &info, NULL, &f);
	*out = (uint64_t)f;
	return r;
}

void vka_fence_destroy(vka_device *d, uint64_t fence) { d->DestroyFence(d->device, (VkFence)fence, NULL); }

int32_t vka_fence_reset(vka_device *d, uint64_t fence) {
	VkFence f = (VkFence)fence;
	return d->ResetFences(d->device, 1, &f);
}

int32_t vka_fence_status(vka_device *d, uint64_t fence) { return d->GetFenceStatus(d->device, (VkFence)fence); }

int32_t vka_fence_wait(vka_device *d, uint64_t fence, uint64_t timeout_ns) {
	VkFence f = (VkFence)fence;
	return d->WaitForFences(d->device, 1, &f, VK_TRUE, timeout_ns);
}

int32_t vka_timeline_create(vka_device *d, uint64_t initial, uint64_t *out) {
	VkSemaphoreTypeCreateInfo type = {
		VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, NULL, VK_SEMAPHORE_TYPE_TIMELINE, initial};
	VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
	VkSemaphore s = VK_NULL_HANDLE;
	VkResult r = d->CreateSemaphore(d->device, &info, NULL, &s);
	*out = (uint64_t)s;
	return r;
}

void vka_timeline_destroy(vka_device *d, uint64_t s) { d->DestroySemaphore(d->device, (VkSemaphore)s, NULL); }

int32_t vka_timeline_value(vka_device *d, uint64_t s, uint64_t *out) {
	return d->GetSemaphoreCounterValue(d->device, (VkSemaphore)s, out);
}

int32_t vka_timeline_wait(vka_device *d, uint64_t semaphore, uint64_t value, uint64_t timeout_ns) {
	VkSemaphore s = (VkSemaphore)semaphore;
	VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, NULL, 0, 1, &s, &value};
	return d->WaitSemaphores(d->device, &info, timeout_ns);
}

int32_t vka_timeline_signal(vka_device *d, uint64_t semaphore, uint64_t value) {
	VkSemaphoreSignalInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, NULL, (VkSemaphore)semaphore, value};
	return d->SignalSemaphore(d->device, &info);
}

int32_t vka_submit(vka_device *d, uint64_t queue, const uint64_t *handles, uint32_t n_cmd, uint32_t n_wait,
	uint32_t n_signal, int values, uint64_t fence) {
	// Handles are 64 bits wide, so that an array of them is an array of Vulkan's handles.
	const uint64_t *wait = handles + n_cmd, *signal = wait + 2 * (size_t)n_wait;
	VkPipelineStageFlags stages[VKA_MAX_SEMAPHORES];
	if (n_wait > VKA_MAX_SEMAPHORES || n_signal > VKA_MAX_SEMAPHORES)
		return VK_ERROR_UNKNOWN;
	for (uint32_t i = 0; i < n_wait; i++)
		stages[i] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	VkTimelineSemaphoreSubmitInfo timeline = {
		VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, n_wait, wait + n_wait, n_signal, signal + n_signal};
	VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = values ? &timeline : NULL,
		.waitSemaphoreCount = n_wait,
		.pWaitSemaphores = (const VkSemaphore *)wait,
		.pWaitDstStageMask = stages,
		.commandBufferCount = n_cmd,
		.pCommandBuffers = (const VkCommandBuffer *)handles,
		.signalSemaphoreCount = n_signal,
		.pSignalSemaphores = (const VkSemaphore *)signal,
	};
	return d->QueueSubmit((VkQueue)(uintptr_t)queue, 1, &info, (VkFence)fence);
}

// Queries.

int32_t vka_query_pool_create(vka_device *d, uint32_t count, uint64_t *out) {
	VkQueryPoolCreateInfo info = {
		VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, NULL, 0, VK_QUERY_TYPE_TIMESTAMP, count, 0};
	VkQueryPool p = VK_NULL_HANDLE;
	VkResult r = d->CreateQueryPool(d->device, &info, NULL, &p);
	*out = (uint64_t)p;
	return r;
}

void vka_query_pool_destroy(vka_device *d, uint64_t pool) { d->DestroyQueryPool(d->device, (VkQueryPool)pool, NULL); }

int32_t vka_query_results(vka_device *d, uint64_t pool, uint32_t first, uint32_t n, uint64_t *out) {
	return d->GetQueryPoolResults(
		d->device, (VkQueryPool)pool, first, n, 8 * (size_t)n, out, 8, VK_QUERY_RESULT_64_BIT);
}
