// The function tables behind vka_instance and vka_device.
#ifndef VKA_TABLES_H
#define VKA_TABLES_H

#include "cvk.h"

#define VKA_INSTANCE_FUNCTIONS(X) \
	X(DestroyInstance) \
	X(EnumerateDeviceExtensionProperties) \
	X(GetPhysicalDeviceFeatures2) \
	X(GetPhysicalDeviceProperties2) \
	X(GetPhysicalDeviceMemoryProperties2) \
	X(GetPhysicalDeviceQueueFamilyProperties) \
	X(CreateDevice) \
	X(GetDeviceProcAddr)

#define VKA_INSTANCE_OPTIONAL(X) \
	X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR) \
	X(CreateDebugUtilsMessengerEXT) \
	X(DestroyDebugUtilsMessengerEXT) \
	X(DestroySurfaceKHR) X(CreateHeadlessSurfaceEXT) \
	X(GetPhysicalDeviceSurfaceSupportKHR) X(GetPhysicalDeviceSurfaceCapabilitiesKHR) \
	X(GetPhysicalDeviceSurfaceFormatsKHR) X(GetPhysicalDeviceSurfacePresentModesKHR)

// Vulkan 1.0 only: a device without one of these is broken.
#define VKA_DEVICE_FUNCTIONS(X) \
	X(DestroyDevice) X(GetDeviceQueue) X(DeviceWaitIdle) X(QueueSubmit) X(QueueWaitIdle) \
	X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements) X(BindBufferMemory) \
	X(AllocateMemory) X(FreeMemory) X(MapMemory) X(FlushMappedMemoryRanges) X(InvalidateMappedMemoryRanges) \
	X(CreatePipelineCache) X(DestroyPipelineCache) X(GetPipelineCacheData) X(MergePipelineCaches) \
	X(CreateShaderModule) X(DestroyShaderModule) X(CreateDescriptorSetLayout) X(DestroyDescriptorSetLayout) \
	X(CreatePipelineLayout) X(DestroyPipelineLayout) X(CreateComputePipelines) X(DestroyPipeline) \
	X(CreateDescriptorPool) X(DestroyDescriptorPool) X(ResetDescriptorPool) X(AllocateDescriptorSets) \
	X(UpdateDescriptorSets) \
	X(CreateCommandPool) X(DestroyCommandPool) X(ResetCommandPool) X(AllocateCommandBuffers) X(FreeCommandBuffers) \
	X(BeginCommandBuffer) X(EndCommandBuffer) X(ResetCommandBuffer) \
	X(CmdBindPipeline) X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdDispatch) X(CmdDispatchIndirect) \
	X(CmdPipelineBarrier) X(CmdCopyBuffer) X(CmdCopyBufferToImage) X(CmdCopyImageToBuffer) X(CmdFillBuffer) X(CmdWriteTimestamp) X(CmdResetQueryPool) \
	X(CreateFence) X(DestroyFence) X(ResetFences) X(GetFenceStatus) X(WaitForFences) \
	X(CreateSemaphore) X(DestroySemaphore) \
	X(CreateQueryPool) X(DestroyQueryPool) X(GetQueryPoolResults)

// Promoted from extensions to Vulkan 1.2: looked up under the core name or with the suffix KHR.
#define VKA_DEVICE_PROMOTED(X) X(WaitSemaphores) X(GetSemaphoreCounterValue) X(SignalSemaphore) X(GetBufferDeviceAddress)

#define VKA_DEVICE_OPTIONAL(X) \
	X(GetPipelineExecutablePropertiesKHR) X(GetPipelineExecutableStatisticsKHR) \
	X(SetDebugUtilsObjectNameEXT) X(CmdBeginDebugUtilsLabelEXT) X(CmdEndDebugUtilsLabelEXT) \
	X(CreateSwapchainKHR) X(DestroySwapchainKHR) X(GetSwapchainImagesKHR) X(AcquireNextImageKHR) X(QueuePresentKHR) \
	X(GetMemoryHostPointerPropertiesEXT)

#define VKA_MEMBER(name) PFN_vk##name name;

struct vka_instance {
	VkInstance instance;
	PFN_vkGetInstanceProcAddr gipa;
	VKA_INSTANCE_FUNCTIONS(VKA_MEMBER)
	VKA_INSTANCE_OPTIONAL(VKA_MEMBER)
};

struct vka_device {
	VkDevice device;
	uint32_t families[2]; // of queues that buffers are shared by; n_families is 0 where there is one alone
	uint32_t n_families;
	VKA_DEVICE_FUNCTIONS(VKA_MEMBER)
	VKA_DEVICE_PROMOTED(VKA_MEMBER)
	VKA_DEVICE_OPTIONAL(VKA_MEMBER)
};

#endif
