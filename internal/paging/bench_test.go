package paging

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// decoding is 64 sequences, half of them forks, that take a token each in every step; at their longest they begin again.
func decoding(tb testing.TB) func() {
	const sequences, page, prompt, most = 64, 16, 100, 1024
	m := newManager(tb, sequences*most/page, page, sequences)
	var batch []Request
	for range sequences / 2 {
		s := add(tb, m)
		grow(tb, m, Request{s, prompt})
		f, err := m.Fork(s)
		require.NoError(tb, err)
		batch = append(batch, Request{s, 1}, Request{f, 1})
	}
	var step Step
	rows, lengths, names := make([]int32, 1), make([]int32, sequences), make([]Sequence, sequences)
	for i := range batch {
		names[i] = batch[i].Sequence
	}
	length := prompt
	return func() {
		if length++; length > most {
			for i := range batch {
				if err := m.Truncate(batch[i].Sequence, prompt); err != nil {
					tb.Fatal(err)
				}
			}
			length = prompt + 1
		}
		if err := m.Append(batch, &step); err != nil {
			tb.Fatal(err)
		}
		for i := range batch {
			if err := m.Rows(rows, batch[i].Sequence, step.Placed[i].First); err != nil {
				tb.Fatal(err)
			}
		}
		if err := m.Lengths(lengths, names); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestNoAllocations: appending, forking, dropping and freeing allocate nothing, from the first time on but for the step.
func TestNoAllocations(t *testing.T) {
	run := decoding(t)
	require.Zero(t, testing.AllocsPerRun(1, func() { // of all steps together: an average is rounded down
		for range 3000 {
			run()
		}
	}))

	m := newManager(t, 64, 16, 4)
	s := add(t, m)
	grow(t, m, Request{s, 500})
	step := Step{Placed: make([]Placed, 1), Copies: make([]Copy, 1)}
	dense, indptr, last, batch := make([]int32, 64), make([]int32, 2), make([]int32, 1), make([]Request, 1)
	one := make([]Sequence, 1)
	var failed error
	must := func(err error) {
		if err != nil {
			failed = err
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		f, err := m.Fork(s)
		must(err)
		batch[0], one[0] = Request{f, 20}, f
		must(m.Append(batch, &step))
		_, err = m.Drop(f, 100)
		must(err)
		must(m.Truncate(f, 200))
		must(m.Table(dense, 64, one))
		_, err = m.Compressed(indptr, dense, last, one)
		must(err)
		must(m.Free(f))
	}))
	require.NoError(t, failed)
}

// BenchmarkAppend64 is the host's part of a decoding step: a token each for 64 sequences, its row, and the lengths.
func BenchmarkAppend64(b *testing.B) {
	run := decoding(b)
	run()
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}
