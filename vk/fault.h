// Calls that fail on purpose: wrappers for the functions of a table, put there only where faults were asked for. See fault.go.
#ifndef VKA_FAULT_H
#define VKA_FAULT_H

#include "cvk.h"

// The calls that can fail: those that return a VkResult.
#define VKA_FAULT_CALLS(X) \
	X(CreateInstance) X(EnumerateInstanceExtensionProperties) X(EnumerateInstanceLayerProperties) X(EnumeratePhysicalDevices) \
	X(EnumerateDeviceExtensionProperties) X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR) X(CreateDevice) \
	X(CreateDebugUtilsMessengerEXT) \
	X(DeviceWaitIdle) X(QueueSubmit) X(QueueWaitIdle) \
	X(CreateBuffer) X(BindBufferMemory) X(AllocateMemory) X(MapMemory) X(FlushMappedMemoryRanges) X(InvalidateMappedMemoryRanges) \
	X(CreatePipelineCache) X(GetPipelineCacheData) X(MergePipelineCaches) \
	X(CreateShaderModule) X(CreateDescriptorSetLayout) X(CreatePipelineLayout) X(CreateComputePipelines) \
	X(CreateDescriptorPool) X(ResetDescriptorPool) X(AllocateDescriptorSets) \
	X(CreateCommandPool) X(ResetCommandPool) X(AllocateCommandBuffers) \
	X(BeginCommandBuffer) X(EndCommandBuffer) X(ResetCommandBuffer) \
	X(CreateFence) X(ResetFences) X(GetFenceStatus) X(WaitForFences) \
	X(CreateSemaphore) X(WaitSemaphores) X(GetSemaphoreCounterValue) X(SignalSemaphore) \
	X(CreateQueryPool) X(GetQueryPoolResults) \
	X(GetPipelineExecutablePropertiesKHR) X(GetPipelineExecutableStatisticsKHR) \
	X(CreateHeadlessSurfaceEXT) X(GetPhysicalDeviceSurfaceSupportKHR) X(GetPhysicalDeviceSurfaceCapabilitiesKHR) \
	X(GetPhysicalDeviceSurfaceFormatsKHR) X(GetPhysicalDeviceSurfacePresentModesKHR) \
	X(CreateSwapchainKHR) X(GetSwapchainImagesKHR) X(AcquireNextImageKHR) X(QueuePresentKHR)

// The objects that are counted.
#define VKA_FAULT_OBJECTS(X) \
	X(Instance) X(DebugUtilsMessengerEXT) X(Device) X(Buffer) X(DeviceMemory) X(PipelineCache) X(ShaderModule) \
	X(DescriptorSetLayout) X(PipelineLayout) X(Pipeline) X(DescriptorPool) X(CommandPool) X(CommandBuffer) X(Fence) \
	X(Semaphore) X(QueryPool) X(SurfaceKHR) X(SwapchainKHR)

#define VKA_ENUM_CALL(name) VKA_CALL_##name,
#define VKA_ENUM_OBJECT(name) VKA_OBJECT_##name,
enum { VKA_FAULT_CALLS(VKA_ENUM_CALL) VKA_CALLS };
enum { VKA_FAULT_OBJECTS(VKA_ENUM_OBJECT) VKA_OBJECTS };
enum { VKA_MAX_FAULTS = 16 }; // armed at once
_Static_assert((int)VKA_CALLS <= 64, "sets of calls are words of 64 bits");

typedef struct vka_faults vka_faults;

vka_faults *vka_faults_new(void);
const char *vka_call_name(int call);
const char *vka_object_name(int object);
// Arms a fault: the at-th call of the set calls (bits by number of the call) from now on gives result. 0 when there is no room.
int vka_faults_arm(vka_faults *f, uint64_t calls, uint64_t at, int32_t result);
void vka_faults_disarm(vka_faults *f);
int vka_faults_fired(vka_faults *f); // number of the call that failed last since arming, -1 for none
// Counts a call and says whether it is to fail, with which result. partial: the call fills an array, and may say that it did not hold all.
int vka_faults_take(vka_faults *f, int call, int partial, int32_t *result);
void vka_faults_count(vka_faults *f, int object, int64_t n);
int64_t vka_faults_live(vka_faults *f, int object);

// Each puts wrappers in place of a table's functions and returns 0 where there is no memory for them; physical is a device that
// the instance's functions will be called with, queue the one that the device's will. vka_unhook forgets a table.
int vka_hook_instance(vka_instance *t, vka_faults *f);
int vka_hook_physical(vka_instance *t, uint64_t physical);
int vka_hook_device(vka_device *d, vka_faults *f, uint64_t queue);
int vka_hook_queue(vka_device *d, uint64_t queue); // another one of a device that is hooked
void vka_unhook(void *table);
vka_faults *vka_faults_of(uint64_t handle); // that calls with a dispatchable handle meet, or NULL

#endif
