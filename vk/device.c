#include "cvk.h"
#include "tables.h"
#include <stdlib.h>
#include <string.h>

vka_device *vka_device_load(vka_instance *t, uint64_t device, int core12, const char **missing) {
	vka_device *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->device = (VkDevice)(uintptr_t)device;
#define LOAD(name) \
	d->name = (PFN_vk##name)t->GetDeviceProcAddr(d->device, "vk" #name); \
	if (!d->name && !*missing) \
		*missing = "vk" #name;
#define LOAD_PROMOTED(name) \
	d->name = (PFN_vk##name)t->GetDeviceProcAddr(d->device, core12 ? "vk" #name : "vk" #name "KHR"); \
	if (!d->name) \
		d->name = (PFN_vk##name)t->GetDeviceProcAddr(d->device, core12 ? "vk" #name "KHR" : "vk" #name);
#define LOAD_OPTIONAL(name) d->name = (PFN_vk##name)t->GetDeviceProcAddr(d->device, "vk" #name);
	VKA_DEVICE_FUNCTIONS(LOAD)
	VKA_DEVICE_PROMOTED(LOAD_PROMOTED)
	VKA_DEVICE_OPTIONAL(LOAD_OPTIONAL)
	if (*missing) {
		free(d);
		return NULL;
	}
	return d;
}

void vka_device_destroy_unloaded(vka_instance *t, uint64_t device) {
	VkDevice d = (VkDevice)(uintptr_t)device;
	PFN_vkDestroyDevice f = (PFN_vkDestroyDevice)t->GetDeviceProcAddr(d, "vkDestroyDevice");
	if (f)
		f(d, NULL);
}

void vka_device_free(vka_device *d) { free(d); }

void vka_device_destroy(vka_device *d) { d->DestroyDevice(d->device, NULL); }

void vka_device_share(vka_device *d, uint32_t family, uint32_t other) {
	d->families[0] = family;
	d->families[1] = other;
	d->n_families = 2;
}

uint64_t vka_device_queue(vka_device *d, uint32_t family, uint32_t index) {
	VkQueue q = VK_NULL_HANDLE;
	d->GetDeviceQueue(d->device, family, index, &q);
	return (uint64_t)(uintptr_t)q;
}

int32_t vka_device_wait_idle(vka_device *d) { return d->DeviceWaitIdle(d->device); }

int32_t vka_queue_wait_idle(vka_device *d, uint64_t queue) { return d->QueueWaitIdle((VkQueue)(uintptr_t)queue); }

int vka_has_timeline(vka_device *d) { return d->WaitSemaphores && d->GetSemaphoreCounterValue && d->SignalSemaphore; }

int vka_has_executable(vka_device *d) {
	return d->GetPipelineExecutablePropertiesKHR && d->GetPipelineExecutableStatisticsKHR;
}

void vka_no_debug_utils(vka_device *d) {
	d->SetDebugUtilsObjectNameEXT = NULL;
	d->CmdBeginDebugUtilsLabelEXT = NULL;
	d->CmdEndDebugUtilsLabelEXT = NULL;
}

void vka_name(vka_device *d, uint32_t object_type, uint64_t handle, const char *name) {
	if (!d->SetDebugUtilsObjectNameEXT)
		return;
	VkDebugUtilsObjectNameInfoEXT info = {
		VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT, NULL, (VkObjectType)object_type, handle, name};
	d->SetDebugUtilsObjectNameEXT(d->device, &info);
}

// Buffers and memory.

static int32_t buffer_create(vka_device *d, const void *next, VkBufferUsageFlags usage, uint64_t size, vka_buffer *out) {
	VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.pNext = next,
		.size = size,
		.usage = usage,
		.sharingMode = d->n_families ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE,
		.queueFamilyIndexCount = d->n_families,
		.pQueueFamilyIndices = d->n_families ? d->families : NULL,
	};
	VkBuffer b = VK_NULL_HANDLE;
	VkResult r = d->CreateBuffer(d->device, &info, NULL, &b);
	if (r != VK_SUCCESS)
		return r;
	VkMemoryRequirements req;
	d->GetBufferMemoryRequirements(d->device, b, &req);
	out->handle = (uint64_t)b;
	out->size = req.size;
	out->alignment = req.alignment;
	out->type_bits = req.memoryTypeBits;
	return r;
}

int32_t vka_buffer_create(vka_device *d, uint64_t size, int device_address, vka_buffer *out) {
	return buffer_create(d, NULL,
		VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
			VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | (device_address ? VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT : 0),
		size, out);
}

#define HOST_ALLOCATION VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

int32_t vka_host_buffer_create(vka_device *d, uint64_t size, vka_buffer *out) {
	VkExternalMemoryBufferCreateInfo external = {VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, NULL, HOST_ALLOCATION};
	return buffer_create(d, &external, VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT, size, out);
}

int32_t vka_host_types(vka_device *d, void *memory, uint32_t *type_bits) {
	if (!d->GetMemoryHostPointerPropertiesEXT)
		return VK_ERROR_EXTENSION_NOT_PRESENT;
	VkMemoryHostPointerPropertiesEXT p = {VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT, NULL, 0};
	VkResult r = d->GetMemoryHostPointerPropertiesEXT(d->device, HOST_ALLOCATION, memory, &p);
	*type_bits = p.memoryTypeBits;
	return r;
}

int32_t vka_host_import(vka_device *d, void *memory, uint64_t size, uint32_t type, uint64_t *out) {
	VkImportMemoryHostPointerInfoEXT import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, NULL, HOST_ALLOCATION, memory};
	VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &import, size, type};
	VkDeviceMemory m = VK_NULL_HANDLE;
	VkResult r = d->AllocateMemory(d->device, &info, NULL, &m);
	*out = (uint64_t)m;
	return r;
}

void vka_buffer_destroy(vka_device *d, uint64_t buffer) { d->DestroyBuffer(d->device, (VkBuffer)buffer, NULL); }

void vka_memory_free(vka_device *d, uint64_t memory) {
	if (memory)
		d->FreeMemory(d->device, (VkDeviceMemory)memory, NULL); // also unmaps
}

int32_t vka_memory_allocate(vka_device *d, uint64_t size, uint32_t type, int device_address, uint64_t *out) {
	VkMemoryAllocateFlagsInfo flags = {
		VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, NULL, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
	VkMemoryAllocateInfo info = {
		VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, device_address ? &flags : NULL, size, type};
	VkDeviceMemory m = VK_NULL_HANDLE;
	VkResult r = d->AllocateMemory(d->device, &info, NULL, &m);
	*out = (uint64_t)m;
	return r;
}

int32_t vka_memory_bind(vka_device *d, uint64_t buffer, uint64_t memory) {
	return d->BindBufferMemory(d->device, (VkBuffer)buffer, (VkDeviceMemory)memory, 0);
}

int32_t vka_memory_map(vka_device *d, uint64_t memory, void **out) {
	return d->MapMemory(d->device, (VkDeviceMemory)memory, 0, VK_WHOLE_SIZE, 0, out);
}

static VkMappedMemoryRange mapped_range(uint64_t memory, uint64_t offset, uint64_t size) {
	VkMappedMemoryRange r = {
		VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE, NULL, (VkDeviceMemory)memory, offset, size};
	return r;
}

int32_t vka_memory_flush(vka_device *d, uint64_t memory, uint64_t offset, uint64_t size) {
	VkMappedMemoryRange r = mapped_range(memory, offset, size);
	return d->FlushMappedMemoryRanges(d->device, 1, &r);
}

int32_t vka_memory_invalidate(vka_device *d, uint64_t memory, uint64_t offset, uint64_t size) {
	VkMappedMemoryRange r = mapped_range(memory, offset, size);
	return d->InvalidateMappedMemoryRanges(d->device, 1, &r);
}

uint64_t vka_buffer_address(vka_device *d, uint64_t buffer) {
	VkBufferDeviceAddressInfo info = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, NULL, (VkBuffer)buffer};
	return d->GetBufferDeviceAddress ? d->GetBufferDeviceAddress(d->device, &info) : 0;
}

// Pipelines.

int32_t vka_cache_create(vka_device *d, const void *data, size_t size, uint64_t *out) {
	VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, NULL, 0, size, size ? data : NULL};
	VkPipelineCache c = VK_NULL_HANDLE;
	VkResult r = d->CreatePipelineCache(d->device, &info, NULL, &c);
	*out = (uint64_t)c;
	return r;
}

void vka_cache_destroy(vka_device *d, uint64_t cache) { d->DestroyPipelineCache(d->device, (VkPipelineCache)cache, NULL); }

int32_t vka_cache_data(vka_device *d, uint64_t cache, void *data, size_t *size) {
	return d->GetPipelineCacheData(d->device, (VkPipelineCache)cache, size, data);
}

int32_t vka_cache_merge(vka_device *d, uint64_t into, uint64_t from) {
	VkPipelineCache c = (VkPipelineCache)from;
	return d->MergePipelineCaches(d->device, (VkPipelineCache)into, 1, &c);
}

// set_layout makes the layout of set 0: n storage buffers at bindings 0..n-1.
static VkResult set_layout(vka_device *d, uint32_t n, VkDescriptorSetLayout *out) {
	VkDescriptorSetLayoutBinding *bindings = calloc(n ? n : 1, sizeof *bindings);
	if (!bindings)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	for (uint32_t i = 0; i < n; i++) {
		bindings[i].binding = i;
		bindings[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
		bindings[i].descriptorCount = 1;
		bindings[i].stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
	}
	VkDescriptorSetLayoutCreateInfo info = {
		VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, NULL, 0, n, bindings};
	VkResult r = d->CreateDescriptorSetLayout(d->device, &info, NULL, out);
	free(bindings);
	return r;
}

int32_t vka_pipeline_create(vka_device *d, const vka_pipeline_info *info, const uint32_t *code, size_t code_bytes,
	const char *entry, const uint32_t *spec, uint32_t n_spec, vka_pipeline *out) {
	VkShaderModule module = VK_NULL_HANDLE;
	VkDescriptorSetLayout sets = VK_NULL_HANDLE;
	VkPipelineLayout layout = VK_NULL_HANDLE;
	VkPipeline pipeline = VK_NULL_HANDLE;
	VkSpecializationMapEntry *map = NULL;
	VkResult r;

	vka_module = info->declares;
	out->call = "vkCreateShaderModule";
	VkShaderModuleCreateInfo module_info = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, NULL, 0, code_bytes, code};
	if ((r = d->CreateShaderModule(d->device, &module_info, NULL, &module)) != VK_SUCCESS)
		goto done;

	out->call = "vkCreateDescriptorSetLayout";
	if (info->bindings && (r = set_layout(d, info->bindings, &sets)) != VK_SUCCESS)
		goto done;

	out->call = "vkCreatePipelineLayout";
	VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, info->push_bytes};
	VkPipelineLayoutCreateInfo layout_info = {
		.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
		.setLayoutCount = info->bindings ? 1 : 0,
		.pSetLayouts = &sets,
		.pushConstantRangeCount = info->push_bytes ? 1 : 0,
		.pPushConstantRanges = &push,
	};
	if ((r = d->CreatePipelineLayout(d->device, &layout_info, NULL, &layout)) != VK_SUCCESS)
		goto done;

	out->call = "vkCreateComputePipelines";
	map = calloc(n_spec ? n_spec : 1, sizeof *map);
	if (!map) {
		r = VK_ERROR_OUT_OF_HOST_MEMORY;
		goto done;
	}
	for (uint32_t i = 0; i < n_spec; i++) {
		map[i].constantID = spec[2 * i];
		map[i].offset = 8 * i + 4;
		map[i].size = 4;
	}
	VkSpecializationInfo spec_info = {n_spec, map, 8 * (size_t)n_spec, spec};
	VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size_info = {
		VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, NULL, info->subgroup_size};
	VkComputePipelineCreateInfo pipeline_info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.flags = info->capture_stats ? VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR : 0,
		.stage = {
			.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			.pNext = info->subgroup_size ? &size_info : NULL,
			.flags = info->full_subgroups ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
			.stage = VK_SHADER_STAGE_COMPUTE_BIT,
			.module = module,
			.pName = entry,
			.pSpecializationInfo = n_spec ? &spec_info : NULL,
		},
		.layout = layout,
		.basePipelineIndex = -1,
	};
	r = d->CreateComputePipelines(d->device, (VkPipelineCache)info->cache, 1, &pipeline_info, NULL, &pipeline);

done:
	free(map);
	if (module)
		d->DestroyShaderModule(d->device, module, NULL);
	vka_module = 0;
	if (r != VK_SUCCESS) {
		vka_pipeline_destroy(d, (uint64_t)pipeline, (uint64_t)layout, (uint64_t)sets);
		return r < 0 ? r : VK_ERROR_UNKNOWN;
	}
	out->pipeline = (uint64_t)pipeline;
	out->layout = (uint64_t)layout;
	out->set_layout = (uint64_t)sets;
	return r;
}

void vka_pipeline_destroy(vka_device *d, uint64_t pipeline, uint64_t layout, uint64_t sets) {
	if (pipeline)
		d->DestroyPipeline(d->device, (VkPipeline)pipeline, NULL);
	if (layout)
		d->DestroyPipelineLayout(d->device, (VkPipelineLayout)layout, NULL);
	if (sets)
		d->DestroyDescriptorSetLayout(d->device, (VkDescriptorSetLayout)sets, NULL);
}

int32_t vka_pipeline_stats(vka_device *d, uint64_t pipeline, vka_stat *out, uint32_t cap, const char **call) {
	enum { MAX = 64 };
	VkPipelineInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, NULL, (VkPipeline)pipeline};
	uint32_t executables = 0, total = 0;
	*call = "vkGetPipelineExecutablePropertiesKHR";
	VkResult r = d->GetPipelineExecutablePropertiesKHR(d->device, &info, &executables, NULL);
	if (r < 0)
		return r;
	*call = "vkGetPipelineExecutableStatisticsKHR";
	for (uint32_t e = 0; e < executables; e++) {
		VkPipelineExecutableInfoKHR which = {
			VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, NULL, (VkPipeline)pipeline, e};
		VkPipelineExecutableStatisticKHR stats[MAX];
		memset(stats, 0, sizeof stats);
		for (int i = 0; i < MAX; i++)
			stats[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
		uint32_t n = MAX;
		r = d->GetPipelineExecutableStatisticsKHR(d->device, &which, &n, stats);
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < n; i++, total++) {
			if (total >= cap)
				continue;
			memcpy(out[total].name, stats[i].name, sizeof out[total].name);
			memcpy(out[total].description, stats[i].description, sizeof out[total].description);
			switch (stats[i].format) {
			case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
				out[total].value = stats[i].value.b32;
				break;
			case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
				out[total].value = (double)stats[i].value.i64;
				break;
			case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
				out[total].value = (double)stats[i].value.u64;
				break;
			default:
				out[total].value = stats[i].value.f64;
			}
		}
	}
	return (int32_t)total;
}

// Descriptors.

int32_t vka_descriptor_pool_create(vka_device *d, uint32_t sets, uint32_t buffers, uint64_t *out) {
	VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, buffers};
	VkDescriptorPoolCreateInfo info = {VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, NULL, 0, sets, 1, &size};
	VkDescriptorPool p = VK_NULL_HANDLE;
	VkResult r = d->CreateDescriptorPool(d->device, &info, NULL, &p);
	*out = (uint64_t)p;
	return r;
}

void vka_descriptor_pool_destroy(vka_device *d, uint64_t pool) {
	d->DestroyDescriptorPool(d->device, (VkDescriptorPool)pool, NULL);
}

int32_t vka_descriptor_pool_reset(vka_device *d, uint64_t pool) {
	return d->ResetDescriptorPool(d->device, (VkDescriptorPool)pool, 0);
}

int32_t vka_descriptor_set_allocate(vka_device *d, uint64_t pool, uint64_t sets, uint64_t *out) {
	VkDescriptorSetLayout layout = (VkDescriptorSetLayout)sets;
	VkDescriptorSetAllocateInfo info = {
		VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, NULL, (VkDescriptorPool)pool, 1, &layout};
	VkDescriptorSet s = VK_NULL_HANDLE;
	VkResult r = d->AllocateDescriptorSets(d->device, &info, &s);
	*out = (uint64_t)s;
	return r;
}

void vka_descriptor_update(vka_device *d, uint64_t set, const uint64_t *triples, uint32_t n) {
	enum { CHUNK = 32 };
	VkDescriptorBufferInfo buffers[CHUNK];
	VkWriteDescriptorSet writes[CHUNK];
	for (uint32_t first = 0; first < n; first += CHUNK) {
		uint32_t m = n - first < CHUNK ? n - first : CHUNK;
		for (uint32_t i = 0; i < m; i++) {
			const uint64_t *t = triples + 3 * (size_t)(first + i);
			buffers[i] = (VkDescriptorBufferInfo){(VkBuffer)t[0], t[1], t[2]};
			writes[i] = (VkWriteDescriptorSet){
				.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
				.dstSet = (VkDescriptorSet)set,
				.dstBinding = first + i,
				.descriptorCount = 1,
				.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
				.pBufferInfo = &buffers[i],
			};
		}
		d->UpdateDescriptorSets(d->device, m, writes, 0, NULL);
	}
}
