// Package flash is exact attention — FlashAttention — on any GPU with a Vulkan driver: o = softmax(scale · q·kᵀ) · v and its derivatives,
// in reverse and in forward mode, without the matrix of scores ever standing in memory. [Problem], [Backward] and [JVP] give the
// mathematics in full.
//
// # The names that matter first
//
//   - [Attention]: everything below in one call, on Go slices;
//   - [Device.SDPA] and [Device.SDPAVJP]: attention and its gradients in one call, on tensors;
//   - [Open], and [WithDevice] where a machine has several: a [Device];
//   - [Problem]: sizes, type, masks and scores, with the mathematics;
//   - [Device.NewTensor], [Tensor.Upload] and [Tensor.Download]: memory;
//   - [Device.Plan]: a kernel for a problem, built once;
//   - [Plan.Forward], [Plan.Backward] and [Plan.JVP] (forward mode), whose arguments are the tensors of [Forward], [Backward] and [JVP].
//
// The rest is for programs that have a renderer of their own ([Attach], [Device.TensorOn], [Tensor.Used], [Plan.RecordForward]), submit the
// same work over and over ([Recording]), keep caches (packages flash/rows and flash/kvcache), want other masks and scores (package score),
// or measure.
//
// # Use
//
// A [Device] is opened with [Open], or a device of the caller's attached with [Attach]. Tensors are made on it
// ([Device.NewTensor]) or laid over the caller's buffers ([Device.TensorOn]). A [Plan] is made once per [Problem]: it chooses a
// kernel, builds its pipelines, and says how many bytes of workspace it needs and why nothing faster was chosen. It then
//
//   - runs and waits: [Plan.Forward], [Plan.Backward], [Plan.JVP];
//   - runs without waiting: [Plan.SubmitForward], [Plan.SubmitBackward], [Plan.SubmitJVP];
//   - writes its commands into a command buffer of the caller's: [Plan.RecordForward], [Plan.RecordBackward], [Plan.RecordJVP];
//   - or makes a [Recording], which keeps descriptors and workspace and so records and submits again without allocating.
//     [Device.Submit] runs several in one submission: what a layer rotates, appends, attends and merges.
//
// [Attention] does all of it in one call, on Go slices.
//
// [Tensor.Upload] converts from float32; [Upload16] takes 16-bit values that a program has already, as they are.
//
// # What a plan costs
//
// The first plan of its kind compiles pipelines: tens of milliseconds for scalar kernels on a CPU driver, longer for kernels on matrices,
// which also prove themselves on a small problem. Pipelines are kept in the process, and on disk between runs ([WithCacheDir]), so a later
// plan of the same kind takes about half a millisecond on the host, and the next run mostly reads files. The kind is the kernel and its
// tile, the type, the head dimensions, and which masks and options there are; batch, heads and lengths matter only through the tile that
// they lead to. So make plans before the first answer is due, and keep them: a plan may be in flight any number of times, and holds no
// memory of the device until it runs.
//
// A cache of keys that grows by a token a step does not need a new plan for each step: let KeyLen be what the cache has room for, set
// [Problem].KeyLengths, and give the lengths in device memory. One plan, and one [Recording], then serve every step, and keys that are not
// there yet cost nothing. A cache that doubles when it is full needs one plan for each size.
//
// # Shapes
//
// q [B, Hq, Nq, D], k [B, Hk, Nk, D], v [B, Hk, Nk, Dv] and o [B, Hq, Nq, Dv] are of the problem's [DType]; lse [B, Hq, Nq] is
// fp32, the natural logarithm of each row's sum of exponentials. Query head h reads key head h / (Hq/Hk), so that Hk = Hq is
// multi-head, 1 < Hk < Hq grouped-query and Hk = 1 multi-query attention. Strides are free but for the last, which is 1; they
// count elements, offsets and sizes count bytes, times of the device are durations.
//
// # Numbers
//
// Softmax and accumulation are fp32 whatever the storage type; where the weights are an operand of a product of matrices ([TierMatrix]),
// they are rounded to the storage type first; fp32 is taken there only where that tier is asked for, as sums of terms of a narrower type,
// which keep its precision. The same inputs give the same bits on one device and driver, backward too. Every kernel is held to twice the
// error of attention computed in the inputs' own type, gradients to three times, which is the rule of FlashAttention's own tests, and
// tangents as gradients.
//
// # Few queries
//
// Where a problem has too few blocks of queries to fill the device, [Flash] cuts the keys into parts (split-KV), each with workgroups of
// its own, and a second kernel puts the results together: o_i = Σ_s 2^(t_si − t_i) o_si with 2^t_i = Σ_s 2^t_si, where o_si and t_si are
// the output and the base-2 log-sum-exp of part s. That takes a workspace of 4·parts·B·Hq·Nq·(Dv + 1) bytes, Dv rounded up to a multiple
// of 8, and at most 32 MiB unless the caller asks for more parts. [Plan.ForwardInfo] says how many there are, and [WithTuning] of "parts"
// sets another number, 1 for none. Few rows for each key head, as in decoding, have kernels of their own: up to 16 rows on devices with
// matrices whose layout is known, up to eight on others with subgroup shuffles. WithTuning of "decode" to 0 does without them.
//
// # Lists of keys
//
// Sparse attention gives each query a list of the keys that it sees: [Problem].Lists. Forward passes, of any number of queries, are the
// kernels of few rows, in fp32 arithmetic or for wide heads on matrices, and workgroups take rows of one query; backward passes first find
// the queries of each key, on the device, so that sums over them have one order.
//
// # Caches of keys and values
//
// Batch entries may have lengths of their own, in device memory: [Problem].KeyLengths and QueryLengths. What a cache holds beyond them
// costs nothing and is never used. Package flash/rows writes new keys and values where each entry's length says, into padded caches or
// [Pages], with rotary position embedding, quantisation and the queries' rotation on the way, in one dispatch, and turns queries, and
// gradients back.
//
// Sequences of all lengths may lie one behind the other, as they do for training and in serving: [Packed]. Where each begins is in device
// memory too, so one plan, and one recording, serves whatever is packed into its rows. Workgroups are started for all rows of a tensor,
// filled or not, and those for nothing end at once: that costs less than having the device count them, which the tuning parameter
// indirect=1 asks for.
//
// Keys and values may lie in pages of pools that all entries share ([Pages]), and be quantised ([Problem].KeyType and ValueType), each by
// itself or both: Flash reads them in forward passes, for any number of queries. Lengths and tables are in device memory, so one plan, and
// one recording, serves caches that grow. Block masks and mask functions go by positions there as anywhere. There is no backward pass, and
// no forward mode.
//
// A program that has no cache of its own takes one of package flash/kvcache, which owns pages and the sequences in them: these are added,
// forked, truncated and freed, and plans and recordings are made once, whatever the lengths become.
//
// # Partial results
//
// Outputs over disjoint keys, each with its lse, are put together by [Device.PlanMerge], or [Device.Merge] in one call: o = Σ_n exp(lse_n −
// lse) o_n with lse = log Σ_n exp(lse_n). Requests that share a prefix attend to it together, with all their queries as rows of one batch
// entry, and each to keys of its own (cascade attention; see the example of PlanMerge); keys on several devices, or in several pools, are
// merged likewise.
//
// # Pictures of weights
//
// [Plan.Map] pools the weights of heads into the cells of a picture, at any length, without the matrix, and gives the entropy and mean
// distance of each query; a recording of [Plan.NewMapRecording] makes one after another.
//
// # Tuning and measuring
//
// Package flash/tune lists the tiles that a device offers for a problem and stores the fastest for later plans; it times recordings,
// measures a device's ceilings, and counts the operations of each step of a pass and the bytes that its kernels load and store.
//
// # Errors
//
// Every argument is checked before any work. What a caller passed wrongly gives an [*ArgumentError] ([ErrArgument]) with the argument, its
// value and the rule; a problem that no kernel of the device can run an [*UnsupportedError] ([ErrUnsupported]) with each kernel's reason;
// too little memory a [*MemoryError]; a lost device [ErrDeviceLost], then and ever after; use after Close [ErrClosed]. A cancelled context
// gives its own error, once the device has let go of the memory. Nothing panics, and nothing falls back silently to a slower kernel,
// another type or the CPU.
//
// # Concurrency
//
// Devices, tensors, masks, weights and plans may be used from several goroutines, and a plan may be in flight any number of times. A
// [Recording] belongs to one goroutine at a time and is in flight once.
//
// # Sources
//
// Dao, Fu, Ermon, Rudra, Ré: FlashAttention, 2022 ([Flash1], [Blocks]); Dao: FlashAttention-2, 2023 ([Flash]); Milakov,
// Gimelshein: Online normalizer calculation for softmax, 2018; Dao, Haziza, Massa, Sizov: Flash-Decoding for long-context
// inference, 2023 (keys in parts); Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as
// 1, 2, 3, 2011 (the Philox generator of [Problem].Dropout).
package flash
