// The C side of package vk: tables of Vulkan function pointers, one per instance and one per device, and plain functions
// over them. Handles cross the border as 64-bit integers, so that Go never holds a driver's pointer in a pointer variable.
// Nothing here keeps a pointer that it was given beyond the call.
#ifndef VKA_H
#define VKA_H

#define VK_NO_PROTOTYPES 1
#include "vulkan/vulkan_core.h"
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8, "package vk needs a 64-bit platform");

// Loader: returns vkGetInstanceProcAddr of the named library, or 0 and the reason in err.
uint64_t vka_open_loader(const char *name, char *err, size_t err_size);
uint32_t vka_instance_version(uint64_t gipa);
// Both fill at most cap entries, return the number there is, negative VkResult on failure.
int32_t vka_instance_extensions(uint64_t gipa, const char *layer, VkExtensionProperties *out, uint32_t cap);
int32_t vka_instance_layers(uint64_t gipa, VkLayerProperties *out, uint32_t cap);

// Instance.
typedef struct vka_instance vka_instance;

// What of the validation layer can be turned on.
enum { VKA_CHECK_SYNC = 2, VKA_CHECK_GPU = 4, VKA_CHECK_BEST = 8 };

// The pNext chain of vkCreateInstance, in C memory because vulkan-go passes PNext through unread.
typedef struct {
	VkDebugUtilsMessengerCreateInfoEXT messenger;
	VkValidationFeaturesEXT validation;
	VkValidationFeatureEnableEXT enable[4];
} vka_instance_chain;

// features are bits of VKA_CHECK.
vka_instance_chain *vka_instance_chain_new(uint64_t message_id, int messenger, uint32_t features);
vka_instance_chain *vka_loader_chain_new(uint64_t message_id);
void *vka_instance_chain_head(vka_instance_chain *c, int messenger, uint32_t features);

// What vulkan-go does where it is used; next is the chain's head.
int32_t vka_instance_create(uint64_t gipa, const char *app, uint32_t version, const char *const *layers, uint32_t n_layers,
	const char *const *extensions, uint32_t n_extensions, int portability, const void *next, uint64_t *out);
int32_t vka_physical_devices(uint64_t gipa, uint64_t instance, uint64_t *out, uint32_t cap);
void vka_instance_destroy_unloaded(uint64_t gipa, uint64_t instance); // when loading failed

vka_instance *vka_instance_load(uint64_t gipa, uint64_t instance, const char **missing);
void vka_instance_free(vka_instance *t);
void vka_instance_destroy(vka_instance *t);
int32_t vka_messenger_create(vka_instance *t, uint64_t message_id, uint64_t *out);
void vka_messenger_destroy(vka_instance *t, uint64_t messenger);
int32_t vka_device_extensions(vka_instance *t, uint64_t physical, VkExtensionProperties *out, uint32_t cap);

// Which optional structures may be chained: bits computed in Go from version and extensions.
enum {
	VKA_8BIT = 1 << 0,
	VKA_FLOAT16_INT8 = 1 << 1,
	VKA_TIMELINE = 1 << 2,
	VKA_SUBGROUP_SIZE = 1 << 3,
	VKA_COOPERATIVE_MATRIX = 1 << 4,
	VKA_BFLOAT16 = 1 << 5,
	VKA_MEMORY_MODEL = 1 << 6,
	VKA_DEVICE_ADDRESS = 1 << 7,
	VKA_EXECUTABLE = 1 << 8,
	VKA_HOST_QUERY_RESET = 1 << 9,
	VKA_SYNCHRONIZATION2 = 1 << 10,
	VKA_SCALAR_LAYOUT = 1 << 11,
	VKA_MAINTENANCE4 = 1 << 12,
	VKA_SUBGROUP_EXTENDED = 1 << 13,
	VKA_FLOAT_CONTROLS = 1 << 14,
	VKA_DRIVER = 1 << 15,
	VKA_BUDGET = 1 << 16,
	VKA_NV_MULTIPROCESSORS = 1 << 17,
	VKA_AMD_COMPUTE_UNITS = 1 << 18,
	VKA_ARM_CORES = 1 << 19,
	VKA_EXTERNAL_HOST = 1 << 20,
};

typedef struct {
	VkPhysicalDeviceFeatures2 core;
	VkPhysicalDevice16BitStorageFeatures storage16;
	VkPhysicalDevice8BitStorageFeatures storage8;
	VkPhysicalDeviceShaderFloat16Int8Features float16_int8;
	VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
	VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
	VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
	VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
	VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
	VkPhysicalDeviceBufferDeviceAddressFeatures device_address;
	VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executable;
	VkPhysicalDeviceHostQueryResetFeatures host_query_reset;
	VkPhysicalDeviceSynchronization2Features synchronization2;
	VkPhysicalDeviceScalarBlockLayoutFeatures scalar_layout;
	VkPhysicalDeviceMaintenance4Features maintenance4;
	VkPhysicalDeviceShaderSubgroupExtendedTypesFeatures subgroup_extended;
} vka_features;

typedef struct {
	VkPhysicalDeviceProperties2 core;
	VkPhysicalDeviceSubgroupProperties subgroup;
	VkPhysicalDeviceIDProperties id;
	VkPhysicalDeviceMaintenance3Properties maintenance3;
	VkPhysicalDeviceDriverProperties driver;
	VkPhysicalDeviceSubgroupSizeControlProperties subgroup_size;
	VkPhysicalDeviceFloatControlsProperties float_controls;
	VkPhysicalDeviceMaintenance4Properties maintenance4;
	VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nv_multiprocessors;
	VkPhysicalDeviceShaderCoreProperties2AMD amd_compute_units;
	VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm_cores;
	VkPhysicalDeviceExternalMemoryHostPropertiesEXT external_host;
} vka_properties;

typedef struct {
	VkPhysicalDeviceMemoryProperties2 core;
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget;
} vka_memory;

void vka_features_query(vka_instance *t, uint64_t physical, uint32_t mask, vka_features *out);
void vka_properties_query(vka_instance *t, uint64_t physical, uint32_t mask, vka_properties *out);
void vka_memory_query(vka_instance *t, uint64_t physical, uint32_t mask, vka_memory *out);
int32_t vka_queue_families(vka_instance *t, uint64_t physical, VkQueueFamilyProperties *out, uint32_t cap);
int32_t vka_matrices(vka_instance *t, uint64_t physical, VkCooperativeMatrixPropertiesKHR *out, uint32_t cap);

// Device.
typedef struct vka_device vka_device;

// features is chained according to mask and holds what is to be enabled; names are n extension names. There is one queue of family, and transfers ones
// of another.
int32_t vka_device_create(vka_instance *t, uint64_t physical, uint32_t family, uint32_t transfer_family, uint32_t transfers, uint32_t mask,
	vka_features *features, const char *const *names, uint32_t n, uint64_t *out);
// Buffers made from now on are used by queues of both families.
void vka_device_share(vka_device *d, uint32_t family, uint32_t other);
// core12: the device may be used as Vulkan 1.2, so promoted functions have their core names.
vka_device *vka_device_load(vka_instance *t, uint64_t device, int core12, const char **missing);
void vka_device_destroy_unloaded(vka_instance *t, uint64_t device); // when loading failed
void vka_device_free(vka_device *d);
void vka_device_destroy(vka_device *d);
uint64_t vka_device_queue(vka_device *d, uint32_t family, uint32_t index);
int32_t vka_device_wait_idle(vka_device *d);
int32_t vka_queue_wait_idle(vka_device *d, uint64_t queue);
int vka_has_timeline(vka_device *d);
int vka_has_executable(vka_device *d);
void vka_no_debug_utils(vka_device *d); // forget the functions of VK_EXT_debug_utils
void vka_name(vka_device *d, uint32_t object_type, uint64_t handle, const char *name);

typedef struct {
	uint64_t handle, size, alignment;
	uint32_t type_bits;
} vka_buffer;

int32_t vka_buffer_create(vka_device *d, uint64_t size, int device_address, vka_buffer *out);
void vka_buffer_destroy(vka_device *d, uint64_t buffer);
void vka_memory_free(vka_device *d, uint64_t memory);
int32_t vka_memory_allocate(vka_device *d, uint64_t size, uint32_t type, int device_address, uint64_t *out);
// Memory of the host as memory of the device: a buffer for it, the types that it can be, and its import.
int32_t vka_host_buffer_create(vka_device *d, uint64_t size, vka_buffer *out);
int32_t vka_host_types(vka_device *d, void *memory, uint32_t *type_bits);
int32_t vka_host_import(vka_device *d, void *memory, uint64_t size, uint32_t type, uint64_t *out);
int32_t vka_memory_bind(vka_device *d, uint64_t buffer, uint64_t memory);
int32_t vka_memory_map(vka_device *d, uint64_t memory, void **out);
int32_t vka_memory_flush(vka_device *d, uint64_t memory, uint64_t offset, uint64_t size);
int32_t vka_memory_invalidate(vka_device *d, uint64_t memory, uint64_t offset, uint64_t size);
uint64_t vka_buffer_address(vka_device *d, uint64_t buffer);

int32_t vka_cache_create(vka_device *d, const void *data, size_t size, uint64_t *out);
void vka_cache_destroy(vka_device *d, uint64_t cache);
int32_t vka_cache_data(vka_device *d, uint64_t cache, void *data, size_t *size);
int32_t vka_cache_merge(vka_device *d, uint64_t into, uint64_t from);

typedef struct {
	uint32_t bindings, push_bytes, subgroup_size;
	int full_subgroups, capture_stats;
	uint32_t declares; // bits of Go's declares
	uint64_t cache;
} vka_pipeline_info;

typedef struct {
	uint64_t pipeline, layout, set_layout;
	const char *call; // the one that failed
} vka_pipeline;

// What the module declares that this thread makes a pipeline of, for what the layers say of it; 0 otherwise.
extern _Thread_local uint32_t vka_module;

// spec holds n_spec pairs of constant id and value.
int32_t vka_pipeline_create(vka_device *d, const vka_pipeline_info *info, const uint32_t *code, size_t code_bytes,
	const char *entry, const uint32_t *spec, uint32_t n_spec, vka_pipeline *out);
void vka_pipeline_destroy(vka_device *d, uint64_t pipeline, uint64_t layout, uint64_t set_layout);

typedef struct {
	char name[256], description[256];
	double value;
} vka_stat;
// Fills at most cap, returns the number there is, negative VkResult on failure.
int32_t vka_pipeline_stats(vka_device *d, uint64_t pipeline, vka_stat *out, uint32_t cap, const char **call);

int32_t vka_descriptor_pool_create(vka_device *d, uint32_t sets, uint32_t buffers, uint64_t *out);
void vka_descriptor_pool_destroy(vka_device *d, uint64_t pool);
int32_t vka_descriptor_pool_reset(vka_device *d, uint64_t pool);
int32_t vka_descriptor_set_allocate(vka_device *d, uint64_t pool, uint64_t set_layout, uint64_t *out);
// triples holds n times buffer, offset, range, for bindings 0..n-1.
void vka_descriptor_update(vka_device *d, uint64_t set, const uint64_t *triples, uint32_t n);

int32_t vka_command_pool_create(vka_device *d, uint32_t family, uint64_t *out);
void vka_command_pool_destroy(vka_device *d, uint64_t pool);
int32_t vka_command_pool_reset(vka_device *d, uint64_t pool);
int32_t vka_command_allocate(vka_device *d, uint64_t pool, uint64_t *out);
void vka_command_free(vka_device *d, uint64_t pool, uint64_t cmd);
int32_t vka_command_begin(vka_device *d, uint64_t cmd, int one_time);
int32_t vka_command_end(vka_device *d, uint64_t cmd);
int32_t vka_command_reset(vka_device *d, uint64_t cmd);
// Decodes and records a stream; returns the index of the first word it could not read, or -1.
int64_t vka_command_execute(vka_device *d, uint64_t cmd, const uint64_t *words, size_t n);

int32_t vka_fence_create(vka_device *d, int signaled, uint64_t *out);
void vka_fence_destroy(vka_device *d, uint64_t fence);
int32_t vka_fence_reset(vka_device *d, uint64_t fence);
int32_t vka_fence_status(vka_device *d, uint64_t fence);
int32_t vka_fence_wait(vka_device *d, uint64_t fence, uint64_t timeout_ns);

int32_t vka_timeline_create(vka_device *d, uint64_t initial, uint64_t *out);
void vka_timeline_destroy(vka_device *d, uint64_t semaphore);
int32_t vka_timeline_value(vka_device *d, uint64_t semaphore, uint64_t *out);
int32_t vka_timeline_wait(vka_device *d, uint64_t semaphore, uint64_t value, uint64_t timeout_ns);
int32_t vka_timeline_signal(vka_device *d, uint64_t semaphore, uint64_t value);

enum { VKA_MAX_SEMAPHORES = 32 }; // waits, and signals, of one submission

// handles: n_cmd command buffers, n_wait semaphores, n_wait values, n_signal semaphores, n_signal values. values: some of the semaphores
// have one; those of binary ones are ignored.
int32_t vka_submit(vka_device *d, uint64_t queue, const uint64_t *handles, uint32_t n_cmd, uint32_t n_wait,
	uint32_t n_signal, int values, uint64_t fence);

int32_t vka_query_pool_create(vka_device *d, uint32_t count, uint64_t *out);
void vka_query_pool_destroy(vka_device *d, uint64_t pool);
int32_t vka_query_results(vka_device *d, uint64_t pool, uint32_t first, uint32_t n, uint64_t *out);

#include "present.h"

#endif
