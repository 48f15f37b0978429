package ref

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The known answers of Random123 (kat_vectors).
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		rounds  int
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{7, [4]uint32{}, [2]uint32{}, [4]uint32{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
		{7, [4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
		{10, [4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	} {
		require.Equal(t, c.want, philox4x32(c.counter, c.key, c.rounds))
	}
}

// The rows in testdata were computed by an independent program.
func TestDropoutRows(t *testing.T) {
	data, err := os.ReadFile("../../testdata/dropout/rows.json")
	require.NoError(t, err)
	var rows []struct {
		Seed, Keep string
		Offset     uint32
		P          float64
		Head, Row  int
	}
	require.NoError(t, json.Unmarshal(data, &rows))
	require.NotEmpty(t, rows)
	for _, r := range rows {
		seed, err := strconv.ParseUint(r.Seed, 10, 64)
		require.NoError(t, err)
		d := Dropout{P: r.P, Seed: seed, Offset: r.Offset}
		for j, want := range r.Keep {
			require.Equal(t, want == '1', d.Keep(r.Head, r.Row, j), "seed %d head %d row %d column %d", seed, r.Head, r.Row, j)
		}
	}
}

func TestDropoutRate(t *testing.T) {
	for _, p := range []float64{0.1, 0.5, 0.8} {
		d := Dropout{P: p, Seed: 99, Offset: 4}
		mask := d.Mask(2, 2, 100, 130)
		kept := 0.0
		for _, keep := range mask {
			if keep {
				kept++
			}
		}
		n, keep := float64(len(mask)), 1-d.Probability()
		require.InDelta(t, n*keep, kept, 4*math.Sqrt(n*keep*(1-keep)), "p = %v", p)
	}
}

func TestDropoutArguments(t *testing.T) {
	for _, p := range []float64{-0.1, 1, math.NaN()} {
		require.Error(t, (&Dropout{P: p}).check(), "%v", p)
	}
	require.NoError(t, (&Dropout{P: 0.99}).check())
}
