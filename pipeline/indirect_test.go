package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestIndirectDispatch: one recording runs as many workgroups as a kernel before it counted, none among them, each time that it is
// submitted; then the kernel counts anew behind the dispatch that read it. A barrier left out is a message of the synchronisation
// validation.
func TestIndirectDispatch(t *testing.T) {
	c := newContext(t, Options{})
	const n, most = 1000, (1000 + groupSize - 1) / groupSize
	src, dst, counted := alloc(t, c, "src", n), alloc(t, c, "dst", n), alloc(t, c, "counted", 8)
	ask := alloc(t, c, "ask", 3)
	in := pattern(n, 1)
	upload(t, c, src, in)
	k := mixKernel(t, c, 1)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 6, MaxBindings: 8, Timestamps: true})
	const first = 2 // word of the counts
	groups := counted.Range(4*first, vk.DispatchIndirectBytes)
	// x is the last word asked for and 1, the others are 1.
	count := mixArgs{n: 3, add: 1, dstOff: first}
	args := mixArgs{n: n, add: 5}
	require.NoError(t, r.Fill(dst.All(), 42, "poison"))
	require.NoError(t, r.Dispatch(k, []Access{{ask.All(), Read}, {counted.All(), Write}}, count.bytes(), groupsFor(3), "count"))
	before := r.Barriers()
	require.NoError(t, r.DispatchIndirect(k, []Access{{src.All(), Read}, {dst.All(), Write}}, args.bytes(), groups, "work"))
	assert.Equal(t, before+1, r.Barriers(), "one barrier is for the kernel and for its count")
	none := mixArgs{n: 3, dstOff: first}
	require.NoError(t, r.Dispatch(k, []Access{{src.All(), Read}, {counted.All(), Write}}, none.bytes(), groupsFor(3), "count anew"))
	assert.Equal(t, before+2, r.Barriers(), "a count waits until it was read")
	for _, x := range []uint32{1, 0, most, 7} {
		upload(t, c, ask, []uint32{0, 0, x - 1})
		p := runAndWait(t, c, r)
		want := make([]uint32, n)
		args.apply(want, in, 1)
		for i := min(x*groupSize, n); i < n; i++ {
			want[i] = 42
		}
		require.Equal(t, want, download(t, c, dst, n), "%d workgroups", x)
		require.Equal(t, in[2], download(t, c, counted, 8)[first], "what was counted last")
		if r.HasTimestamps() {
			timings := p.Timings()
			require.Len(t, timings, 4)
			require.Equal(t, "work", timings[2].Label)
			require.GreaterOrEqual(t, timings[2].GPUns, 0.0)
		}
	}
}

// TestIndirectDispatchRepeats: recording indirect dispatches anew allocates nothing.
func TestIndirectDispatchRepeats(t *testing.T) {
	c := newContext(t, Options{})
	const n = 100
	src, dst, groups := alloc(t, c, "src", n), alloc(t, c, "dst", n), alloc(t, c, "groups", 3)
	k := mixKernel(t, c, 1)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 1, MaxBindings: 2})
	access, push := []Access{{src.All(), Read}, {dst.All(), Write}}, make([]byte, 20)
	record := func() {
		if err := r.Reset(); err != nil {
			t.Fatal(err)
		}
		if err := r.DispatchIndirect(k, access, push, groups.All(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	record()
	require.Zero(t, testing.AllocsPerRun(10, record))
	require.Equal(t, 1, r.Indirect())
}

// TestBadIndirectDispatch: where the numbers are is checked before anything is recorded.
func TestBadIndirectDispatch(t *testing.T) {
	c := newContext(t, Options{})
	k := mixKernel(t, c, 1)
	a, b := alloc(t, c, "a", 64), alloc(t, c, "b", 64)
	good, push := []Access{{a.All(), Read}, {b.All(), Write}}, make([]byte, 20)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 1, MaxBindings: 2})
	for what, call := range map[string]func() error{
		"groups.Buffer is nil or closed": func() error { return r.DispatchIndirect(k, good, push, Binding{}, "x") },
		"groups.Offset is 2":             func() error { return r.DispatchIndirect(k, good, push, a.Range(2, 12), "x") },
		"groups.Offset, Size is":         func() error { return r.DispatchIndirect(k, good, push, a.Range(248, 12), "x") },
		"groups.Size is 16":              func() error { return r.DispatchIndirect(k, good, push, a.Range(0, 16), "x") },
		"k is nil":                       func() error { return r.DispatchIndirect(nil, good, push, a.Range(0, 12), "x") },
		"len(access) is 1":               func() error { return r.DispatchIndirect(k, good[:1], push, a.Range(0, 12), "x") },
	} {
		require.NoError(t, r.Reset())
		err := call()
		require.ErrorContains(t, err, what)
		assert.Equal(t, err, r.Err(), "the error sticks")
	}
	other := newContext(t, Options{})
	require.NoError(t, r.Reset())
	theirs := alloc(t, other, "theirs", 4)
	if other.Device() != c.Device() {
		require.ErrorContains(t, r.DispatchIndirect(k, good, push, theirs.Range(0, 12), "x"), "another device")
	}
}
