package hostmem

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// seals keep a file in memory as long as it is: a shorter one would fault under who has mapped it.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// thisHost tells hosts apart, and containers of one: the same number is another process in each of these.
var thisHost = sync.OnceValues(func() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	processes, err := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(boot)) + " " + processes, err
})

// newShared gives nil where there is no such memory.
func newShared(bytes int) *Memory {
	host, err := thisHost()
	if err != nil {
		return nil
	}
	fd, err := unix.MemfdCreate("vkattn", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil
	}
	m, err := func() (*Memory, error) {
		n := aligned(bytes)
		if err := unix.Ftruncate(fd, int64(n)); err != nil {
			return nil, err
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			return nil, err
		}
		var s unix.Stat_t
		if err := unix.Fstat(fd, &s); err != nil {
			return nil, err
		}
		m, err := mapped(fd, bytes, n)
		if err == nil {
			m.descriptor = &Descriptor{Host: host, PID: os.Getpid(), FD: fd, Inode: s.Ino, Bytes: bytes}
		}
		return m, err
	}()
	if err != nil {
		_ = unix.Close(fd)
		return nil
	}
	unmap := m.unmap
	m.unmap = func() error {
		_ = unix.Close(fd)
		return unmap()
	}
	return m
}

func open(d Descriptor) (*Memory, error) {
	host, err := thisHost()
	if err != nil {
		return nil, &flash.UnsupportedError{What: "hostmem.Open", Reasons: []string{err.Error()}}
	}
	if d.Host != host {
		return nil, fmt.Errorf("%w: %q, where this is %q", ErrOtherHost, d.Host, host)
	}
	gone := func(what string, a ...any) error {
		return fmt.Errorf("%w: file %d of %d %s", ErrGone, d.FD, d.PID, fmt.Sprintf(what, a...))
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", d.PID, d.FD)
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return nil, gone("cannot be looked at: %v", err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG { // opening a device may do something
		return nil, gone("is no file in memory")
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, gone("cannot be opened: %v", err)
	}
	defer func() { _ = unix.Close(fd) }() // the mapping stays
	if has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || has&seals != seals {
		return nil, gone("is none of NewShared")
	}
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, gone("cannot be looked at: %v", err)
	}
	if s.Ino != d.Inode {
		return nil, gone("is another than it was")
	}
	if int64(d.Bytes) > s.Size || int64(aligned(d.Bytes)) != s.Size {
		return nil, gone("has %d bytes, which are none of memory of %d", s.Size, d.Bytes)
	}
	m, err := mapped(fd, d.Bytes, int(s.Size))
	if err != nil {
		return nil, fmt.Errorf("flash: mapping %d bytes of process %d: %w", d.Bytes, d.PID, err)
	}
	return m, nil
}

// mapped is the n bytes of a file, of which so many were asked for, from a multiple of hostAlignment on: mmap alone aligns to pages.
func mapped(fd, bytes, n int) (*Memory, error) {
	place, err := unix.MmapPtr(-1, 0, nil, uintptr(n+hostAlignment), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	unmap := func() error { return unix.MunmapPtr(place, uintptr(n+hostAlignment)) }
	begin := unsafe.Add(place, -int(uintptr(place))&(hostAlignment-1))
	if _, err := unix.MmapPtr(fd, 0, begin, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		_ = unmap()
		return nil, err
	}
	m := &Memory{imported: map[*flash.Device]*vk.Buffer{}, unmap: unmap}
	m.all = unsafe.Slice((*byte)(begin), n)
	m.bytes = m.all[:bytes:bytes]
	return m, nil
}
