// Package paging says which page of a key cache holds which tokens of which sequence. It is bookkeeping on the host alone: it knows numbers
// of pages and tokens, and neither a device nor what a page holds.
//
// # Model
//
// Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4. The memory of a cache
// is cut into pages, blocks in the paper, of PageSize tokens each. A sequence is a length and a table: its token at position p stands in
//
//	page table[p / PageSize], row p mod PageSize
//
// so that a sequence takes a page only when it reaches it, and at most PageSize−1 rows of a sequence are without a token. Forked sequences
// share pages, and a page counts the sequences whose tables name it (section 4.4): what is shared is never written. A sequence that goes on
// in a page that is filled partly and shared gets a page of its own first, and the caller is told which rows to copy: copy on write. A page
// that no table names is free.
//
// Pages that a window has left behind are given back early ([Manager.Drop]). Positions stay what they were: the table has -1 for such a
// page.
//
// # What the device does
//
// The same page numbers hold for every layer, for keys and for values. After [Manager.Append] the device first makes all copies of the
// step, in any order, for none reads what another writes; then, behind a barrier, it writes the new rows. Copies have to end first: a
// sequence that is left alone with a page writes into it while others of the same step have just copied out of it.
//
// Pages are given out again as soon as they are free. Work of the device is in order, as it is on one queue with barriers between, or the
// caller waits before it gives pages back.
//
// # Cost
//
// Whatever a Manager needs is allocated by [New]. Nothing after that allocates, but for errors and for a [Step] that grows to the size of
// its batch. Fork, Truncate and Free take time in proportion to the pages concerned, Append to the batch and its new pages.
//
// A Manager belongs to one goroutine at a time.
package paging
