package conformance

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash"
)

func only(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

// What is built in is what the tests read.
func TestBuiltInVectorsAreThoseInTestdata(t *testing.T) {
	files, err := builtIn.ReadDir("vectors")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		have, err := builtIn.ReadFile("vectors/" + f.Name())
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join(goldenFolder, f.Name()))
		require.NoError(t, err)
		require.Equal(t, want, have, f.Name())
	}
}

// No two elements of a placement share memory, and guards are left on both sides.
func TestPlacements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(low, high int) int { return rapid.IntRange(low, high).Draw(t, "n") }
		shape := [4]int{n(1, 3), n(1, 4), n(1, 9), n(1, 20)}
		dtype := dtypes[n(0, 2)]
		layout := Layout(n(0, int(layoutEnd)-1))
		p := place(layout, dtype, shape)
		used := make([]bool, p.total)
		count := 0
		p.rows(func(at int) {
			for d := range shape[3] {
				if used[at+d] {
					t.Fatalf("%v %v: element %d is used twice", layout, shape, at+d)
				}
				used[at+d] = true
				count++
			}
		})
		if count != p.elements() {
			t.Fatalf("%d elements of %d", count, p.elements())
		}
		guard := guardBytes / dtype.Size()
		for i := range guard {
			if used[i] || used[p.total-1-i] {
				t.Fatalf("%v %v: element %d of the guards is used", layout, shape, i)
			}
		}
		if layout == Wide && p.offset*dtype.Size()%16 != 0 {
			t.Fatalf("offset %d", p.offset)
		}
	})
}

// The suite notices wrong answers: the check is given right and wrong outputs of the same case.
func TestCheckNoticesErrors(t *testing.T) {
	c := &Case{Name: "check", Problem: flash.Problem{
		Batch: 1, Heads: 2, QueryLen: 6, KeyLen: 4, HeadDim: 8, DType: flash.F16, Causal: flash.CausalBottomRight}}
	require.NoError(t, c.prepare())
	right := func() (o, lse []float32) {
		for _, x := range c.o {
			o = append(o, refType(flash.F16).Round(float32(x)))
		}
		for _, x := range c.lse {
			lse = append(lse, float32(x))
		}
		return o, lse
	}
	target := Target{Implementation: flash.Flash, Tier: flash.TierScalar}
	for _, mistake := range []struct {
		name  string
		make  func(o, lse []float32)
		finds string
	}{
		{"none", func(o, lse []float32) {}, ""},
		{"o slightly", func(o, lse []float32) { o[70] += 0.01 }, "o: error"},
		{"o is NaN", func(o, lse []float32) { o[80] = float32(math.NaN()) }, "o: "},
		{"an empty row is not 0", func(o, lse []float32) { o[3] = 1e-7 }, "nothing to attend to"},
		{"lse", func(o, lse []float32) { lse[4] += 0.002 }, "lse: "},
		{"lse of an empty row", func(o, lse []float32) { lse[0] = -1e30 }, "lse: "},
		{"two rows exchanged", func(o, lse []float32) {
			for d := range 8 {
				o[4*8+d], o[5*8+d] = o[5*8+d], o[4*8+d]
			}
		}, "o: error"},
	} {
		var r Result
		o, lse := right()
		mistake.make(o, lse)
		c.check(target, o, lse, &r)
		if mistake.finds == "" {
			require.Empty(t, r.Failure, mistake.name)
		} else {
			require.Contains(t, r.Failure, mistake.finds, mistake.name)
		}
	}
}

// Zeros are wrong wherever o is not zero, however far plain attention is off: with scores of a thousand in bf16, by more than o is.
func TestCheckNoticesZeros(t *testing.T) {
	s := &suite{small: true}
	for _, add := range []func(*suite){core, numerics, magnitudes, scored} {
		add(s)
	}
	for _, c := range s.cases {
		require.NoError(t, c.prepare(), c.Name)
		c.requireZerosFail(t, Target{Implementation: flash.Flash, Tier: flash.TierScalar})
		c.release()
	}
}

// requireZerosFail has the check judge zeros in place of o.
func (c *Case) requireZerosFail(t *testing.T, target Target) {
	t.Helper()
	if !slices.ContainsFunc(c.o, func(x float64) bool { return x != 0 }) || target.Implementation == flash.Standard {
		return // whose scores are rounded
	}
	q := c.inputs.Q
	var r Result
	c.check(target, make([]float32, q.B*q.H*q.N*c.inputs.V.D), nil, &r)
	require.Contains(t, r.Failure, "o: ", "%s: zeros pass on %v", c.Name, target)
}

// What a device does not offer is skipped; a kernel that failed its self-check is not what a device lacks.
func TestDeniedKernelsFail(t *testing.T) {
	require.True(t, unsupported(&flash.UnsupportedError{What: "it"}))
	require.True(t, unsupported(fmt.Errorf("plan: %w", flash.ErrUnsupported)))
	require.False(t, unsupported(&flash.UnsupportedError{What: "it", Denied: true}))
	require.False(t, unsupported(fmt.Errorf("plan: %w", &flash.UnsupportedError{What: "it", Denied: true})))
	require.False(t, unsupported(flash.ErrArgument))
}

// An output buffer notices elements that were not written and memory that should not have been.
func TestArenaNoticesStrayWrites(t *testing.T) {
	dev := device(t)
	ctx := context.Background()
	for _, dtype := range dtypes {
		for l := range layoutEnd {
			a, err := newArena(dev, place(l, dtype, [4]int{2, 2, 3, 5}))
			require.NoError(t, err)
			require.NoError(t, a.poison(ctx, 0))
			_, err = a.output(ctx, "o", 0)
			require.ErrorContains(t, err, "was not written")

			values := make([]float32, a.elements())
			for i := range values {
				values[i] = float32(i)
			}
			require.NoError(t, a.tensor.Upload(ctx, values)) // leaves the gaps alone
			out, err := a.output(ctx, "o", 0)
			require.NoError(t, err)
			require.Equal(t, refType(dtype).Encode(values), out)

			raw := make([]byte, a.total*dtype.Size())
			require.NoError(t, a.whole.DownloadBytes(ctx, raw))
			raw[(a.offset-1)*dtype.Size()] ^= 1
			require.NoError(t, a.whole.UploadBytes(ctx, raw))
			_, err = a.output(ctx, "o", 0)
			require.ErrorContains(t, err, "outside the tensor")
			a.close()
		}
	}
	require.Empty(t, takeMessages())
}

// All names differ, and every problem is a valid one.
func TestCasesAreWellFormed(t *testing.T) {
	s := &suite{}
	for _, add := range append(generators, large) {
		add(s)
	}
	random(s, 300, true)
	random(&suite{}, 300, false)
	require.NoError(t, golden(s, os.DirFS(goldenFolder)))
	names := map[string]bool{}
	refused := 0
	for _, c := range s.cases {
		require.False(t, names[c.Name], "two cases are called %s", c.Name)
		names[c.Name] = true
		_, err := c.Problem.Normalize()
		require.NoError(t, err, c.Name)
		if len(c.lacks) > 0 {
			refused++
		}
	}
	require.Zero(t, refused, "golden vectors with options that the library does not have")
}
