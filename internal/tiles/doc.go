// Package tiles holds what every kernel's work is cut into, as text: one file a family of devices, with the facts by which a device is
// of the family, the constants of the time prediction, and rows that say which numbers a kernel takes for which problems. A new GPU is a
// new file here and nothing else; `vkattn tune --export` writes the same format, and --tiles reads it.
//
// A file is lines of words; # begins a comment.
//
//	family hopper                                  # its name, once, first
//	inherits generic                               # whose rows and constants follow the file's own
//	device vendor=nvidia multiprocessors=112..     # facts that all hold; several such lines: one of them
//	constants few_groups=128 half_pace=1.5
//
//	kernel matrix_forward measured                 # rows of a kernel follow, and where they are from
//	dim<=64 mask=none keys>=1024 : w=8 rm=2 bc=128 ck=16 prefetch=1
//	any                          : w=4 rm=1 bc=16 ck=16
//
// The built-in file of the family generic also says, for all files, which numbers the rows of a kernel may name:
// numbers w=1..64 q_reg?=1..256.
//
// Rows are tried from the top: the first that suits the problem and that the device's limits allow is taken. A row names what its
// kernel has no choice for; switches, and what the kernel chooses by itself, may be left out.
//
// Facts of a device: vendor (nvidia, amd, intel, apple, mesa, google or a number), id (PCI), type (cpu, integrated, discrete, virtual,
// multiprocessors, subgroups (that a multiprocessor holds at most), shared (KiB that a workgroup may have), lanes (of a subgroup),
// least_lanes (of the smallest that the device can be made to have) and matrix (a fragment of fp16 into fp32, 16x16x16, or none). Numbers
// may be ranges: 112.., ..64, 8..16. "device any" is every device. Of several families that a device suits, the one that names the most
// facts has it.
//
// Conditions of a row: dim<= (the larger of D and Dv), head_dim=, value_dim=, queries<= and >=, keys<= and >=, rows<= (of a key head,
// queries of all query heads that read it), mask=causal or none, dtype=f32, f16 or bf16, dropout (its draws take shared memory and
// registers), plain (neither dropout nor a block mask), scored (functions of scores), bias (a tensor that is added to them), bare
// (neither functions, biases, masks nor maxima of scores, nor a window, lists, pages or quantised keys), near (the same, but functions, of
// scores and as masks, and windows there may be, and where no mask goes by position no lengths), whole (keys are whole tiles),
// page= (rows of a page of keys), key_type= and value_type= (q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, fp8_e4m3 or fp8_e5m2), packed
// (sequences one behind the other), lanes= and fragment= (as matrix). "any" is every problem. Rows for q4_0 are for the other types of
// four and five bits too, those for fp8_e4m3 for fp8_e5m2.
// Of tuned rows page, types and packed hold as they are, left out too: what was measured of tensors is not for caches.
//
// Where rows are from: measured (on a device of the family), derived (from limits and the prediction, for devices that nobody measured
// here), candidate (no plan takes it by itself, tune measures it) and tuned (tuning parameters that tune measured on one device: they go
// before all rows and are taken as they are).
package tiles
