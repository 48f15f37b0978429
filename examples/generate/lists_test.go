package main

import (
	"cmp"
	"context"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/flash/rows"
)

// listed is attention in float64, on the host but for the rotation, over the keys that lists name.
type listed struct {
	*wholeAttention
	lists [][][]float32 // of each character and key head; nil: it sees all that its layer does
	// Of rows with lists and their query heads: the part of the weights over all keys that the listed ones have, and that as many of the
	// latest have.
	kept, latest, n float64
}

func (a *listed) attend(ctx context.Context, layer int, qkv, o []float32) error {
	l, x := &a.layers[layer], slices.Clone(qkv)
	if err := l.all.Upload(ctx, x); err != nil {
		return err
	}
	if err := a.turn.Rotate(ctx, rows.Rotation{X: l.turned}); err != nil {
		return err
	}
	if err := l.all.Download(ctx, x); err != nil {
		return err
	}
	head := func(row, n int) []float32 { return x[row*a.columns()+n*a.dim:][:a.dim] }
	for i := range len(x) / a.columns() {
		first := 0
		if seen := a.seen(layer); seen > 0 {
			first = max(i-seen+1, 0)
		}
		for h := range a.heads {
			kh := h * a.keyHeads / a.heads
			sums, out := map[bool]float64{}, make([]float64, a.dim)
			list := a.lists[i]
			weights := make([]float64, i+1)
			for j := first; j <= i; j++ {
				s := 0.0
				for c, q := range head(i, h) {
					s += float64(q) * float64(head(j, a.heads+kh)[c])
				}
				weights[j] = math.Exp(s / math.Sqrt(float64(a.dim)))
				in := a.seen(layer) > 0 || list == nil || slices.Contains(list[kh], float32(j))
				sums[in] += weights[j]
				if in {
					for c, v := range head(j, a.heads+a.keyHeads+kh) {
						out[c] += weights[j] * float64(v)
					}
				}
			}
			for c := range out {
				o[(i*a.heads+h)*a.dim+c] = float32(out[c] / sums[true])
			}
			if a.seen(layer) == 0 && list != nil {
				all := sums[true] + sums[false]
				a.kept, a.n = a.kept+sums[true]/all, a.n+1
				for _, w := range weights[max(i+1-len(list[kh]), 0):] {
					a.latest += w / all
				}
			}
		}
	}
	return nil
}

// TestKeep: characters after a prompt have the logits of attention in float64 over the keys that were listed, each one, which are different
// keys of those before, the latest quarter among them; so have those of a fork. With lists as long as the text the logits are those
// without. And what the index finds counts: it holds more of the weight of the text before than as many of the latest characters do.
func TestKeep(t *testing.T) {
	dev, m, ctx := open(t), saved(t), context.Background()
	const n, prompt, keep = 150, chunk + 8, 24
	tokens := some(t, m, 0, n)
	through := func(keep int) (out [][]float32, lists [][][]float32) {
		c := newTestCache(t, dev, m, "f32", cacheOptions{batch: 2, room: 256, page: 16, pages: 40, keep: keep})
		k := &taker{t, m, c}
		s, out := k.add(tokens[:prompt])
		lists = make([][][]float32, prompt)
		for at := prompt; at < n; at++ {
			if at == prompt+30 { // it goes on as the fork
				fork, err := c.fork(s)
				require.NoError(t, err)
				k.pass(c.decode, []part{{s, 1}}, tokens[:1])
				require.NoError(t, c.free(s))
				s = fork
			}
			out = append(out, k.pass(c.decode, []part{{s, 1}}, tokens[at:at+1])...)
			if keep == 0 {
				continue
			}
			all := make([]float32, c.decode.lists.Elements())
			require.NoError(t, c.decode.lists.Download(ctx, all))
			lists = append(lists, slices.Collect(slices.Chunk(all[:keep*m.keyHeads], keep)))
			require.Equal(t, float32(-1), slices.Max(all[keep*m.keyHeads:]), "the row without a sequence")
		}
		require.NoError(t, c.free(s))
		requireEmpty(t, c)
		if keep > 0 {
			require.Empty(t, c.index.keys)
		}
		return out, lists
	}
	got, lists := through(keep)
	for at := prompt; at < n; at++ {
		for _, list := range lists[at] {
			sorted := slices.Sorted(slices.Values(list))
			require.Len(t, slices.Compact(slices.Clone(sorted)), keep, "no key twice")
			require.GreaterOrEqual(t, sorted[0], float32(0))
			for i, key := range sorted[keep-keep/4:] {
				require.Equal(t, float32(at+1-keep/4+i), key)
			}
		}
	}
	whole, err := newWholeAttention(dev, m.config, 1, n, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, whole.close()) }()
	a := &listed{wholeAttention: whole, lists: lists}
	want, err := m.forward(ctx, a, tokens)
	require.NoError(t, err)
	for i, x := range got {
		require.LessOrEqual(t, farthest(x, m.row(want, i)), 1e-4, "character %d", i)
	}
	t.Logf("%d keys of up to %d hold %.3f of the weight, the latest %d hold %.3f", keep, n, a.kept/a.n, keep, a.latest/a.n)
	require.Greater(t, a.kept, 1.2*a.latest)

	dense, _ := through(0)
	full, _ := through(n + 10)
	differ := 0.0
	for i := range dense {
		require.LessOrEqual(t, farthest(full[i], dense[i]), 1e-4, "character %d", i)
		differ = math.Max(differ, farthest(got[i], dense[i]))
	}
	require.Greater(t, differ, 1e-2, "fewer keys are another attention")
}

// TestKeepBatch: texts that are written together from lists, and give way to each other, are those written alone.
func TestKeepBatch(t *testing.T) {
	dev, m := open(t), saved(t)
	o := cacheOptions{batch: 3, room: 128, page: 8, pages: 12, keep: 16}
	few := newTestCache(t, dev, m, "q8_0", o)
	together := mustGenerate(t, m, few, queue...)
	require.Positive(t, together.gaveWay)
	require.Empty(t, few.index.keys)
	for i, r := range queue {
		require.Equal(t, mustGenerate(t, m, few, r).texts[0], together.texts[i], "prompt %d", i)
	}
}

// TestChoose: lists are those of sorting all keys by their scores.
func TestChoose(t *testing.T) {
	c := config{layers: 1, heads: 4, keyHeads: 2, dim: 8}
	rng := rand.New(rand.NewPCG(11, 12))
	x := &index{config: c, keep: 7, keys: map[kvcache.Sequence][][]float32{}}
	var s kvcache.Sequence
	x.fork(sequence{s}, nil)
	var all [][]float32
	for step := range 19 {
		length := step + 1 - min(step/11, 1)
		row := make([]float32, c.columns())
		for i := range row {
			row[i] = float32(rng.NormFloat64())
		}
		all = append(all[:length-1], row) // one was taken back
		x.add(s, 0, length, row)
		lists := x.choose(nil, s, 0, row)
		require.Len(t, lists, 2*7)
		for h := range 2 {
			score := func(key int) float64 { // of pairs as complex numbers
				best := math.Inf(-1)
				for q := range 2 {
					sum := 0.0
					for j := range 4 {
						a := complex(float64(row[(2*h+q)*8+j]), float64(row[(2*h+q)*8+j+4]))
						b := complex(float64(all[key][(4+h)*8+j]), float64(all[key][(4+h)*8+j+4]))
						turn := cmplx.Exp(complex(0, float64(length-1-key)*math.Pow(10000, -float64(j)/4)))
						sum += real(a * turn * cmplx.Conj(b))
					}
					best = max(best, sum)
				}
				return best
			}
			var want []float32
			var others []int
			for key := length - 1; key >= 0; key-- {
				if len(want) < 2 {
					want = append(want, float32(key))
				} else {
					others = append(others, key)
				}
			}
			slices.SortFunc(others, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
			for _, key := range others[:min(len(others), 5)] {
				want = append(want, float32(key))
			}
			for len(want) < 7 {
				want = append(want, -1)
			}
			require.Equal(t, want, lists[7*h:][:7], "length %d, head %d", length, h)
		}
	}
}
