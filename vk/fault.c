#include "fault.h"
#include "tables.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
static void breathe(void) { SwitchToThread(); }
#else
#include <sched.h>
static void breathe(void) { sched_yield(); }
#endif

// A table's functions are known by nothing but Vulkan's own arguments, so a wrapper finds what it needs by its first one, a
// dispatchable handle. All of this is looked at only where faults were asked for.

typedef struct {
	atomic_flag taken;
} spin;

static void take(spin *s) {
	while (atomic_flag_test_and_set_explicit(&s->taken, memory_order_acquire))
		breathe();
}

static void drop(spin *s) { atomic_flag_clear_explicit(&s->taken, memory_order_release); }

struct vka_faults {
	spin lock;
	int armed, fired;
	struct {
		uint64_t calls, at, seen;
		int32_t result;
	} fault[VKA_MAX_FAULTS];
	int64_t live[VKA_OBJECTS];
};

// hook is a table whose functions were replaced.
typedef struct hook {
	vka_faults *faults;
	void *table;
	vka_instance instance; // the functions as they were: of an instance …
	vka_device device;     // … or of a device
	atomic_int lost, calls; // a device that was declared lost; calls on its queue that are under way
	spin settling;
	int settled;
} hook;

// entry says which hook a dispatchable handle belongs to. A command buffer is forgotten with its pool.
typedef struct entry {
	struct entry *next;
	uint64_t handle, pool;
	hook *hook;
} entry;

static spin registry_lock = {ATOMIC_FLAG_INIT};
static entry *registry;

static int enlist(hook *h, uint64_t handle, uint64_t pool) {
	entry *e = calloc(1, sizeof *e);
	if (!e)
		return 0;
	*e = (entry){NULL, handle, pool, h};
	take(&registry_lock);
	e->next = registry;
	registry = e;
	drop(&registry_lock);
	return 1;
}

// strike removes the entries of a table's hook, or of one handle or pool of it, and counts them.
static int strike(void *table, uint64_t handle, uint64_t pool) {
	int n = 0;
	take(&registry_lock);
	for (entry **at = &registry; *at;) {
		entry *e = *at;
		if (e->hook->table == table && (!handle || e->handle == handle) && (!pool || e->pool == pool)) {
			*at = e->next;
			free(e);
			n++;
		} else {
			at = &e->next;
		}
	}
	drop(&registry_lock);
	return n;
}

static hook *find(const void *handle) {
	hook *h = NULL;
	take(&registry_lock);
	for (entry *e = registry; e && !h; e = e->next)
		if (e->handle == (uint64_t)(uintptr_t)handle)
			h = e->hook;
	drop(&registry_lock);
	return h;
}

vka_faults *vka_faults_of(uint64_t handle) {
	hook *h = find((void *)(uintptr_t)handle);
	return h ? h->faults : NULL;
}

vka_faults *vka_faults_new(void) {
	vka_faults *f = calloc(1, sizeof *f);
	if (f)
		f->fired = -1;
	return f;
}

#define NAME(name) "vk" #name,
const char *vka_call_name(int call) {
	static const char *names[] = {VKA_FAULT_CALLS(NAME)};
	return names[call];
}

const char *vka_object_name(int object) {
	static const char *names[] = {VKA_FAULT_OBJECTS(NAME)};
	return names[object] + 2;
}

int vka_faults_arm(vka_faults *f, uint64_t calls, uint64_t at, int32_t result) {
	take(&f->lock);
	int room = f->armed < VKA_MAX_FAULTS;
	if (room) {
		f->fault[f->armed].calls = calls;
		f->fault[f->armed].at = at;
		f->fault[f->armed].seen = 0;
		f->fault[f->armed].result = result;
		f->armed++;
		f->fired = -1;
	}
	drop(&f->lock);
	return room;
}

void vka_faults_disarm(vka_faults *f) {
	take(&f->lock);
	f->armed = 0;
	drop(&f->lock);
}

int vka_faults_fired(vka_faults *f) {
	take(&f->lock);
	int call = f->fired;
	drop(&f->lock);
	return call;
}

int vka_faults_take(vka_faults *f, int call, int partial, int32_t *result) {
	int fails = 0;
	take(&f->lock);
	for (int i = 0; i < f->armed; i++) {
		if (!(f->fault[i].calls >> call & 1) || (f->fault[i].result == VK_INCOMPLETE && !partial))
			continue;
		if (++f->fault[i].seen == f->fault[i].at) {
			*result = f->fault[i].result;
			f->fired = call;
			fails = 1;
		}
	}
	drop(&f->lock);
	return fails;
}

void vka_faults_count(vka_faults *f, int object, int64_t n) {
	take(&f->lock);
	f->live[object] += n;
	drop(&f->lock);
}

int64_t vka_faults_live(vka_faults *f, int object) {
	take(&f->lock);
	int64_t n = f->live[object];
	drop(&f->lock);
	return n;
}

// fails says whether a call on a device fails, and with what.
static int fails(hook *h, int call, VkResult *r) {
	int32_t result = 0;
	if (!vka_faults_take(h->faults, call, 0, &result))
		return 0;
	*r = (VkResult)result;
	if (*r == VK_ERROR_DEVICE_LOST) {
		// Others may have hooked the same VkDevice: it is lost to all of them.
		take(&registry_lock);
		for (entry *e = registry; e; e = e->next)
			if (e->hook->device.device && e->hook->device.device == h->device.device)
				atomic_store(&e->hook->lost, 1);
		drop(&registry_lock);
	}
	return 1;
}

// lost is fails for calls that a lost device always fails.
static int lost(hook *h, int call, VkResult *r) {
	if (fails(h, call, r))
		return 1;
	*r = VK_ERROR_DEVICE_LOST;
	return atomic_load(&h->lost);
}

// settle waits for what a device still does that was declared lost: what a truly lost one runs can be destroyed at any time, and
// this one only seems to be.
static void settle(hook *h) {
	if (!atomic_load(&h->lost))
		return;
	take(&h->settling);
	if (!h->settled) {
		while (atomic_load(&h->calls))
			breathe();
		h->device.DeviceWaitIdle(h->device.device);
		h->settled = 1;
	}
	drop(&h->settling);
}

// Instances.

static VKAPI_ATTR VkResult VKAPI_CALL f_EnumerateDeviceExtensionProperties(
	VkPhysicalDevice p, const char *layer, uint32_t *n, VkExtensionProperties *out) {
	hook *h = find(p);
	int32_t r;
	if (vka_faults_take(h->faults, VKA_CALL_EnumerateDeviceExtensionProperties, out != NULL, &r)) {
		if (r != VK_INCOMPLETE)
			return (VkResult)r;
		*n /= 2;
		VkResult real = h->instance.EnumerateDeviceExtensionProperties(p, layer, n, out);
		return real < 0 ? real : VK_INCOMPLETE;
	}
	return h->instance.EnumerateDeviceExtensionProperties(p, layer, n, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL f_GetPhysicalDeviceCooperativeMatrixPropertiesKHR(
	VkPhysicalDevice p, uint32_t *n, VkCooperativeMatrixPropertiesKHR *out) {
	hook *h = find(p);
	int32_t r;
	if (vka_faults_take(h->faults, VKA_CALL_GetPhysicalDeviceCooperativeMatrixPropertiesKHR, out != NULL, &r)) {
		if (r != VK_INCOMPLETE)
			return (VkResult)r;
		*n /= 2;
		VkResult real = h->instance.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(p, n, out);
		return real < 0 ? real : VK_INCOMPLETE;
	}
	return h->instance.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(p, n, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL f_CreateDevice(
	VkPhysicalDevice p, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *a, VkDevice *out) {
	hook *h = find(p);
	int32_t f;
	if (vka_faults_take(h->faults, VKA_CALL_CreateDevice, 0, &f))
		return (VkResult)f;
	VkResult r = h->instance.CreateDevice(p, info, a, out);
	if (r == VK_SUCCESS)
		vka_faults_count(h->faults, VKA_OBJECT_Device, 1);
	return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL f_CreateDebugUtilsMessengerEXT(VkInstance i,
	const VkDebugUtilsMessengerCreateInfoEXT *info, const VkAllocationCallbacks *a, VkDebugUtilsMessengerEXT *out) {
	hook *h = find(i);
	int32_t f;
	if (vka_faults_take(h->faults, VKA_CALL_CreateDebugUtilsMessengerEXT, 0, &f))
		return (VkResult)f;
	VkResult r = h->instance.CreateDebugUtilsMessengerEXT(i, info, a, out);
	if (r == VK_SUCCESS)
		vka_faults_count(h->faults, VKA_OBJECT_DebugUtilsMessengerEXT, 1);
	return r;
}

static VKAPI_ATTR void VKAPI_CALL f_DestroyDebugUtilsMessengerEXT(
	VkInstance i, VkDebugUtilsMessengerEXT m, const VkAllocationCallbacks *a) {
	hook *h = find(i);
	h->instance.DestroyDebugUtilsMessengerEXT(i, m, a);
	vka_faults_count(h->faults, VKA_OBJECT_DebugUtilsMessengerEXT, -1);
}

static VKAPI_ATTR VkResult VKAPI_CALL f_CreateHeadlessSurfaceEXT(
	VkInstance i, const VkHeadlessSurfaceCreateInfoEXT *info, const VkAllocationCallbacks *a, VkSurfaceKHR *out) {
	hook *h = find(i);
	int32_t f;
	if (vka_faults_take(h->faults, VKA_CALL_CreateHeadlessSurfaceEXT, 0, &f))
		return (VkResult)f;
	VkResult r = h->instance.CreateHeadlessSurfaceEXT(i, info, a, out);
	if (r == VK_SUCCESS)
		vka_faults_count(h->faults, VKA_OBJECT_SurfaceKHR, 1);
	return r;
}

static VKAPI_ATTR void VKAPI_CALL f_DestroySurfaceKHR(VkInstance i, VkSurfaceKHR s, const VkAllocationCallbacks *a) {
	hook *h = find(i);
	h->instance.DestroySurfaceKHR(i, s, a);
	vka_faults_count(h->faults, VKA_OBJECT_SurfaceKHR, -1);
}

// What a physical device says of a surface.

#define ASK(name, params, args) \
	static VKAPI_ATTR VkResult VKAPI_CALL f_##name params { \
		hook *h = find(p); \
		int32_t r; \
		return vka_faults_take(h->faults, VKA_CALL_##name, 0, &r) ? (VkResult)r : h->instance.name args; \
	}
ASK(GetPhysicalDeviceSurfaceSupportKHR, (VkPhysicalDevice p, uint32_t f, VkSurfaceKHR s, VkBool32 *out), (p, f, s, out))
ASK(GetPhysicalDeviceSurfaceCapabilitiesKHR, (VkPhysicalDevice p, VkSurfaceKHR s, VkSurfaceCapabilitiesKHR *out), (p, s, out))

#define ASK_LIST(name, type) \
	static VKAPI_ATTR VkResult VKAPI_CALL f_##name(VkPhysicalDevice p, VkSurfaceKHR s, uint32_t *n, type *out) { \
		hook *h = find(p); \
		int32_t r; \
		if (vka_faults_take(h->faults, VKA_CALL_##name, out != NULL, &r)) { \
			if (r != VK_INCOMPLETE) \
				return (VkResult)r; \
			*n /= 2; \
			VkResult real = h->instance.name(p, s, n, out); \
			return real < 0 ? real : VK_INCOMPLETE; \
		} \
		return h->instance.name(p, s, n, out); \
	}
ASK_LIST(GetPhysicalDeviceSurfaceFormatsKHR, VkSurfaceFormatKHR)
ASK_LIST(GetPhysicalDeviceSurfacePresentModesKHR, VkPresentModeKHR)

int vka_hook_instance(vka_instance *t, vka_faults *f) {
	hook *h = calloc(1, sizeof *h);
	if (!h)
		return 0;
	h->faults = f;
	h->table = t;
	h->instance = *t;
	if (!enlist(h, (uint64_t)(uintptr_t)t->instance, 0)) {
		free(h);
		return 0;
	}
	t->EnumerateDeviceExtensionProperties = f_EnumerateDeviceExtensionProperties;
	t->CreateDevice = f_CreateDevice;
	if (t->GetPhysicalDeviceCooperativeMatrixPropertiesKHR)
		t->GetPhysicalDeviceCooperativeMatrixPropertiesKHR = f_GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
	if (t->CreateDebugUtilsMessengerEXT && t->DestroyDebugUtilsMessengerEXT) {
		t->CreateDebugUtilsMessengerEXT = f_CreateDebugUtilsMessengerEXT;
		t->DestroyDebugUtilsMessengerEXT = f_DestroyDebugUtilsMessengerEXT;
	}
#define REPLACE_SURFACE(name) \
	if (t->name) \
		t->name = f_##name;
	REPLACE_SURFACE(CreateHeadlessSurfaceEXT)
	REPLACE_SURFACE(DestroySurfaceKHR)
	REPLACE_SURFACE(GetPhysicalDeviceSurfaceSupportKHR)
	REPLACE_SURFACE(GetPhysicalDeviceSurfaceCapabilitiesKHR)
	REPLACE_SURFACE(GetPhysicalDeviceSurfaceFormatsKHR)
	REPLACE_SURFACE(GetPhysicalDeviceSurfacePresentModesKHR)
	return 1;
}

int vka_hook_physical(vka_instance *t, uint64_t physical) {
	return enlist(find(t->instance), physical, 0);
}

// Devices: first the calls that make and destroy objects.

#define CREATE(object, handle, info) \
	static VKAPI_ATTR VkResult VKAPI_CALL f_Create##object( \
		VkDevice d, const info *i, const VkAllocationCallbacks *a, handle *out) { \
		hook *h = find(d); \
		VkResult r; \
		if (fails(h, VKA_CALL_Create##object, &r)) \
			return r; \
		if ((r = h->device.Create##object(d, i, a, out)) == VK_SUCCESS) \
			vka_faults_count(h->faults, VKA_OBJECT_##object, 1); \
		return r; \
	}
#define DESTROY(call, object, handle) \
	static VKAPI_ATTR void VKAPI_CALL f_##call(VkDevice d, handle x, const VkAllocationCallbacks *a) { \
		hook *h = find(d); \
		settle(h); \
		h->device.call(d, x, a); \
		if (x) \
			vka_faults_count(h->faults, VKA_OBJECT_##object, -1); \
	}
#define OBJECT(object) \
	CREATE(object, Vk##object, Vk##object##CreateInfo) \
	DESTROY(Destroy##object, object, Vk##object)

OBJECT(Buffer)
OBJECT(PipelineCache)
OBJECT(ShaderModule)
OBJECT(DescriptorSetLayout)
OBJECT(PipelineLayout)
OBJECT(DescriptorPool)
OBJECT(Fence)
OBJECT(Semaphore)
OBJECT(QueryPool)
CREATE(CommandPool, VkCommandPool, VkCommandPoolCreateInfo)
DESTROY(DestroyPipeline, Pipeline, VkPipeline)
DESTROY(FreeMemory, DeviceMemory, VkDeviceMemory)
CREATE(SwapchainKHR, VkSwapchainKHR, VkSwapchainCreateInfoKHR)
DESTROY(DestroySwapchainKHR, SwapchainKHR, VkSwapchainKHR)

static VKAPI_ATTR VkResult VKAPI_CALL f_AllocateMemory(
	VkDevice d, const VkMemoryAllocateInfo *i, const VkAllocationCallbacks *a, VkDeviceMemory *out) {
	hook *h = find(d);
	VkResult r;
	if (fails(h, VKA_CALL_AllocateMemory, &r))
		return r;
	if ((r = h->device.AllocateMemory(d, i, a, out)) == VK_SUCCESS)
		vka_faults_count(h->faults, VKA_OBJECT_DeviceMemory, 1);
	return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL f_CreateComputePipelines(VkDevice d, VkPipelineCache c, uint32_t n,
	const VkComputePipelineCreateInfo *i, const VkAllocationCallbacks *a, VkPipeline *out) {
	hook *h = find(d);
	VkResult r;
	if (fails(h, VKA_CALL_CreateComputePipelines, &r)) {
		memset(out, 0, n * sizeof *out);
		return r;
	}
	if ((r = h->device.CreateComputePipelines(d, c, n, i, a, out)) == VK_SUCCESS)
		vka_faults_count(h->faults, VKA_OBJECT_Pipeline, n);
	return r;
}

static VKAPI_ATTR void VKAPI_CALL f_DestroyCommandPool(VkDevice d, VkCommandPool p, const VkAllocationCallbacks *a) {
	hook *h = find(d);
	settle(h);
	h->device.DestroyCommandPool(d, p, a);
	if (p) {
		vka_faults_count(h->faults, VKA_OBJECT_CommandBuffer, -strike(h->table, 0, (uint64_t)p));
		vka_faults_count(h->faults, VKA_OBJECT_CommandPool, -1);
	}
}

static VKAPI_ATTR VkResult VKAPI_CALL f_AllocateCommandBuffers(
	VkDevice d, const VkCommandBufferAllocateInfo *i, VkCommandBuffer *out) {
	hook *h = find(d);
	VkResult r;
	if (fails(h, VKA_CALL_AllocateCommandBuffers, &r))
		return r;
	if ((r = h->device.AllocateCommandBuffers(d, i, out)) != VK_SUCCESS)
		return r;
	for (uint32_t n = 0; n < i->commandBufferCount; n++)
		if (!enlist(h, (uint64_t)(uintptr_t)out[n], (uint64_t)i->commandPool))
			abort(); // the host has no few bytes left in a test
	vka_faults_count(h->faults, VKA_OBJECT_CommandBuffer, i->commandBufferCount);
	return r;
}

static VKAPI_ATTR void VKAPI_CALL f_FreeCommandBuffers(VkDevice d, VkCommandPool p, uint32_t n, const VkCommandBuffer *c) {
	hook *h = find(d);
	settle(h);
	for (uint32_t i = 0; i < n; i++)
		vka_faults_count(h->faults, VKA_OBJECT_CommandBuffer, -strike(h->table, (uint64_t)(uintptr_t)c[i], (uint64_t)p));
	h->device.FreeCommandBuffers(d, p, n, c);
}

static VKAPI_ATTR void VKAPI_CALL f_DestroyDevice(VkDevice d, const VkAllocationCallbacks *a) {
	hook *h = find(d);
	settle(h);
	h->device.DestroyDevice(d, a);
	vka_faults_count(h->faults, VKA_OBJECT_Device, -1);
}

// The other calls that can fail.

#define CALL(name, params, args) \
	static VKAPI_ATTR VkResult VKAPI_CALL f_##name params { \
		hook *h = find(d); \
		VkResult r; \
		return fails(h, VKA_CALL_##name, &r) ? r : h->device.name args; \
	}
CALL(BindBufferMemory, (VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize o), (d, b, m, o))
CALL(MapMemory, (VkDevice d, VkDeviceMemory m, VkDeviceSize o, VkDeviceSize s, VkMemoryMapFlags f, void **p), (d, m, o, s, f, p))
CALL(FlushMappedMemoryRanges, (VkDevice d, uint32_t n, const VkMappedMemoryRange *x), (d, n, x))
CALL(InvalidateMappedMemoryRanges, (VkDevice d, uint32_t n, const VkMappedMemoryRange *x), (d, n, x))
CALL(MergePipelineCaches, (VkDevice d, VkPipelineCache c, uint32_t n, const VkPipelineCache *x), (d, c, n, x))
CALL(ResetDescriptorPool, (VkDevice d, VkDescriptorPool p, VkDescriptorPoolResetFlags f), (d, p, f))
CALL(AllocateDescriptorSets, (VkDevice d, const VkDescriptorSetAllocateInfo *i, VkDescriptorSet *s), (d, i, s))
CALL(ResetCommandPool, (VkDevice d, VkCommandPool p, VkCommandPoolResetFlags f), (d, p, f))
CALL(BeginCommandBuffer, (VkCommandBuffer d, const VkCommandBufferBeginInfo *i), (d, i))
CALL(EndCommandBuffer, (VkCommandBuffer d), (d))
CALL(ResetCommandBuffer, (VkCommandBuffer d, VkCommandBufferResetFlags f), (d, f))
CALL(ResetFences, (VkDevice d, uint32_t n, const VkFence *f), (d, n, f))
CALL(SignalSemaphore, (VkDevice d, const VkSemaphoreSignalInfo *i), (d, i))
CALL(GetPipelineExecutablePropertiesKHR,
	(VkDevice d, const VkPipelineInfoKHR *i, uint32_t *n, VkPipelineExecutablePropertiesKHR *out), (d, i, n, out))
CALL(GetPipelineExecutableStatisticsKHR,
	(VkDevice d, const VkPipelineExecutableInfoKHR *i, uint32_t *n, VkPipelineExecutableStatisticKHR *out), (d, i, n, out))

static VKAPI_ATTR VkResult VKAPI_CALL f_GetPipelineCacheData(VkDevice d, VkPipelineCache c, size_t *n, void *out) {
	hook *h = find(d);
	int32_t r;
	if (vka_faults_take(h->faults, VKA_CALL_GetPipelineCacheData, out != NULL, &r)) {
		if (r != VK_INCOMPLETE)
			return (VkResult)r;
		*n = 0;
		return VK_INCOMPLETE;
	}
	return h->device.GetPipelineCacheData(d, c, n, out);
}

// And those that a lost device fails; calls on the queue are counted, so that settle knows when the last has returned.

#define WAIT(name, params, args) \
	static VKAPI_ATTR VkResult VKAPI_CALL f_##name params { \
		hook *h = find(d); \
		VkResult r; \
		atomic_fetch_add(&h->calls, 1); \
		if (!lost(h, VKA_CALL_##name, &r)) \
			r = h->device.name args; \
		atomic_fetch_sub(&h->calls, 1); \
		return r; \
	}
WAIT(DeviceWaitIdle, (VkDevice d), (d))
WAIT(QueueWaitIdle, (VkQueue d), (d))
WAIT(QueueSubmit, (VkQueue d, uint32_t n, const VkSubmitInfo *i, VkFence f), (d, n, i, f))
WAIT(GetFenceStatus, (VkDevice d, VkFence f), (d, f))
WAIT(WaitForFences, (VkDevice d, uint32_t n, const VkFence *f, VkBool32 all, uint64_t ns), (d, n, f, all, ns))
WAIT(WaitSemaphores, (VkDevice d, const VkSemaphoreWaitInfo *i, uint64_t ns), (d, i, ns))
WAIT(GetSemaphoreCounterValue, (VkDevice d, VkSemaphore s, uint64_t *v), (d, s, v))
WAIT(GetQueryPoolResults, (VkDevice d, VkQueryPool p, uint32_t first, uint32_t n, size_t size, void *out, VkDeviceSize stride, VkQueryResultFlags f),
	(d, p, first, n, size, out, stride, f))

static VKAPI_ATTR VkResult VKAPI_CALL f_GetSwapchainImagesKHR(VkDevice d, VkSwapchainKHR s, uint32_t *n, VkImage *out) {
	hook *h = find(d);
	int32_t r;
	if (vka_faults_take(h->faults, VKA_CALL_GetSwapchainImagesKHR, out != NULL, &r)) {
		if (r != VK_INCOMPLETE)
			return (VkResult)r;
		*n /= 2;
		VkResult real = h->device.GetSwapchainImagesKHR(d, s, n, out);
		return real < 0 ? real : VK_INCOMPLETE;
	}
	return h->device.GetSwapchainImagesKHR(d, s, n, out);
}

// An image that is told to be suboptimal was acquired all the same.
static VKAPI_ATTR VkResult VKAPI_CALL f_AcquireNextImageKHR(
	VkDevice d, VkSwapchainKHR s, uint64_t ns, VkSemaphore semaphore, VkFence fence, uint32_t *index) {
	hook *h = find(d);
	VkResult r, real;
	atomic_fetch_add(&h->calls, 1);
	int failed = lost(h, VKA_CALL_AcquireNextImageKHR, &r);
	if (!failed || r == VK_SUBOPTIMAL_KHR) {
		real = h->device.AcquireNextImageKHR(d, s, ns, semaphore, fence, index);
		if (!failed || real != VK_SUCCESS)
			r = real;
	}
	atomic_fetch_sub(&h->calls, 1);
	return r;
}

// A presentation that fails because of its surface waits for its semaphores and gives its image back all the same.
static VKAPI_ATTR VkResult VKAPI_CALL f_QueuePresentKHR(VkQueue d, const VkPresentInfoKHR *i) {
	hook *h = find(d);
	VkResult r, real;
	atomic_fetch_add(&h->calls, 1);
	int failed = lost(h, VKA_CALL_QueuePresentKHR, &r);
	if (!failed || r == VK_SUBOPTIMAL_KHR || r == VK_ERROR_OUT_OF_DATE_KHR || r == VK_ERROR_SURFACE_LOST_KHR) {
		real = h->device.QueuePresentKHR(d, i);
		if (!failed || real < 0)
			r = real;
	}
	atomic_fetch_sub(&h->calls, 1);
	return r;
}

#define VKA_FAULT_REPLACED(X) \
	X(DestroyDevice) X(DeviceWaitIdle) X(QueueSubmit) X(QueueWaitIdle) \
	X(CreateBuffer) X(DestroyBuffer) X(BindBufferMemory) \
	X(AllocateMemory) X(FreeMemory) X(MapMemory) X(FlushMappedMemoryRanges) X(InvalidateMappedMemoryRanges) \
	X(CreatePipelineCache) X(DestroyPipelineCache) X(GetPipelineCacheData) X(MergePipelineCaches) \
	X(CreateShaderModule) X(DestroyShaderModule) X(CreateDescriptorSetLayout) X(DestroyDescriptorSetLayout) \
	X(CreatePipelineLayout) X(DestroyPipelineLayout) X(CreateComputePipelines) X(DestroyPipeline) \
	X(CreateDescriptorPool) X(DestroyDescriptorPool) X(ResetDescriptorPool) X(AllocateDescriptorSets) \
	X(CreateCommandPool) X(DestroyCommandPool) X(ResetCommandPool) X(AllocateCommandBuffers) X(FreeCommandBuffers) \
	X(BeginCommandBuffer) X(EndCommandBuffer) X(ResetCommandBuffer) \
	X(CreateFence) X(DestroyFence) X(ResetFences) X(GetFenceStatus) X(WaitForFences) \
	X(CreateSemaphore) X(DestroySemaphore) X(WaitSemaphores) X(GetSemaphoreCounterValue) X(SignalSemaphore) \
	X(CreateQueryPool) X(DestroyQueryPool) X(GetQueryPoolResults) \
	X(GetPipelineExecutablePropertiesKHR) X(GetPipelineExecutableStatisticsKHR) \
	X(CreateSwapchainKHR) X(DestroySwapchainKHR) X(GetSwapchainImagesKHR) X(AcquireNextImageKHR) X(QueuePresentKHR)

int vka_hook_device(vka_device *d, vka_faults *f, uint64_t queue) {
	hook *h = calloc(1, sizeof *h);
	if (!h)
		return 0;
	h->faults = f;
	h->table = d;
	h->device = *d;
	if (!enlist(h, (uint64_t)(uintptr_t)d->device, 0)) {
		free(h);
		return 0;
	}
	if (!enlist(h, queue, 0)) {
		vka_unhook(d);
		return 0;
	}
#define REPLACE(name) \
	if (d->name) \
		d->name = f_##name;
	VKA_FAULT_REPLACED(REPLACE)
	return 1;
}

int vka_hook_queue(vka_device *d, uint64_t queue) { return enlist(find(d->device), queue, 0); }

void vka_unhook(void *table) {
	hook *h = NULL;
	take(&registry_lock);
	for (entry *e = registry; e && !h; e = e->next)
		if (e->hook->table == table)
			h = e->hook;
	drop(&registry_lock);
	strike(table, 0, 0);
	free(h);
}
