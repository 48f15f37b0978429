package hostmem

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/vkattn/vkattn/flash"
)

// childVariable has the descriptor of memory that a child of TestSharedWithChild changes.
const childVariable = "VKATTN_TEST_HOSTMEM_CHILD"

func shared(t *testing.T, bytes int) (*Memory, Descriptor) {
	t.Helper()
	m, err := NewShared(bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	d := m.Descriptor()
	require.NotNil(t, d, "Linux has files in memory")
	return m, *d
}

// TestSharedTwice: two mappings in one process are the same bytes, aligned as imports want them, and each lives by itself.
func TestSharedTwice(t *testing.T) {
	for _, n := range []int{1, hostAlignment, 3*hostAlignment + 5} {
		m, d := shared(t, n)
		require.Equal(t, n, d.Bytes)
		require.Len(t, m.Bytes(), n)
		require.Equal(t, make([]byte, n), m.Bytes(), "zeroed")
		other, err := Open(d)
		require.NoError(t, err)
		require.Nil(t, other.Descriptor(), "it is the first's to give")
		require.Len(t, other.Bytes(), n)
		for _, x := range []*Memory{m, other} {
			require.Zero(t, uintptr(unsafe.Pointer(&x.all[0]))%hostAlignment)
			require.Zero(t, len(x.all)%hostAlignment)
		}
		require.NotSame(t, &m.all[0], &other.all[0])
		m.Bytes()[n-1] = 7
		require.EqualValues(t, 7, other.Bytes()[n-1])
		other.Bytes()[0] = 9
		require.EqualValues(t, 9, m.Bytes()[0])
		require.NoError(t, m.Close())
		require.Nil(t, m.Bytes())
		require.EqualValues(t, 9, other.Bytes()[0], "it stays")
		_, err = Open(d)
		require.ErrorIs(t, err, ErrGone)
		require.NoError(t, other.Close())
		require.NoError(t, other.Close(), "again")
	}
	_, err := NewShared(0)
	require.ErrorIs(t, err, flash.ErrArgument)
	plain, err := New(8)
	require.NoError(t, err)
	require.Nil(t, plain.Descriptor())
}

// TestSharedClosesAll: neither files nor mappings are left.
func TestSharedClosesAll(t *testing.T) {
	count := func() (n int) {
		files, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, f := range files {
			if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.Contains(to, "memfd:vkattn") {
				n++
			}
		}
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return n + bytes.Count(maps, []byte("memfd:vkattn"))
	}
	before := count()
	for range 3 {
		m, d := shared(t, 100)
		other, err := Open(d)
		require.NoError(t, err)
		require.Equal(t, before+3, count())
		require.NoError(t, m.Close())
		require.NoError(t, other.Close())
		require.Equal(t, before, count())
	}
}

// TestSharedWithChild: another process changes a byte, and ends; one that has ended has none to give.
func TestSharedWithChild(t *testing.T) {
	if raw := os.Getenv(childVariable); raw != "" {
		var d Descriptor
		require.NoError(t, json.Unmarshal([]byte(raw), &d))
		m, err := Open(d)
		require.NoError(t, err)
		require.EqualValues(t, 3, m.Bytes()[17])
		m.Bytes()[d.Bytes-1] = 5
		own, err := NewShared(64)
		require.NoError(t, err)
		said, err := json.Marshal(own.Descriptor())
		require.NoError(t, err)
		copy(m.Bytes()[100:], said)
		return
	}
	m, d := shared(t, 1000)
	m.Bytes()[17] = 3
	raw, err := json.Marshal(d)
	require.NoError(t, err)
	child := exec.Command(os.Args[0], "-test.run=^TestSharedWithChild$")
	child.Env = append(os.Environ(), childVariable+"="+string(raw))
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	require.EqualValues(t, 5, m.Bytes()[999])
	var its Descriptor
	said, _, _ := bytes.Cut(m.Bytes()[100:], []byte{0})
	require.NoError(t, json.Unmarshal(said, &its), string(said))
	require.Equal(t, child.Process.Pid, its.PID)
	_, err = Open(its)
	require.ErrorIs(t, err, ErrGone)
}

// TestSharedHostile: descriptors of what is not there, or is something else, have named errors, and nothing is mapped.
func TestSharedHostile(t *testing.T) {
	_, good := shared(t, 3*hostAlignment)
	_, other := shared(t, hostAlignment)
	file := func(flags int, seal bool, size int64) Descriptor {
		fd, err := unix.MemfdCreate("hostile", flags)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
		require.NoError(t, unix.Ftruncate(fd, size))
		if seal {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
			require.NoError(t, err)
		}
		return ofFile(t, good, fd)
	}
	disk, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer disk.Close()
	require.NoError(t, disk.Truncate(3*hostAlignment))
	null, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer null.Close()
	var pipe [2]int
	require.NoError(t, unix.Pipe(pipe[:]))
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer socket.Close()
	listening, err := socket.(*net.TCPListener).File()
	require.NoError(t, err)
	defer listening.Close()
	with := func(change func(*Descriptor)) Descriptor {
		d := good
		change(&d)
		return d
	}
	for name, x := range map[string]struct {
		d    Descriptor
		want error
	}{
		"zero":          {Descriptor{}, flash.ErrArgument},
		"no bytes":      {with(func(d *Descriptor) { d.Bytes = 0 }), flash.ErrArgument},
		"negative":      {with(func(d *Descriptor) { d.Bytes = -1 }), flash.ErrArgument},
		"no process":    {with(func(d *Descriptor) { d.PID = 0 }), flash.ErrArgument},
		"no file":       {with(func(d *Descriptor) { d.FD = -1 }), flash.ErrArgument},
		"other host":    {with(func(d *Descriptor) { d.Host += "0" }), ErrOtherHost},
		"host unsaid":   {with(func(d *Descriptor) { d.Host = "" }), ErrOtherHost},
		"wrong process": {with(func(d *Descriptor) { d.PID = math.MaxInt32 }), ErrGone},
		"parent":        {with(func(d *Descriptor) { d.PID = os.Getppid() }), ErrGone},
		"wrong file":    {with(func(d *Descriptor) { d.FD = 1 << 20 }), ErrGone},
		"other memory":  {with(func(d *Descriptor) { d.FD = other.FD }), ErrGone},
		"other, said":   {with(func(d *Descriptor) { d.FD, d.Inode = other.FD, other.Inode }), ErrGone},
		"too short":     {with(func(d *Descriptor) { d.Bytes++ }), ErrGone},
		"too long":      {with(func(d *Descriptor) { d.Bytes = hostAlignment }), ErrGone},
		"far too short": {with(func(d *Descriptor) { d.Bytes = math.MaxInt }), ErrGone},
		"unsealed":      {file(unix.MFD_ALLOW_SEALING, false, 3*hostAlignment), ErrGone},
		"never sealed":  {file(0, false, 3*hostAlignment), ErrGone},
		"empty":         {file(unix.MFD_ALLOW_SEALING, true, 0), ErrGone},
		"on disk":       {ofFile(t, good, int(disk.Fd())), ErrGone},
		"device":        {ofFile(t, good, int(null.Fd())), ErrGone},
		"pipe":          {ofFile(t, good, pipe[0]), ErrGone},
		"socket":        {ofFile(t, good, int(listening.Fd())), ErrGone},
	} {
		m, err := Open(x.d)
		require.ErrorIs(t, err, x.want, name)
		require.Nil(t, m, name)
	}
	r := rand.New(rand.NewPCG(4, 4))
	for range 2000 { // of any numbers: never anything else than that memory, or an error
		d := with(func(d *Descriptor) {
			d.FD += r.IntN(9) - 4
			d.Inode += uint64(r.IntN(3)) - 1
			d.Bytes += r.IntN(3) - 1
		})
		m, err := Open(d)
		if err == nil {
			require.Equal(t, good.FD, d.FD)
			require.Equal(t, good.Inode, d.Inode)
			require.NoError(t, m.Close())
			continue
		}
		require.ErrorIs(t, err, ErrGone)
	}
	require.Error(t, unix.Ftruncate(good.FD, 0), "nobody can make it shorter")
}

// ofFile describes an open file as if it were memory.
func ofFile(t *testing.T, like Descriptor, fd int) Descriptor {
	t.Helper()
	var s unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &s))
	like.FD, like.Inode = fd, s.Ino
	return like
}

// TestSharedMoves: a device copies to memory by one mapping, and another from it by a second.
func TestSharedMoves(t *testing.T) {
	a, b := testDevice(t), testDevice(t)
	const n = 70_000
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	from, err := a.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	to, err := b.NewTensor(flash.F32, 1, 1, 1, n)
	require.NoError(t, err)
	require.NoError(t, from.Upload(bg, values))
	ma, err := NewMover(a)
	require.NoError(t, err)
	defer ma.Close()
	mb, err := NewMover(b)
	require.NoError(t, err)
	defer mb.Close()
	m, d := shared(t, 4*n)
	other, err := Open(d)
	require.NoError(t, err)
	require.Equal(t, devOf(t, a).Enabled().ExternalMemoryHost, ma.Imports(m))
	require.Equal(t, devOf(t, b).Enabled().ExternalMemoryHost, mb.Imports(other))
	require.NoError(t, ma.ToHost(bg, m, 0, from, 0, 4*n))
	require.NoError(t, m.Close())
	require.False(t, ma.Imports(m))
	require.ErrorIs(t, ma.ToHost(bg, m, 0, from, 0, 4), flash.ErrClosed)
	require.NoError(t, mb.ToDevice(bg, to, 0, other, 0, 4*n))
	require.NoError(t, other.Close())
	got := make([]float32, n)
	require.NoError(t, to.Download(bg, got))
	require.Equal(t, values, got)
}
