// Package kernel is what families of kernels share: the contract of a kernel, which is a value (Kernel, BackwardKernel, JVPKernel) whose
// plan function fits it to a problem and gives a Program; the environment that a program has of a device (Env); tuning parameters and their
// ranges; specialization constants and push constants by name; keys in parts; and the proof that what a driver compiled computes what it
// should (Prove, TryForward, TryBackward, TryJVP).
//
// The families scalar, matrix and standard stand above it. They know neither one another nor package flash, which lists their kernels.
package kernel
