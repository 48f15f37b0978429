package vk

// entry is one of Vulkan's functions that this package calls. They are grouped by when they are looked up.
type entry int

// Those that there is no table for: they make instances.
const (
	callCreateInstance entry = iota
	callEnumerateInstanceExtensionProperties
	callEnumerateInstanceLayerProperties
	callEnumeratePhysicalDevices

	firstInstanceEntry
)

// Functions of an instance.
const (
	callDestroyInstance = iota + firstInstanceEntry
	callEnumerateDeviceExtensionProperties
	callGetPhysicalDeviceFeatures2
	callGetPhysicalDeviceProperties2
	callGetPhysicalDeviceMemoryProperties2
	callGetPhysicalDeviceQueueFamilyProperties
	callCreateDevice
	callGetDeviceProcAddr

	firstInstanceOptional
)

// Functions that an instance may be without.
const (
	callGetPhysicalDeviceCooperativeMatrixPropertiesKHR = iota + firstInstanceOptional
	callCreateDebugUtilsMessengerEXT
	callDestroyDebugUtilsMessengerEXT
	callDestroySurfaceKHR
	callCreateHeadlessSurfaceEXT
	callGetPhysicalDeviceSurfaceSupportKHR
	callGetPhysicalDeviceSurfaceCapabilitiesKHR
	callGetPhysicalDeviceSurfaceFormatsKHR
	callGetPhysicalDeviceSurfacePresentModesKHR

	firstDeviceEntry
)

// Functions of a device, of Vulkan 1.0 only: a device without one of these is broken.
const (
	callDestroyDevice = iota + firstDeviceEntry
	callGetDeviceQueue
	callDeviceWaitIdle
	callQueueSubmit
	callQueueWaitIdle
	callCreateBuffer
	callDestroyBuffer
	callGetBufferMemoryRequirements
	callBindBufferMemory
	callAllocateMemory
	callFreeMemory
	callMapMemory
	callFlushMappedMemoryRanges
	callInvalidateMappedMemoryRanges
	callCreatePipelineCache
	callDestroyPipelineCache
	callGetPipelineCacheData
	callMergePipelineCaches
	callCreateShaderModule
	callDestroyShaderModule
	callCreateDescriptorSetLayout
	callDestroyDescriptorSetLayout
	callCreatePipelineLayout
	callDestroyPipelineLayout
	callCreateComputePipelines
	callDestroyPipeline
	callCreateDescriptorPool
	callDestroyDescriptorPool
	callResetDescriptorPool
	callAllocateDescriptorSets
	callUpdateDescriptorSets
	callCreateCommandPool
	callDestroyCommandPool
	callResetCommandPool
	callAllocateCommandBuffers
	callFreeCommandBuffers
	callBeginCommandBuffer
	callEndCommandBuffer
	callResetCommandBuffer
	callCmdBindPipeline
	callCmdBindDescriptorSets
	callCmdPushConstants
	callCmdDispatch
	callCmdDispatchIndirect
	callCmdPipelineBarrier
	callCmdCopyBuffer
	callCmdCopyBufferToImage
	callCmdCopyImageToBuffer
	callCmdFillBuffer
	callCmdWriteTimestamp
	callCmdResetQueryPool
	callCreateFence
	callDestroyFence
	callResetFences
	callGetFenceStatus
	callWaitForFences
	callCreateSemaphore
	callDestroySemaphore
	callCreateQueryPool
	callDestroyQueryPool
	callGetQueryPoolResults

	firstPromoted
)

// Functions promoted from extensions to Vulkan 1.2: looked up under the core name or with the suffix KHR.
const (
	callWaitSemaphores = iota + firstPromoted
	callGetSemaphoreCounterValue
	callSignalSemaphore
	callGetBufferDeviceAddress

	firstDeviceOptional
)

// Functions that a device may be without.
const (
	callGetPipelineExecutablePropertiesKHR = iota + firstDeviceOptional
	callGetPipelineExecutableStatisticsKHR
	callSetDebugUtilsObjectNameEXT
	callCmdBeginDebugUtilsLabelEXT
	callCmdEndDebugUtilsLabelEXT
	callCreateSwapchainKHR
	callDestroySwapchainKHR
	callGetSwapchainImagesKHR
	callAcquireNextImageKHR
	callQueuePresentKHR
	callGetMemoryHostPointerPropertiesEXT

	entries
)

var entryNames = [entries]string{
	callCreateInstance:                                  "vkCreateInstance",
	callEnumerateInstanceExtensionProperties:            "vkEnumerateInstanceExtensionProperties",
	callEnumerateInstanceLayerProperties:                "vkEnumerateInstanceLayerProperties",
	callEnumeratePhysicalDevices:                        "vkEnumeratePhysicalDevices",
	callDestroyInstance:                                 "vkDestroyInstance",
	callEnumerateDeviceExtensionProperties:              "vkEnumerateDeviceExtensionProperties",
	callGetPhysicalDeviceFeatures2:                      "vkGetPhysicalDeviceFeatures2",
	callGetPhysicalDeviceProperties2:                    "vkGetPhysicalDeviceProperties2",
	callGetPhysicalDeviceMemoryProperties2:              "vkGetPhysicalDeviceMemoryProperties2",
	callGetPhysicalDeviceQueueFamilyProperties:          "vkGetPhysicalDeviceQueueFamilyProperties",
	callCreateDevice:                                    "vkCreateDevice",
	callGetDeviceProcAddr:                               "vkGetDeviceProcAddr",
	callGetPhysicalDeviceCooperativeMatrixPropertiesKHR: "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
	callCreateDebugUtilsMessengerEXT:                    "vkCreateDebugUtilsMessengerEXT",
	callDestroyDebugUtilsMessengerEXT:                   "vkDestroyDebugUtilsMessengerEXT",
	callDestroySurfaceKHR:                               "vkDestroySurfaceKHR",
	callCreateHeadlessSurfaceEXT:                        "vkCreateHeadlessSurfaceEXT",
	callGetPhysicalDeviceSurfaceSupportKHR:              "vkGetPhysicalDeviceSurfaceSupportKHR",
	callGetPhysicalDeviceSurfaceCapabilitiesKHR:         "vkGetPhysicalDeviceSurfaceCapabilitiesKHR",
	callGetPhysicalDeviceSurfaceFormatsKHR:              "vkGetPhysicalDeviceSurfaceFormatsKHR",
	callGetPhysicalDeviceSurfacePresentModesKHR:         "vkGetPhysicalDeviceSurfacePresentModesKHR",
	callDestroyDevice:                                   "vkDestroyDevice",
	callGetDeviceQueue:                                  "vkGetDeviceQueue",
	callDeviceWaitIdle:                                  "vkDeviceWaitIdle",
	callQueueSubmit:                                     "vkQueueSubmit",
	callQueueWaitIdle:                                   "vkQueueWaitIdle",
	callCreateBuffer:                                    "vkCreateBuffer",
	callDestroyBuffer:                                   "vkDestroyBuffer",
	callGetBufferMemoryRequirements:                     "vkGetBufferMemoryRequirements",
	callBindBufferMemory:                                "vkBindBufferMemory",
	callAllocateMemory:                                  "vkAllocateMemory",
	callFreeMemory:                                      "vkFreeMemory",
	callMapMemory:                                       "vkMapMemory",
	callFlushMappedMemoryRanges:                         "vkFlushMappedMemoryRanges",
	callInvalidateMappedMemoryRanges:                    "vkInvalidateMappedMemoryRanges",
	callCreatePipelineCache:                             "vkCreatePipelineCache",
	callDestroyPipelineCache:                            "vkDestroyPipelineCache",
	callGetPipelineCacheData:                            "vkGetPipelineCacheData",
	callMergePipelineCaches:                             "vkMergePipelineCaches",
	callCreateShaderModule:                              "vkCreateShaderModule",
	callDestroyShaderModule:                             "vkDestroyShaderModule",
	callCreateDescriptorSetLayout:                       "vkCreateDescriptorSetLayout",
	callDestroyDescriptorSetLayout:                      "vkDestroyDescriptorSetLayout",
	callCreatePipelineLayout:                            "vkCreatePipelineLayout",
	callDestroyPipelineLayout:                           "vkDestroyPipelineLayout",
	callCreateComputePipelines:                          "vkCreateComputePipelines",
	callDestroyPipeline:                                 "vkDestroyPipeline",
	callCreateDescriptorPool:                            "vkCreateDescriptorPool",
	callDestroyDescriptorPool:                           "vkDestroyDescriptorPool",
	callResetDescriptorPool:                             "vkResetDescriptorPool",
	callAllocateDescriptorSets:                          "vkAllocateDescriptorSets",
	callUpdateDescriptorSets:                            "vkUpdateDescriptorSets",
	callCreateCommandPool:                               "vkCreateCommandPool",
	callDestroyCommandPool:                              "vkDestroyCommandPool",
	callResetCommandPool:                                "vkResetCommandPool",
	callAllocateCommandBuffers:                          "vkAllocateCommandBuffers",
	callFreeCommandBuffers:                              "vkFreeCommandBuffers",
	callBeginCommandBuffer:                              "vkBeginCommandBuffer",
	callEndCommandBuffer:                                "vkEndCommandBuffer",
	callResetCommandBuffer:                              "vkResetCommandBuffer",
	callCmdBindPipeline:                                 "vkCmdBindPipeline",
	callCmdBindDescriptorSets:                           "vkCmdBindDescriptorSets",
	callCmdPushConstants:                                "vkCmdPushConstants",
	callCmdDispatch:                                     "vkCmdDispatch",
	callCmdDispatchIndirect:                             "vkCmdDispatchIndirect",
	callCmdPipelineBarrier:                              "vkCmdPipelineBarrier",
	callCmdCopyBuffer:                                   "vkCmdCopyBuffer",
	callCmdCopyBufferToImage:                            "vkCmdCopyBufferToImage",
	callCmdCopyImageToBuffer:                            "vkCmdCopyImageToBuffer",
	callCmdFillBuffer:                                   "vkCmdFillBuffer",
	callCmdWriteTimestamp:                               "vkCmdWriteTimestamp",
	callCmdResetQueryPool:                               "vkCmdResetQueryPool",
	callCreateFence:                                     "vkCreateFence",
	callDestroyFence:                                    "vkDestroyFence",
	callResetFences:                                     "vkResetFences",
	callGetFenceStatus:                                  "vkGetFenceStatus",
	callWaitForFences:                                   "vkWaitForFences",
	callCreateSemaphore:                                 "vkCreateSemaphore",
	callDestroySemaphore:                                "vkDestroySemaphore",
	callCreateQueryPool:                                 "vkCreateQueryPool",
	callDestroyQueryPool:                                "vkDestroyQueryPool",
	callGetQueryPoolResults:                             "vkGetQueryPoolResults",
	callWaitSemaphores:                                  "vkWaitSemaphores",
	callGetSemaphoreCounterValue:                        "vkGetSemaphoreCounterValue",
	callSignalSemaphore:                                 "vkSignalSemaphore",
	callGetBufferDeviceAddress:                          "vkGetBufferDeviceAddress",
	callGetPipelineExecutablePropertiesKHR:              "vkGetPipelineExecutablePropertiesKHR",
	callGetPipelineExecutableStatisticsKHR:              "vkGetPipelineExecutableStatisticsKHR",
	callSetDebugUtilsObjectNameEXT:                      "vkSetDebugUtilsObjectNameEXT",
	callCmdBeginDebugUtilsLabelEXT:                      "vkCmdBeginDebugUtilsLabelEXT",
	callCmdEndDebugUtilsLabelEXT:                        "vkCmdEndDebugUtilsLabelEXT",
	callCreateSwapchainKHR:                              "vkCreateSwapchainKHR",
	callDestroySwapchainKHR:                             "vkDestroySwapchainKHR",
	callGetSwapchainImagesKHR:                           "vkGetSwapchainImagesKHR",
	callAcquireNextImageKHR:                             "vkAcquireNextImageKHR",
	callQueuePresentKHR:                                 "vkQueuePresentKHR",
	callGetMemoryHostPointerPropertiesEXT:               "vkGetMemoryHostPointerPropertiesEXT",
}

// String is the function's name in the specification.
func (e entry) String() string { return entryNames[e] }
