/* vkattn.h: exact attention (FlashAttention) on any GPU with a Vulkan driver, for C and what calls C.
 *
 * With q [B, Hq, Nq, D], k [B, Hk, Nk, D], v [B, Hk, Nk, Dv], query head h reading key head h' = h / (Hq/Hk):
 *
 *     s_ij  = scale * sum_d q[b,h,i,d] * k[b,h',j,d] + bias[b,h,i,j]        -inf where a mask forbids (i, j)
 *     lse_i = log(sum_j exp(s_ij) + exp(sink[h]))                           without sinks the sum alone
 *     o_i   = sum_j exp(s_ij - lse_i) * v_j
 *
 * A query that sees no key gives o = 0 and lse = -inf, with sinks its head's sink. Softmax and sums are fp32 whatever the type; the
 * matrix of scores is never in memory. docs/c.md has an outline, examples/c and examples/python have programs.
 *
 * STATUS AND ERRORS. Every function returns a vkattn_status and takes a char **error, which may be NULL. Where it is not, *error is set:
 * to NULL on success, else to a text in UTF-8 that says which argument is what and must be what; vkattn_free frees it. The text comes with
 * the call that failed, not from a "last error" of a thread, because callers with threads of their own (Go, Java, Python's executors) may
 * ask for that on another thread, or after another call. Nothing is printed, and no function ends the process.
 *
 * HANDLES are numbers that are never used twice: one that is closed, of another kind, or made up gives VKATTN_CLOSED.
 *
 * STRUCTURES begin with their size, which the caller sets to sizeof; what else is zero has its default. Pointers to tensors that are
 * optional may be NULL. Nothing that is passed is kept after the call, but for lock, unlock and context of vkattn_external.
 *
 * THREADS. All functions may be called from any thread at any time; calls on one cache take turns. A call returns when its work is done.
 * A process must not fork and go on using the library in the child.
 */
#ifndef VKATTN_H
#define VKATTN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library of the same major version runs programs built with it, and with older ones of that major version. */
#define VKATTN_VERSION_MAJOR 1
#define VKATTN_VERSION_MINOR 0
#define VKATTN_VERSION (VKATTN_VERSION_MAJOR * 1000 + VKATTN_VERSION_MINOR)

typedef int32_t vkattn_status;
enum {
  VKATTN_OK = 0,
  VKATTN_BAD_ARGUMENT = 1,     /* the text names the argument, its value and the rule */
  VKATTN_UNSUPPORTED = 2,      /* no kernel of the device takes the problem; the text has each one's reason */
  VKATTN_NO_MEMORY = 3,        /* of the device */
  VKATTN_NO_DEVICE = 4,        /* no Vulkan, no device, or none of that name */
  VKATTN_DEVICE_LOST = 5,      /* now and ever after: close the device */
  VKATTN_CLOSED = 6,           /* a handle that is closed, or none of this kind */
  VKATTN_OUT_OF_PAGES = 7,     /* of a cache: free a sequence, or wait until one ends */
  VKATTN_UNKNOWN_SEQUENCE = 8, /* of a cache: freed, or never added */
  VKATTN_FAILED = 9,           /* anything else: of the driver, of files */
  VKATTN_PANICKED = 10         /* memory that was passed is not there; otherwise a mistake of this library */
};

typedef uint64_t vkattn_device; /* 0 is none */
typedef uint64_t vkattn_cache;

/* Types of elements. Arithmetic is fp32 whatever they are. */
enum {
  VKATTN_F32 = 0,
  VKATTN_F16 = 1,
  VKATTN_BF16 = 2, /* the upper half of an fp32 */
  VKATTN_BOOL = 3, /* a byte, 0 or not: of masks alone */
  VKATTN_INT32 = 4 /* of lengths alone */
};

/* Element [b, h, n, d] stands at byte  offset + sizeof(element) * (b*strides[0] + h*strides[1] + n*strides[2] + d)  from data on, or in
 * the buffer. The last stride is 1; strides of 0 repeat (of inputs alone); all-zero strides mean row-major order. Every element must lie
 * within bytes. Bytes between the elements of an output keep what they hold.
 *
 * data is memory of the host: it is copied to the device, and outputs are copied back before the call returns.
 * buffer is a VkBuffer of the device that vkattn_device_attach was given, with the usage storage buffer: nothing is copied. Passes wait for
 * what compute and transfer commands of the queue did before with its memory, and have finished when the call returns.
 * One of the two is given. A tensor of one pass may be on the host, another in a buffer. */
typedef struct vkattn_tensor {
  uint32_t size;  /* sizeof(vkattn_tensor) */
  uint32_t dtype; /* VKATTN_F32 and so on */
  void *data;
  uint64_t buffer;
  uint64_t bytes;     /* that data points to, or of the buffer */
  uint64_t offset;    /* of the first element, in bytes: a multiple of the element's size */
  int64_t shape[4];   /* batch, heads, length, dimension (lengths and heads swapped with VKATTN_BNHD); each at least 1 */
  int64_t strides[4]; /* in elements */
} vkattn_tensor;

enum { VKATTN_BHND = 0, VKATTN_BNHD = 1 }; /* the order of axes of q, k, v, o, their gradients and tangents; other tensors keep theirs */
enum {
  VKATTN_CAUSAL_NONE = 0,
  VKATTN_CAUSAL_TOP_LEFT = 1,    /* query i sees keys j <= i (PyTorch's is_causal) */
  VKATTN_CAUSAL_BOTTOM_RIGHT = 2 /* query i sees keys j <= i + Nk - Nq (FlashAttention's causal; decoding) */
};

/* What a pass computes, besides what follows from its tensors. NULL is all zeros: softmax(q*k'/sqrt(D))*v. */
typedef struct vkattn_options {
  uint32_t size;   /* sizeof(vkattn_options) */
  uint32_t layout; /* VKATTN_BHND or VKATTN_BNHD */
  uint32_t causal;
  uint32_t window;      /* not 0: query i sees keys from i + Nk - Nq - window_left to i + Nk - Nq + window_right alone */
  int64_t window_left;  /* -1: no limit */
  int64_t window_right; /* likewise */
  double scale;         /* 0 means 1/sqrt(D) */
  double dropout;       /* probability of dropping a weight, from 0 to below 511/512; kept weights are scaled up */
  uint64_t seed;        /* of dropout: the same seed and offset drop the same weights, in backward passes too */
  uint32_t offset;
  uint32_t reserved; /* 0 */
} vkattn_options;

/* The tensors of a forward pass: q, k, v and o of one type, F32, F16 or BF16, and of the shapes above. Outputs overlap no other tensor. */
typedef struct vkattn_forward {
  uint32_t size; /* sizeof(vkattn_forward) */
  uint32_t reserved;
  const vkattn_tensor *q, *k, *v;
  const vkattn_tensor *o;             /* output */
  const vkattn_tensor *lse;           /* output, optional: F32 [B, Hq, Nq, 1] in row-major order; what backward passes need */
  const vkattn_tensor *max_logit;     /* output, optional: F32 [1, 1, B, Hq], the largest score of each head */
  const vkattn_tensor *bias;          /* optional: F32 or q's type, [B, Hq, Nq, Nk], of which each but Nk may be 1 for all */
  const vkattn_tensor *mask;          /* optional: BOOL of such a shape, or with 1 for Nk; a pair whose byte is 0 is hidden */
  const vkattn_tensor *sinks;         /* optional: F32 [1, 1, 1, Hq], a logit without a value beside each head's scores */
  const vkattn_tensor *query_lengths; /* optional: INT32 [1, 1, 1, B], how many queries each batch entry has */
  const vkattn_tensor *key_lengths;   /* likewise of keys */
} vkattn_forward;

/* The gradients of a loss, from that with respect to o, with p_ij = exp(s_ij - lse_i):
 *
 *     dv_j = sum_i p_ij do_i          ds_ij = p_ij (do_i v_j - do_i o_i + dlse_i)
 *     dq_i = scale sum_j ds_ij k_j    dk_j  = scale sum_i ds_ij q_i
 */
typedef struct vkattn_backward {
  uint32_t size;       /* sizeof(vkattn_backward) */
  uint32_t accumulate; /* not 0: gradients are added to what is there */
  const vkattn_forward *forward; /* what the forward pass was given, with o and lse as it wrote them: inputs here; max_logit is ignored */
  const vkattn_tensor *do_;      /* of o's type and shape */
  const vkattn_tensor *dlse;     /* optional: F32, as lse */
  const vkattn_tensor *dq, *dk, *dv; /* outputs, of the types and shapes of q, k and v */
  const vkattn_tensor *dbias;        /* output, optional: of bias's type and shape; what it was repeated over is summed */
  const vkattn_tensor *dsinks;       /* output, optional: as sinks */
} vkattn_backward;

/* Forward mode: how o and lse move where inputs move by tangents. A tangent that is NULL is zero; one must be given. With f' = 1,
 *
 *     ds_ij = scale (q'_i k_j + q_i k'_j) + bias'_ij      lse'_i = sum_j p_ij ds_ij + exp(sink[h] - lse_i) sink'[h]
 *     o'_i  = sum_j p_ij (ds_ij v_j + v'_j) - lse'_i o_i
 */
typedef struct vkattn_jvp {
  uint32_t size; /* sizeof(vkattn_jvp) */
  uint32_t reserved;
  const vkattn_forward *forward; /* as of vkattn_backward */
  const vkattn_tensor *q_tangent, *k_tangent, *v_tangent, *bias_tangent, *sinks_tangent; /* each as what moves; optional */
  const vkattn_tensor *o_tangent;   /* output, as o */
  const vkattn_tensor *lse_tangent; /* output, optional, as lse */
} vkattn_jvp;

/* Which device, and which files. NULL is all zeros: the best device, pipelines kept in the user's cache folder. */
typedef struct vkattn_open_options {
  uint32_t size;    /* sizeof(vkattn_open_options) */
  uint32_t no_cpu;  /* not 0: fail with VKATTN_NO_DEVICE in place of taking a CPU driver */
  const char *name; /* a place in the list of devices ("0"), or part of a name ("4090"); NULL: the best */
  const char *cache_dir; /* for compiled pipelines; NULL: the user's */
  uint32_t no_cache; /* not 0: no files are read or written */
  uint32_t reserved;
} vkattn_open_options;

/* A Vulkan device of the caller's, which outlives what is made from it and is never destroyed here. Vulkan wants submissions to one
 * queue one at a time: a program that submits to it while it calls this library gives lock and unlock, which are called around each
 * submission, on any thread, both of a submission on the same one. They and context are used until vkattn_device_close has returned. */
typedef struct vkattn_external {
  uint32_t size;         /* sizeof(vkattn_external) */
  uint32_t api_version;  /* that the instance was created with, VK_API_VERSION_1_1 or more; 0: the device's */
  void *get_instance_proc_addr; /* vkGetInstanceProcAddr; NULL: that of this process's loader */
  void *instance, *physical_device, *device, *queue; /* VkInstance and so on; a queue that computes */
  uint32_t queue_family;
  uint32_t no_cache; /* as of vkattn_open_options */
  /* The features that the device was created with, which Vulkan cannot be asked, by the names of their members: robustBufferAccess,
   * shaderInt16, shaderInt64, shaderFloat64, storageBuffer16BitAccess, storageBuffer8BitAccess, shaderFloat16, shaderInt8,
   * timelineSemaphore, subgroupSizeControl, computeFullSubgroups, cooperativeMatrix, cooperativeMatrixRobustBufferAccess,
   * shaderBFloat16Type, shaderBFloat16DotProduct, shaderBFloat16CooperativeMatrix, vulkanMemoryModel, vulkanMemoryModelDeviceScope,
   * bufferDeviceAddress, pipelineExecutableInfo, hostQueryReset, synchronization2, scalarBlockLayout, maintenance4,
   * shaderSubgroupExtendedTypes; and the extensions without features VK_EXT_memory_budget and VK_EXT_external_memory_host. */
  const char *const *features;
  const char *const *extensions; /* that device and instance were created with */
  uint32_t feature_count, extension_count;
  void (*lock)(void *context), (*unlock)(void *context); /* both or neither */
  void *context;
  const char *cache_dir;
} vkattn_external;

/* A cache of the keys and values of sequences, those of all layers, in pages of device memory (PagedAttention). */
typedef struct vkattn_cache_options {
  uint32_t size;  /* sizeof(vkattn_cache_options) */
  uint32_t dtype; /* VKATTN_F32, VKATTN_F16 or VKATTN_BF16, of q, k, v, o and the pools */
  uint32_t layers, heads, key_heads; /* key_heads divides heads */
  uint32_t head_dim, value_dim;      /* value_dim 0 means head_dim */
  uint32_t page;          /* tokens of a page, a power of two from 1 to 512; kernels are fast from 16 on */
  uint32_t pages;         /* that all sequences share */
  uint32_t max_sequences; /* at a time */
  uint32_t max_length;    /* of a sequence, in tokens; 0 means pages * page. As large as need be, no larger */
  uint32_t rows, tokens;  /* of a step: the most sequences, and the most new tokens of one */
} vkattn_cache_options;

/* New tokens of a sequence in a step. Sequence 0 leaves the row without one. */
typedef struct vkattn_request {
  uint64_t sequence;
  uint32_t tokens; /* from 0 to the options' */
  uint32_t reserved;
} vkattn_request;

#ifndef VKATTN_NO_PROTOTYPES

/* VKATTN_VERSION of the library, to be compared with that of the header: the same thousands, and no smaller. */
uint32_t vkattn_version(void);

/* Frees a text of this library. NULL is none. */
void vkattn_free(char *text);

/* Opens a device. The first pass of a kind compiles pipelines: tens of milliseconds and more, once per machine with a cache folder. */
vkattn_status vkattn_device_open(const vkattn_open_options *options, vkattn_device *device, char **error);

/* Takes a device of the caller's, on whose buffers tensors may then be. */
vkattn_status vkattn_device_attach(const vkattn_external *external, vkattn_device *device, char **error);

/* Gives the device's name, its driver, and what there is to notice, a line each; vkattn_free frees the text. */
vkattn_status vkattn_device_describe(vkattn_device device, char **text, char **error);

/* Closes a device, after waiting for its work, and what was made on it. Close its caches too: their handles are taken until then. */
vkattn_status vkattn_device_close(vkattn_device device, char **error);

/* Attention and its derivatives, in reverse and in forward mode. Each plans, which costs microseconds for a problem that was planned
 * before, copies what is on the host, runs and waits. All arguments are checked before the device computes anything. options may be
 * NULL. */
vkattn_status vkattn_sdpa_forward(vkattn_device device, const vkattn_options *options, const vkattn_forward *pass, char **error);
vkattn_status vkattn_sdpa_backward(vkattn_device device, const vkattn_options *options, const vkattn_backward *pass, char **error);
vkattn_status vkattn_sdpa_jvp(vkattn_device device, const vkattn_options *options, const vkattn_jvp *pass, char **error);

/* Makes a cache; closing it frees its sequences and pools. */
vkattn_status vkattn_cache_create(vkattn_device device, const vkattn_cache_options *options, vkattn_cache *cache, char **error);
vkattn_status vkattn_cache_close(vkattn_cache cache, char **error);

/* Adds a sequence without tokens; forks one, the two sharing pages until one writes; truncates one to its first tokens; frees one. */
vkattn_status vkattn_cache_add(vkattn_cache cache, uint64_t *sequence, char **error);
vkattn_status vkattn_cache_fork(vkattn_cache cache, uint64_t of, uint64_t *sequence, char **error);
vkattn_status vkattn_cache_truncate(vkattn_cache cache, uint64_t sequence, uint64_t length, char **error);
vkattn_status vkattn_cache_free(vkattn_cache cache, uint64_t sequence, char **error);
vkattn_status vkattn_cache_length(vkattn_cache cache, uint64_t sequence, uint64_t *length, char **error);

/* Makes room for new tokens, those of requests[i] in row i of the tensors that follow. All get room or none does. For each layer
 * vkattn_cache_attend comes next; until then the sequences of the step are neither truncated nor freed. */
vkattn_status vkattn_cache_step(vkattn_cache cache, const vkattn_request *requests, uint32_t count, char **error);

/* Appends the new tokens' keys and values of a layer to the cache, and has their queries attend to all that it holds of their sequences:
 * q [rows, heads, tokens, head_dim], k [rows, key_heads, tokens, head_dim], v likewise of value_dim, o as q of value_dim, of which the
 * first new tokens of each row are used; lse F32 [rows, heads, tokens, 1]. Rows of o beyond them become 0. Causal is usually
 * VKATTN_CAUSAL_BOTTOM_RIGHT; bias, mask and lengths of pass are NULL. */
vkattn_status vkattn_cache_attend(vkattn_cache cache, uint32_t layer, const vkattn_options *options, const vkattn_forward *pass,
                                  char **error);

#endif /* VKATTN_NO_PROTOTYPES */

#ifdef __cplusplus
}
#endif

#endif /* VKATTN_H */
