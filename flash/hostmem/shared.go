package hostmem

import "errors"

var (
	// ErrOtherHost is the error of [Open] for memory of another host, of an earlier start of this one, or of a container whose processes
	// this one cannot name.
	ErrOtherHost = errors.New("flash: memory of another host")
	// ErrGone is the error of [Open] for memory that is not where its descriptor says: its process has ended, closed it, may not be looked
	// into by this one, or has something else there.
	ErrGone = errors.New("flash: no such memory of another process")
)

// Descriptor says where memory is that processes of one host can map. It is data: as JSON, for one, it goes from process to process.
type Descriptor struct {
	Host    string // the system since its start, and its namespace of processes
	PID, FD int    // the process, and its descriptor of a file in memory
	Inode   uint64 // of that file
	Bytes   int    // as many as [NewShared] was asked for
}

// NewShared is [New] of memory that other processes of the host can map, by its Descriptor. On systems other than Linux, and where Linux
// gives no file in memory (memfd_create), it is New, and there is no Descriptor. Such memory is freed by Close alone.
func NewShared(bytes int) (*Memory, error) {
	if bytes < 1 {
		return New(bytes)
	}
	if m := newShared(bytes); m != nil {
		return m, nil
	}
	return New(bytes)
}

// Descriptor is what other processes open the memory by; nil where they cannot, and of memory that Open gave.
func (m *Memory) Descriptor() *Descriptor {
	if m == nil || m.descriptor == nil {
		return nil
	}
	d := *m.descriptor
	return &d
}

// Open maps memory of another process, or of this one: the same bytes, at another address. It stays after that process has ended or
// closed its own, until it is closed here.
//
// Errors are [*flash.ArgumentError] for what describes nothing, ErrOtherHost, ErrGone, and [flash.ErrUnsupported] on systems other than
// Linux. What it maps can only be memory of NewShared of as many bytes: nobody can make that shorter, so that no access faults.
func Open(d Descriptor) (*Memory, error) {
	switch {
	case d.Bytes < 1:
		return nil, badArgument("Descriptor.Bytes", d.Bytes, "must be at least 1")
	case d.PID < 1:
		return nil, badArgument("Descriptor.PID", d.PID, "must be at least 1")
	case d.FD < 0:
		return nil, badArgument("Descriptor.FD", d.FD, "must be at least 0")
	}
	return open(d)
}
