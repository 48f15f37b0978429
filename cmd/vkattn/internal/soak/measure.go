package soak

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// Mark is what a process holds while nothing runs.
type Mark struct {
	Plans      int    `json:"plans"`      // lived so far
	Bytes      uint64 `json:"bytes"`      // of the device, by the library's account
	Buffers    int    `json:"buffers"`    // the same
	Heap       uint64 `json:"heap"`       // of Go, after a collection
	RSS        uint64 `json:"rss"`        // of the process; 0 where the system does not say
	Goroutines int    `json:"goroutines"` // of the process
	Files      int    `json:"files"`      // open; 0 where the system does not say
}

// String is a line of a table.
func (m Mark) String() string {
	return fmt.Sprintf("%8d plans: %8d bytes in %d buffers, heap %d KiB, resident %d KiB, %d goroutines, %d files",
		m.Plans, m.Bytes, m.Buffers, m.Heap>>10, m.RSS>>10, m.Goroutines, m.Files)
}

// measure waits until a process that has become quiet has no more than settled goroutines, and looks at what it holds.
func measure(dev *flash.Device, plans, settled int) Mark {
	for try := 0; try < 200 && settled > 0 && runtime.NumGoroutine() > settled; try++ {
		time.Sleep(5 * time.Millisecond) // those of timers are on their way out
	}
	for range 2 { // finalizers run after the first
		debug.FreeOSMemory()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	u := dev.Usage()
	m := Mark{Plans: plans, Bytes: u.Current, Heap: stats.HeapAlloc, RSS: resident(), Goroutines: runtime.NumGoroutine()}
	for _, l := range u.ByLabel {
		m.Buffers += l.Buffers
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		m.Files = len(files)
	}
	return m
}

// resident is the process's memory that is not swapped out or never touched, in bytes; 0 where there is no /proc.
func resident() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// What may be added between two marks that should be alike, besides a hundredth: tables grow to what their fullest moment needed.
const (
	slackHeap = 128 << 10
	slackRSS  = 512 << 10
)

// grown names what is not as it was at an earlier mark: memory of the process by more than a hundredth, anything else at all.
func (m Mark) grown(since Mark) (out []string) {
	exact := func(name string, now, then int) {
		if now != then {
			out = append(out, fmt.Sprintf("%s: %d, and %d after %d plans", name, now, then, since.Plans))
		}
	}
	exact("bytes of the device", int(m.Bytes), int(since.Bytes))
	exact("buffers of the device", m.Buffers, since.Buffers)
	exact("goroutines", m.Goroutines, since.Goroutines)
	if m.Files > since.Files {
		exact("open files", m.Files, since.Files)
	}
	within := func(name string, now, then, slack uint64) {
		if now > then+then/100+slack {
			out = append(out, fmt.Sprintf("%s: %d KiB, and %d KiB after %d plans, which is more than a hundredth more", name, now>>10,
				then>>10, since.Plans))
		}
	}
	within("Go's heap", m.Heap, since.Heap, slackHeap)
	within("memory of the process", m.RSS, since.RSS, slackRSS)
	return out
}
