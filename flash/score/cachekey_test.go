package score_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/vkattn/vkattn/flash/score"
)

// A key tells apart what becomes different code, and nothing else: it is the same in every process.
func TestCacheKey(t *testing.T) {
	same := func(a, b score.Function) { t.Helper(); assert.Equal(t, a.CacheKey(), b.CacheKey()) }
	differ := func(a, b score.Function) { t.Helper(); assert.NotEqual(t, a.CacheKey(), b.CacheKey()) }
	same(score.Softcap(30), score.Softcap(30))
	differ(score.Softcap(30), score.Softcap(31))
	same(score.ALiBi([]float32{1, 2}), score.ALiBi([]float32{3, 4}))
	differ(score.ALiBi([]float32{1, 2}), score.ALiBi([]float32{1, 2, 3}))
	differ(score.ALiBi([]float32{1, 2}), score.ALiBiFrom(score.Capture("slopes", 2)))
	differ(score.ALiBiFrom(score.Capture("a", 2)), score.ALiBiFrom(score.Capture("b", 2)))
	differ(score.Function{}, score.Softcap(1))
	ab, _ := score.Compose(score.Softcap(1), score.ALiBi([]float32{1}))
	ba, _ := score.Compose(score.ALiBi([]float32{1}), score.Softcap(1))
	differ(ab, ba)
	none, _ := score.Compose()
	same(none, score.Function{})
	assert.Equal(t, "58282e00f46cca3e273648e86f881cf3", score.Softcap(30).CacheKey(),
		"keys live on disk: a change makes caches stale, which does no harm")
	assert.Equal(t, score.PrefixLM(3).CacheKey(), score.PrefixLM(3).CacheKey())
	assert.NotEqual(t, score.PrefixLM(3).CacheKey(), score.PrefixLM(4).CacheKey())
	assert.NotEqual(t, score.Code{}.CacheKey(), score.Code{FirstBinding: 1}.CacheKey())
	// One function and one mask each: which of the function's tables the mask reads is part of what the code becomes.
	a, b := score.TableInt([]int32{0, 0}, 2), score.TableInt([]int32{0, 1}, 2)
	f, _ := score.New(score.S().Add(a.At(score.Key()).Add(b.At(score.Key())).Float()))
	masks := [...]score.MaskFunction{score.Documents(a), score.Documents(b), score.Documents(score.TableInt([]int32{0, 1}, 2))}
	keys := map[string]bool{}
	for _, m := range masks {
		assert.Equal(t, masks[0].CacheKey(), m.CacheKey())
		keys[score.Code{Score: f, Mask: m}.CacheKey()] = true
	}
	assert.Len(t, keys, len(masks))
	assert.True(t, score.Function{}.Identity())
	assert.False(t, score.Softcap(2).Identity())
	assert.True(t, score.MaskFunction{}.Everything())
	assert.True(t, score.Function{}.UnitSlope())
	assert.True(t, score.ALiBi([]float32{1}).UnitSlope())
	assert.False(t, score.Softcap(2).UnitSlope())
}
