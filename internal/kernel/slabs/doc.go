// Package slabs is the backward pass by way of memory: P and dS of some heads at a time, and plain products of them.
package slabs
