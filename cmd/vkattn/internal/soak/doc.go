// Package soak looks for what only shows after a long time: a problem in a million on which a kernel is wrong (Differential), and memory
// that grows while plans are made, cancelled and closed from many goroutines (Plans). tools/soak.sh runs both; the tests of this package
// run them for a few seconds.
//
// Everything is drawn from a seed, and what fails is named so that it can be run again by itself.
package soak
