// Package report turns result rows into text: a table for the terminal or for
// Markdown, CSV, JSON lines and the Go benchmark format, each with the ratios
// against standard attention and against a peer.
//
// It computes nothing but ratios and their geometric means; figures come from
// package bench.
package report
