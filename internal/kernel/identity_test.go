package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk"
)

// TestCodeRevision: words that processes find on disk under an identity are those that they would make. Where this fails, what is made of a
// module that stays the same has changed: give codeRevision another value, and this test the hash that goes with it.
func TestCodeRevision(t *testing.T) {
	raw, err := os.ReadFile("../../flash/score/testdata/hooks16.spv")
	require.NoError(t, err)
	words := make([]uint32, len(raw)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	at := slices.Index(words, 2<<16|19) // OpTypeVoid, the first of the types: a float of 16 bits goes before it
	require.Positive(t, at)
	words = slices.Insert(words, at, 3<<16|22, words[spirv.BoundWord], 16)
	words[spirv.BoundWord]++
	asked := vk.WithFloatControls16(words, vk.FloatControls{RoundingRTE16: true, DenormPreserve16: true, SignedZeroInfNan16: true,
		DenormIndependence: vk.IndependenceAll, RoundingIndependence: vk.IndependenceAll})
	require.NotEqual(t, words, asked)
	bias := score.RelativeBias(score.Capture("bias", 32, 4), score.T5Bucket(true, 32, 128))
	f, err := score.Compose(bias, score.Softcap(20), score.ALiBi([]float32{1, 2, 3, 4}))
	require.NoError(t, err)
	made, err := score.Splice(asked, score.Code{Score: f, Mask: score.Documents(score.CaptureInt("ids", 2, 64)), FirstBinding: 3})
	require.NoError(t, err)
	require.NotEqual(t, asked, made)
	sum := sha256.Sum256(spirv.Bytes(made))
	require.Equal(t, map[string]string{"2": "c610a7c4e85b9cf9ebc786db2108e0ab2ba5b14776aec2ba52985c319fd3847d"}[codeRevision],
		hex.EncodeToString(sum[:]))
}

// TestHashOfCode: the hash of words that somebody made a pipeline of is known without loading them.
func TestHashOfCode(t *testing.T) {
	words := []uint32{spirv.Magic, 1, 2}
	sum := sha256.Sum256(spirv.Bytes(words))
	loads := 0
	one := &code{identity: t.Name() + " one", load: func() ([]uint32, error) { loads++; return words, nil }}
	two := &code{identity: t.Name() + " two", load: one.load}
	one.hashed(sum)
	for _, c := range []*code{one, two, two} {
		h, err := c.hash()
		require.NoError(t, err)
		require.Equal(t, hex.EncodeToString(sum[:]), h)
	}
	require.Equal(t, 1, loads, "of the one that nobody knew")
}

// TestLayoutsAreDecodedOnce: and anew where something else is remembered of the probe.
func TestLayoutsAreDecodedOnce(t *testing.T) {
	s := Fragment{M: 2, N: 8, K: 8, Lanes: 4}
	held := func(swapped bool) (all HeldElements) {
		for lane := range s.Lanes {
			var comps []Element
			for e := range 4 {
				row, part := lane/2, lane%2
				if swapped {
					row, part = lane%2, lane/2
				}
				comps = append(comps, Element{Row: row, Col: 4*part + e})
			}
			all = append(all, comps)
		}
		return all
	}
	e := &Env{Caps: Capabilities{Facts: &vk.Facts{Name: t.Name()}}}
	remember := func(key string, h HeldElements) {
		text, err := json.Marshal([2]HeldElements{h, h})
		require.NoError(t, err)
		Known.Mu.Lock()
		defer Known.Mu.Unlock()
		Known.Entries[e.Identity()+" "+key] = string(text)
	}
	key := t.Name()
	_, ok := e.decoded(key, s)
	require.False(t, ok)
	for _, swapped := range []bool{false, true} {
		remember(key, held(swapped))
		want := DecodeLayout(s, held(swapped), held(swapped))
		require.Equal(t, FormRegisters, want.Form)
		for range 2 {
			got, ok := e.decoded(key, s)
			require.True(t, ok)
			require.Equal(t, want, got)
		}
	}
	first, _ := e.decoded(key, s)
	second, _ := e.decoded(key, s)
	require.Same(t, &first.RowLane[0], &second.RowLane[0])
}
