package flash

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// FuzzProblem: whatever a problem's fields say, it is refused by name, or every kernel refuses it or goes on to be built, at once.
func FuzzProblem(f *testing.F) {
	d := planningDevice(f)
	const long = math.MaxInt32 / 2
	f.Add(1, 1, 1, long, long, 1, 1, byte(0), byte(1), 0.0, 0.0, 0, 0)
	f.Add(long, 1, 1, 1, 1, 1, 4, byte(1), byte(0), -1.0, 0.5, 0, 0)
	f.Add(1, long, 1, 1, 3, 1, 3, byte(2), byte(2), math.Inf(1), 0.998, 1, 1)
	f.Add(2, 8, 2, 1, long/8, 4, 2, byte(1), byte(1), 1e-30, 0.0, 128, 128)
	f.Add(1, 4, 4, 65536, 0, 64, 0, byte(1), byte(1), 0.0, 0.1, math.MaxInt32, 1)
	f.Add(2, 4, 2, 70, 150, 8, 8, byte(1), byte(5), 0.0, 0.0, 0, 0)
	f.Add(2, 8, 2, 30, 90, 64, 32, byte(1), byte(9), 0.0, 0.0, 0, 40)
	f.Add(2, 4, 4, 8192, 65536, 128, 128, byte(2), byte(25), 0.0, 0.0, 0, 2048)
	f.Add(-1, 0, math.MinInt64, math.MaxInt64, 1<<62, 256, 257, byte(3), byte(3), math.NaN(), math.NaN(), -1, 0)
	f.Fuzz(func(t *testing.T, batch, heads, keyHeads, queries, keys, dim, valueDim int, dtype, causal byte, scale, dropout float64,
		blockQueries, blockKeys int) {
		p := Problem{Batch: batch, Heads: heads, KeyHeads: keyHeads, QueryLen: queries, KeyLen: keys, HeadDim: dim, ValueDim: valueDim,
			DType:  DType(dtype % 4),
			Causal: Causal(causal % 4), MaxLogit: causal&4 > 0, Scale: scale, Dropout: dropout,
			Blocks: Blocks{Queries: blockQueries, Keys: blockKeys}}
		if causal&8 > 0 {
			p.Lists, p.Blocks = Lists{Keys: blockKeys, PerHead: causal&16 > 0}, Blocks{}
		}
		_ = p.String()
		normal, err := p.Normalize()
		if err != nil {
			require.ErrorIs(t, err, ErrArgument)
			return
		}
		again, err := normal.Normalize()
		require.NoError(t, err)
		require.Equal(t, normal, again)
		require.GreaterOrEqual(t, normal.ForwardFLOPs(), 0.0)
		for _, i := range []Implementation{Flash, Standard, Flash1} {
			for _, tier := range []Tier{TierScalar, TierMatrix} {
				start := time.Now()
				plan, err := d.Plan(p, WithImplementation(i), WithTier(tier))
				if !errors.Is(err, errPlanned) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrArgument) &&
					!errors.As(err, new(*MemoryError)) {
					t.Fatalf("%v %v %v: %v %v", p, i, tier, plan, err)
				}
				if took := time.Since(start); took > 20*time.Second {
					t.Fatalf("%v %v %v took %v", p, i, tier, took)
				}
			}
		}
	})
}

// FuzzLayout: elements of a layout that is accepted lie within the buffer.
func FuzzLayout(f *testing.F) {
	f.Add(uint64(0), byte(1), 1, 2, 3, 4, 0, 0, 0, 0, uint64(48))
	f.Add(uint64(1<<63), byte(0), math.MaxInt32, 1, 1, 1, 0, 0, 0, 1, uint64(math.MaxUint64))
	f.Add(uint64(4), byte(0), 2, 2, 2, 2, math.MaxUint32, 1, 1, 1, uint64(1<<40))
	f.Add(uint64(7), byte(5), 2, 3, 4, 17, 0, 0, 0, 0, uint64(80))
	f.Add(uint64(22), byte(Q5_0), 2, 1, 3, 64, 256, 64, 64, 1, uint64(222))
	f.Add(uint64(math.MaxUint64), byte(2), 1, 1, 1, 1, -1, 0, 0, 1, uint64(2))
	f.Fuzz(func(t *testing.T, offset uint64, dtype byte, b, h, n, d, sb, sh, sn, sd int, size uint64) {
		l, err := attn.NewLayout(offset, attn.DType(dtype)%(attn.F8E5M2+2), [4]int{b, h, n, d}, [4]int{sb, sh, sn, sd}, size)
		if err != nil {
			require.ErrorIs(t, err, ErrArgument)
			return
		}
		last := uint64(0)
		for i := range l.Shape {
			last += uint64(l.Shape[i]-1) * uint64(l.Strides[i])
		}
		require.Equal(t, (last/uint64(l.Per)+1)*l.Size, l.Span)
		require.True(t, offset <= size && l.Span <= size-offset)
		_, _, _ = l.Dense(), l.Gapless(), l.SelfOverlaps()
	})
}
