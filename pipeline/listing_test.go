package pipeline

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// listedOperations records one operation of each kind: two kernels' dispatches, the second on workgroups that the first counted, a copy and
// a fill.
func listedOperations(t testing.TB, c *Context, r *Recording) {
	t.Helper()
	src, dst := alloc(t, c, "tensor", 64), alloc(t, c, "tensor", 64)
	counted := alloc(t, c, "workspace", 8)
	info := mixInfo(t, 3)
	info.Buffers = map[string]uint32{"Src_": 0, "Dst_": 1, "Dst4_": 1}
	info.Constants = constantsOfTest(" MUL=3 WG=64")
	named, err := c.Kernel(info)
	require.NoError(t, err)
	unnamed := mixKernel(t, c, 5)
	r.Name(src.All(), "X")
	count := mixArgs{n: 3, add: 1, dstOff: 2}
	require.NoError(t, r.Fill(src.All(), 0, "fill"))
	require.NoError(t, r.Dispatch(named, []Access{{src.All(), Read}, {counted.All(), Write}}, count.bytes(), [3]uint32{2, 1, 1}, "count"))
	args := mixArgs{n: 32, add: 5}
	groups := counted.Range(8, vk.DispatchIndirectBytes)
	require.NoError(t, r.DispatchIndirect(unnamed, []Access{{src.Range(0, 128), Read}, {dst.All(), ReadWrite}}, args.bytes(),
		groups, "work"))
	require.NoError(t, r.Copy(dst.Range(128, 64), src.Range(0, 64), "copy"))
}

type constantsOfTest string

func (s constantsOfTest) String() string { return string(s) }

// listedText is what they are, with the hashes of mix.spv in place of its code.
const listedText = `barrier compute, transfer (shader write, transfer write) before transfer (transfer read, transfer write)
0 fill "fill": 00000000
	0 write dst: buffer 0, tensor 0, operand X, offset 0, size 256
barrier compute, transfer (shader write, transfer write) before compute (shader read, shader write)
1 dispatch "count": 2 x 1 x 1 workgroups
	kernel mix, code CODE
	constants MUL=3 WG=64
	push 03 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
	0 read Src_: buffer 0, tensor 0, operand X, offset 0, size 256
	1 write Dst4_|Dst_: buffer 1, workspace 0, offset 0, size 32
barrier compute (shader write) before indirect (indirect read)
2 indirect dispatch "work"
	kernel mix, code CODE
	constants 0=64 1=5
	push 20 00 00 00 05 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
	0 read: buffer 0, tensor 0, offset 0, size 128
	1 read and write: buffer 2, tensor 1, offset 0, size 256
	2 read groups: buffer 1, workspace 0, offset 8, size 12
`

// TestListing: a recording that is listed tells what it holds, the same after each Reset and on another device handle.
func TestListing(t *testing.T) {
	list := func(t *testing.T) (text string) {
		c := newContext(t, Options{})
		r := newRecording(t, c, RecordingInfo{MaxDispatches: 4, MaxBindings: 4, Listed: true})
		require.True(t, r.Listed())
		for range 3 {
			require.NoError(t, r.Reset())
			listedOperations(t, c, r)
			l, err := r.Listing()
			require.NoError(t, err)
			require.Len(t, l.Operations, 4)
			require.Zero(t, l.After, "nothing follows yet")
			code := l.Operations[1].Kernel.Code
			require.Len(t, code, 64)
			require.Contains(t, l.String(), strings.ReplaceAll(listedText, "CODE", code[:16]))
			if text != "" {
				require.Equal(t, text, l.String())
			}
			text = l.String()
		}
		runAndWait(t, c, r)
		l, err := r.Listing()
		require.NoError(t, err)
		require.Equal(t, DefaultNext, l.After.To)
		last := l.Operations[3]
		require.Equal(t, Copied, last.Kind)
		require.Equal(t, []ListedRange{{Role: "dst", Mode: Write, Buffer: 2, Offset: 128, Size: 64},
			{Role: "src", Mode: Read, Buffer: 0, Size: 64}}, last.Ranges)
		return l.String()
	}
	var first, second string
	t.Run("one handle", func(t *testing.T) { first = list(t) })
	t.Run("another", func(t *testing.T) { second = list(t) })
	require.Equal(t, first, second)
}

// TestUnlisted: a recording that was not made for it has no listing, and names cost it nothing.
func TestUnlisted(t *testing.T) {
	c := newContext(t, Options{})
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 4, MaxBindings: 4})
	listedOperations(t, c, r)
	require.False(t, r.Listed())
	l, err := r.Listing()
	require.NoError(t, err)
	require.Zero(t, *l)
	require.Empty(t, l.String())
	b := alloc(t, c, "b", 4).All()
	require.Zero(t, testing.AllocsPerRun(10, func() { r.Name(b, "B") }))
	require.NoError(t, r.Close())
	_, err = r.Listing()
	require.ErrorIs(t, err, ErrClosed)
}

// TestListRecordings: whoever asks the context is given the listing of each recording made since, whenever it is submitted anew.
func TestListRecordings(t *testing.T) {
	c := newContext(t, Options{})
	info := RecordingInfo{MaxDispatches: 4, MaxBindings: 4}
	before := newRecording(t, c, info)
	var mu sync.Mutex
	var all []string
	c.List(func(l *Listing) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, l.String())
	})
	r := newRecording(t, c, info)
	c.List(nil)
	after := newRecording(t, c, info)
	for _, unheard := range []*Recording{before, after} {
		listedOperations(t, c, unheard)
		runAndWait(t, c, unheard)
	}
	require.Empty(t, all)
	for n := range 2 {
		require.NoError(t, r.Reset())
		listedOperations(t, c, r)
		runAndWait(t, c, r)
		runAndWait(t, c, r) // the same once more is no news
		require.Len(t, all, n+1)
	}
	assert.Equal(t, all[0], all[1])
	assert.True(t, strings.HasSuffix(all[0], "shader read, shader write, transfer read, transfer write, host read)\n"), all[0])
}

// full takes no more than so many bytes.
type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	n := min(len(b), f.left)
	if f.left -= n; n < len(b) {
		return n, errFull
	}
	return n, nil
}

var errFull = errors.New("full")

// TestListingIsWritten: WriteTo counts what it wrote, and ends at the first error. What has no name is a number.
func TestListingIsWritten(t *testing.T) {
	l := &Listing{Buffers: []ListedBuffer{{"", 0}},
		Operations: []Operation{{Kind: Filled, Ranges: []ListedRange{{Role: "dst", Mode: Write, Size: 4}}}},
		After:      Barrier{From: Use{Stages: vk.StageTop}, To: Use{Stages: vk.StageHost | 0x80, Accesses: 0x20000}}}
	text := "0 fill \"\": 00000000\n\t0 write dst: buffer 0, foreign 0, offset 0, size 4\nbarrier top () before host, 0x80 (0x20000)\n"
	require.Equal(t, text, l.String())
	n, err := l.WriteTo(io.Discard)
	require.NoError(t, err)
	require.EqualValues(t, len(text), n)
	n, err = l.WriteTo(&full{left: 30})
	require.ErrorIs(t, err, errFull)
	require.EqualValues(t, 30, n)
}
