#include "cvk.h"
#include "tables.h"
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif
#include <stdio.h>

extern void vkattnMessage(uint64_t id, uint32_t severity, uint32_t types, char *name, int32_t number, char *text, uint32_t module);

_Thread_local uint32_t vka_module;

uint64_t vka_open_loader(const char *name, char *err, size_t err_size) {
	err[0] = 0;
#ifdef _WIN32
	HMODULE lib = LoadLibraryA(name);
	if (!lib) {
		snprintf(err, err_size, "error %lu", (unsigned long)GetLastError());
		return 0;
	}
	uint64_t p = (uint64_t)(uintptr_t)GetProcAddress(lib, "vkGetInstanceProcAddr");
#else
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *e = dlerror();
		snprintf(err, err_size, "%s", e ? e : "dlopen failed");
		return 0;
	}
	uint64_t p = (uint64_t)(uintptr_t)dlsym(lib, "vkGetInstanceProcAddr");
#endif
	if (!p)
		snprintf(err, err_size, "it has no vkGetInstanceProcAddr");
	return p;
}

static PFN_vkVoidFunction global_function(uint64_t gipa, const char *name) {
	return ((PFN_vkGetInstanceProcAddr)(uintptr_t)gipa)(VK_NULL_HANDLE, name);
}

uint32_t vka_instance_version(uint64_t gipa) {
	PFN_vkEnumerateInstanceVersion f = (PFN_vkEnumerateInstanceVersion)global_function(gipa, "vkEnumerateInstanceVersion");
	uint32_t v = VK_API_VERSION_1_0;
	if (f && f(&v) != VK_SUCCESS)
		v = VK_API_VERSION_1_0;
	return v;
}

// counted turns the two-call idiom's result into a count: cap is 0 to ask for it. An array that did not hold all counts as full,
// whatever the driver wrote: the caller makes a larger one and asks again.
static int32_t counted(VkResult r, uint32_t n, uint32_t cap) {
	if (r < 0)
		return (int32_t)r;
	return (int32_t)(r == VK_INCOMPLETE && n < cap ? cap : n);
}

int32_t vka_instance_extensions(uint64_t gipa, const char *layer, VkExtensionProperties *out, uint32_t cap) {
	PFN_vkEnumerateInstanceExtensionProperties f =
		(PFN_vkEnumerateInstanceExtensionProperties)global_function(gipa, "vkEnumerateInstanceExtensionProperties");
	if (!f)
		return VK_ERROR_INITIALIZATION_FAILED;
	uint32_t n = cap;
	VkResult r = f(layer, &n, out);
	return counted(r, n, cap);
}

int32_t vka_instance_layers(uint64_t gipa, VkLayerProperties *out, uint32_t cap) {
	PFN_vkEnumerateInstanceLayerProperties f =
		(PFN_vkEnumerateInstanceLayerProperties)global_function(gipa, "vkEnumerateInstanceLayerProperties");
	if (!f)
		return VK_ERROR_INITIALIZATION_FAILED;
	uint32_t n = cap;
	VkResult r = f(&n, out);
	return counted(r, n, cap);
}

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
	VkDebugUtilsMessageTypeFlagsEXT types, const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
	vkattnMessage((uint64_t)(uintptr_t)user, (uint32_t)severity, (uint32_t)types, (char *)data->pMessageIdName,
		data->messageIdNumber, (char *)data->pMessage, vka_module);
	return VK_FALSE;
}

static void messenger_info(VkDebugUtilsMessengerCreateInfoEXT *m, uint64_t id) {
	memset(m, 0, sizeof *m);
	m->sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
	m->messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
	// Not the general type: with it the loader reports drivers that have nothing to do with us.
	m->messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
	m->pfnUserCallback = on_message;
	m->pUserData = (void *)(uintptr_t)id;
}

vka_instance_chain *vka_instance_chain_new(uint64_t message_id, int messenger, uint32_t features) {
	vka_instance_chain *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	messenger_info(&c->messenger, message_id);
	uint32_t n = 0;
	if (features & VKA_CHECK_SYNC)
		c->enable[n++] = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
	if (features & VKA_CHECK_GPU) {
		c->enable[n++] = VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT;
		c->enable[n++] = VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_RESERVE_BINDING_SLOT_EXT;
	}
	if (features & VKA_CHECK_BEST)
		c->enable[n++] = VK_VALIDATION_FEATURE_ENABLE_BEST_PRACTICES_EXT;
	c->validation.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT;
	c->validation.enabledValidationFeatureCount = n;
	c->validation.pEnabledValidationFeatures = c->enable;
	if (messenger && features)
		c->messenger.pNext = &c->validation;
	return c;
}

// vka_loader_chain_new is a chain whose messenger hears what the loader says of drivers that it could not load.
vka_instance_chain *vka_loader_chain_new(uint64_t message_id) {
	vka_instance_chain *c = vka_instance_chain_new(message_id, 1, 0);
	if (c) {
		c->messenger.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
		c->messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT;
	}
	return c;
}

void *vka_instance_chain_head(vka_instance_chain *c, int messenger, uint32_t features) {
	return messenger ? (void *)&c->messenger : features ? (void *)&c->validation : NULL;
}

int32_t vka_instance_create(uint64_t gipa, const char *app, uint32_t version, const char *const *layers, uint32_t n_layers,
	const char *const *extensions, uint32_t n_extensions, int portability, const void *next, uint64_t *out) {
	PFN_vkCreateInstance f = (PFN_vkCreateInstance)global_function(gipa, "vkCreateInstance");
	if (!f)
		return VK_ERROR_INITIALIZATION_FAILED;
	VkApplicationInfo app_info = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = app,
		.pEngineName = "vkattn",
		.apiVersion = version,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pNext = next,
		.flags = portability ? VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR : 0,
		.pApplicationInfo = &app_info,
		.enabledLayerCount = n_layers,
		.ppEnabledLayerNames = layers,
		.enabledExtensionCount = n_extensions,
		.ppEnabledExtensionNames = extensions,
	};
	VkInstance i = VK_NULL_HANDLE;
	VkResult r = f(&info, NULL, &i);
	*out = (uint64_t)(uintptr_t)i;
	return r;
}

static PFN_vkVoidFunction instance_function(uint64_t gipa, uint64_t instance, const char *name) {
	return ((PFN_vkGetInstanceProcAddr)(uintptr_t)gipa)((VkInstance)(uintptr_t)instance, name);
}

int32_t vka_physical_devices(uint64_t gipa, uint64_t instance, uint64_t *out, uint32_t cap) {
	PFN_vkEnumeratePhysicalDevices f =
		(PFN_vkEnumeratePhysicalDevices)instance_function(gipa, instance, "vkEnumeratePhysicalDevices");
	if (!f)
		return VK_ERROR_INITIALIZATION_FAILED;
	uint32_t n = cap;
	VkResult r = f((VkInstance)(uintptr_t)instance, &n, (VkPhysicalDevice *)out);
	return counted(r, n, cap);
}

void vka_instance_destroy_unloaded(uint64_t gipa, uint64_t instance) {
	PFN_vkDestroyInstance f = (PFN_vkDestroyInstance)instance_function(gipa, instance, "vkDestroyInstance");
	if (f)
		f((VkInstance)(uintptr_t)instance, NULL);
}

vka_instance *vka_instance_load(uint64_t gipa, uint64_t instance, const char **missing) {
	vka_instance *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->instance = (VkInstance)(uintptr_t)instance;
	t->gipa = (PFN_vkGetInstanceProcAddr)(uintptr_t)gipa;
#define LOAD(name) \
	t->name = (PFN_vk##name)t->gipa(t->instance, "vk" #name); \
	if (!t->name && !*missing) \
		*missing = "vk" #name;
#define LOAD_OPTIONAL(name) t->name = (PFN_vk##name)t->gipa(t->instance, "vk" #name);
	VKA_INSTANCE_FUNCTIONS(LOAD)
	VKA_INSTANCE_OPTIONAL(LOAD_OPTIONAL)
	if (*missing) {
		free(t);
		return NULL;
	}
	return t;
}

void vka_instance_free(vka_instance *t) { free(t); }

void vka_instance_destroy(vka_instance *t) { t->DestroyInstance(t->instance, NULL); }

int32_t vka_messenger_create(vka_instance *t, uint64_t message_id, uint64_t *out) {
	if (!t->CreateDebugUtilsMessengerEXT || !t->DestroyDebugUtilsMessengerEXT)
		return VK_ERROR_EXTENSION_NOT_PRESENT;
	VkDebugUtilsMessengerCreateInfoEXT info;
	messenger_info(&info, message_id);
	VkDebugUtilsMessengerEXT m = VK_NULL_HANDLE;
	VkResult r = t->CreateDebugUtilsMessengerEXT(t->instance, &info, NULL, &m);
	*out = (uint64_t)m;
	return r;
}

void vka_messenger_destroy(vka_instance *t, uint64_t m) {
	t->DestroyDebugUtilsMessengerEXT(t->instance, (VkDebugUtilsMessengerEXT)m, NULL);
}

#define PHYSICAL(p) ((VkPhysicalDevice)(uintptr_t)(p))

int32_t vka_device_extensions(vka_instance *t, uint64_t physical, VkExtensionProperties *out, uint32_t cap) {
	uint32_t n = cap;
	VkResult r = t->EnumerateDeviceExtensionProperties(PHYSICAL(physical), NULL, &n, out);
	return counted(r, n, cap);
}

// LINK appends a member to a pNext chain when cond holds.
#define LINK(cond, member, type) \
	do { \
		if (cond) { \
			(member).sType = (type); \
			(member).pNext = NULL; \
			*tail = &(member); \
			tail = (void **)&(member).pNext; \
		} \
	} while (0)

static void features_chain(vka_features *f, uint32_t mask) {
	f->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
	f->core.pNext = NULL;
	void **tail = &f->core.pNext;
	LINK(1, f->storage16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
	LINK(mask & VKA_8BIT, f->storage8, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES);
	LINK(mask & VKA_FLOAT16_INT8, f->float16_int8, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES);
	LINK(mask & VKA_TIMELINE, f->timeline, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES);
	LINK(mask & VKA_SUBGROUP_SIZE, f->subgroup_size, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
	LINK(mask & VKA_COOPERATIVE_MATRIX, f->matrix, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
	LINK(mask & VKA_BFLOAT16, f->bfloat16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR);
	LINK(mask & VKA_MEMORY_MODEL, f->memory_model, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES);
	LINK(mask & VKA_DEVICE_ADDRESS, f->device_address, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES);
	LINK(mask & VKA_EXECUTABLE, f->executable, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR);
	LINK(mask & VKA_HOST_QUERY_RESET, f->host_query_reset, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_QUERY_RESET_FEATURES);
	LINK(mask & VKA_SYNCHRONIZATION2, f->synchronization2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SYNCHRONIZATION_2_FEATURES);
	LINK(mask & VKA_SCALAR_LAYOUT, f->scalar_layout, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SCALAR_BLOCK_LAYOUT_FEATURES);
	LINK(mask & VKA_MAINTENANCE4, f->maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES);
	LINK(mask & VKA_SUBGROUP_EXTENDED, f->subgroup_extended,
		VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SUBGROUP_EXTENDED_TYPES_FEATURES);
}

void vka_features_query(vka_instance *t, uint64_t physical, uint32_t mask, vka_features *out) {
	memset(out, 0, sizeof *out);
	features_chain(out, mask);
	t->GetPhysicalDeviceFeatures2(PHYSICAL(physical), &out->core);
}

void vka_properties_query(vka_instance *t, uint64_t physical, uint32_t mask, vka_properties *out) {
	memset(out, 0, sizeof *out);
	out->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
	void **tail = &out->core.pNext;
	LINK(1, out->subgroup, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
	LINK(1, out->id, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES);
	LINK(1, out->maintenance3, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES);
	LINK(mask & VKA_DRIVER, out->driver, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
	LINK(mask & VKA_SUBGROUP_SIZE, out->subgroup_size, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
	LINK(mask & VKA_FLOAT_CONTROLS, out->float_controls, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES);
	LINK(mask & VKA_MAINTENANCE4, out->maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
	LINK(mask & VKA_NV_MULTIPROCESSORS, out->nv_multiprocessors, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
	LINK(mask & VKA_AMD_COMPUTE_UNITS, out->amd_compute_units, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD);
	LINK(mask & VKA_ARM_CORES, out->arm_cores, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM);
	LINK(mask & VKA_EXTERNAL_HOST, out->external_host, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT);
	t->GetPhysicalDeviceProperties2(PHYSICAL(physical), &out->core);
}

void vka_memory_query(vka_instance *t, uint64_t physical, uint32_t mask, vka_memory *out) {
	memset(out, 0, sizeof *out);
	out->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
	void **tail = &out->core.pNext;
	LINK(mask & VKA_BUDGET, out->budget, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
	t->GetPhysicalDeviceMemoryProperties2(PHYSICAL(physical), &out->core);
}

int32_t vka_queue_families(vka_instance *t, uint64_t physical, VkQueueFamilyProperties *out, uint32_t cap) {
	uint32_t n = 0;
	t->GetPhysicalDeviceQueueFamilyProperties(PHYSICAL(physical), &n, NULL);
	if (!out)
		return (int32_t)n;
	n = n < cap ? n : cap; // no more than there are: the validation layer advises so
	t->GetPhysicalDeviceQueueFamilyProperties(PHYSICAL(physical), &n, out);
	return (int32_t)n;
}

int32_t vka_matrices(vka_instance *t, uint64_t physical, VkCooperativeMatrixPropertiesKHR *out, uint32_t cap) {
	if (!t->GetPhysicalDeviceCooperativeMatrixPropertiesKHR)
		return 0;
	for (uint32_t i = 0; out && i < cap; i++) {
		memset(&out[i], 0, sizeof out[i]);
		out[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
	}
	uint32_t n = cap;
	VkResult r = t->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(PHYSICAL(physical), &n, out);
	return counted(r, n, cap);
}

int32_t vka_device_create(vka_instance *t, uint64_t physical, uint32_t family, uint32_t transfer_family, uint32_t transfers, uint32_t mask,
	vka_features *features, const char *const *names, uint32_t n, uint64_t *out) {
	features_chain(features, mask);
	float priorities[2] = {1, 1};
	VkDeviceQueueCreateInfo queues[2] = {{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, NULL, 0, family, 1, priorities},
		{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, NULL, 0, transfer_family, transfers < 2 ? transfers : 2, priorities}};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.pNext = &features->core,
		.queueCreateInfoCount = transfers ? 2 : 1,
		.pQueueCreateInfos = queues,
		.enabledExtensionCount = n,
		.ppEnabledExtensionNames = names,
	};
	VkDevice d = VK_NULL_HANDLE;
	VkResult r = t->CreateDevice(PHYSICAL(physical), &info, NULL, &d);
	*out = (uint64_t)(uintptr_t)d;
	return r;
}
