package result

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRingRows: rows of several devices stand in a result file beside others, and are read as they were written.
func TestRingRows(t *testing.T) {
	row := RingRow{Origin: Origin{Library: "vkattn 1", Device: "GPU"}, Problem: "B1 H2 Nq64 Nk64 D8", Tokens: 64, Ranks: 2, Over: OverRing,
		Fwd: RingPass{One: 3, Ranks: 2, Speed: 1.5, Traced: &RingTrace{Ms: 2, Kernels: 1, Idle: 1, Copies: 0.5, Hidden: 0.25,
			Lanes: []RingLane{{Rank: 1, Lane: LaneIn, Spans: []RingSpan{{What: WhatCopy, Begin: 0.5, End: 1, Bytes: 4096}}}}}}}
	var file bytes.Buffer
	w := NewWriter(&file)
	require.NoError(t, w.Line(Header{VKAttn: "1", Device: "GPU"}))
	require.NoError(t, w.Line(row))
	got, err := Read("x", &file)
	require.NoError(t, err)
	require.Equal(t, []RingRow{row}, got.Rings)
	require.Empty(t, got.Rows)
	share, known := got.Rings[0].Fwd.HiddenPercent()
	require.True(t, known)
	require.Equal(t, 25.0, share)
	_, known = got.Rings[0].Bwd.HiddenPercent()
	require.False(t, known)
	require.Equal(t, "B1 H2 D8", row.Shape())
	other := row
	other.Over = OverHeads
	require.False(t, row.Same(&other))
	other = row
	other.PerHost = 2
	require.False(t, row.Same(&other))
}

// TestBadRingRows: what cannot be is refused in words about it.
func TestBadRingRows(t *testing.T) {
	for want, text := range map[string]string{
		"ranks is 0":                `{"ranks":0}`,
		"neither figures nor":       `{"ranks":2,"tokens":5}`,
		"per_host is 3":             `{"ranks":2,"tokens":5,"per_host":3,"fwd":{"ranks_ms":1}}`,
		"must not be negative":      `{"ranks":2,"tokens":-5}`,
		"-3 is no measurement":      `{"ranks":2,"tokens":5,"fwd":{"ranks_ms":1,"one_ms":-3}}`,
		"1e+300 is no measurement":  `{"ranks":2,"tokens":5,"fwd":{"ranks_ms":1e300}}`,
		"a nanosecond at least":     `{"ranks":2,"tokens":5,"fwd":{"ranks_ms":1,"traced":{"ms":0}}}`,
		"a lane of rank 2, of 2":    `{"ranks":2,"tokens":5,"fwd":{"ranks_ms":1,"traced":{"ms":1,"lanes":[{"rank":2}]}}}`,
		"must not end before":       `{"ranks":2,"tokens":5,"fwd":{"ranks_ms":1,"traced":{"ms":1,"lanes":[{"spans":[{"begin":2,"end":1}]}]}}}`,
		"ranks: it is text":         `{"ranks":"two"}`,
		"bad row of several device": `{"ranks":2,"tokens":5}`,
	} {
		_, err := Read("x", strings.NewReader(text+"\n"))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "x:1")
	}
}
