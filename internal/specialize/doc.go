// Package specialize makes a SPIR-V module of given specialization constants smaller before a driver sees it: the constants' values are
// written in, branches on what follows from them are decided, and blocks that cannot be reached any more are left out.
//
// A driver does the same while it compiles. But it reads the whole module first, as validation layers do, and modules that have many forms
// of a kernel in them are large: of a megabyte a twentieth is left, say. What is left is computed as before, by the same instructions in
// the same order.
//
// It is sparse conditional constant propagation (M. N. Wegman and F. K. Zadeck, Constant propagation with conditional branches, ACM TOPLAS
// 13 (2), 1991), over bools and integers of 32 bits, by sweeps over the blocks. Structured control flow (SPIR-V specification, section
// 2.11) stays as it is: a decided branch keeps its merge instruction, and of the side not taken one empty block stays. The last selection
// of a loop that is to be unrolled stays whole (closesUnrolled).
package specialize

// Revision counts changes of what is made of a module. Who remembers what was found out about a specialized module names it.
const Revision = 4

// Env is the environment variable that says whether modules are specialized, 1 for yes, 0 for no; without it they are.
const Env = "VKATTN_SPECIALIZE"
