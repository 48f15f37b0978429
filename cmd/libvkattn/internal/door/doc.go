// Package door is the C interface without C: what each function of vkattn.h does, on plain Go values, so that go test and its fuzzer reach
// all of it. Package main beside it only converts.
//
// C cannot be trusted with handles, lengths or the order of calls. So handles are numbers in a table and never addresses, all memory of
// the caller's goes through checked layouts, and every function goes through enter, which turns errors and panics into a Status and a text.
package door
