package main

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
)

// index chooses keys for new characters, in layers that see all: the latest quarter of keep, and for the rest those whose scores are the
// highest of all. Attention then reads keep keys and values of the cache, however long the text is (flash.Lists). That is the sparse
// attention of DeepSeek-AI, "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models", 2025, section 2.1. An indexer there has
// small keys of its own, which are trained with the model. This one takes the model's, as no others are trained: it shows how lists are
// used and what they leave out, and is not faster.
type index struct {
	config
	keep int
	keys map[kvcache.Sequence][][]float32 // of each layer that sees all, [characters, keyHeads, dim], turned
	best []candidate
}

// candidate is a key that may be listed.
type candidate struct {
	key   int
	score float32
}

// fork begins the index of a sequence, with the keys of another or empty. Without an index it does nothing, nor does free.
func (x *index) fork(to, from sequence) {
	if x == nil {
		return
	}
	for i, s := range to {
		layers := make([][]float32, x.layers)
		for n := range layers {
			if from != nil {
				layers[n] = slices.Clone(x.keys[from[i]][n])
			}
		}
		x.keys[s] = layers
	}
}

func (x *index) free(all sequence) {
	if x == nil {
		return
	}
	for _, s := range all {
		delete(x.keys, s)
	}
}

// add takes in the keys of rows of queries, keys and values, the latest of a sequence that has length characters with them.
func (x *index) add(s kvcache.Sequence, layer, length int, qkv []float32) {
	n, cols := len(qkv)/x.columns(), x.keyHeads*x.dim
	keys := x.keys[s][layer][:(length-n)*cols] // those behind were taken back
	for i := range n {
		for h := range x.keyHeads {
			keys = x.turned(keys, qkv[i*x.columns()+(x.heads+h)*x.dim:], length-n+i)
		}
	}
	x.keys[s][layer] = keys
}

// turned appends a head at a position, pairs beside each other.
func (x *index) turned(to, head []float32, position int) []float32 {
	for j := range x.dim / 2 {
		sin, cos := math.Sincos(float64(position) * math.Pow(10000, -float64(2*j)/float64(x.dim)))
		a, b := float64(head[j]), float64(head[j+x.dim/2])
		to = append(to, float32(a*cos-b*sin), float32(a*sin+b*cos))
	}
	return to
}

// choose appends the lists of the latest character of a sequence to lists, one for each key head: keep numbers, −1 where there are fewer
// keys. A key's score is its largest product with a query of the heads that share it.
func (x *index) choose(lists []float32, s kvcache.Sequence, layer int, qkv []float32) []float32 {
	keys, group := x.keys[s][layer], x.heads/x.keyHeads
	length := len(keys) / (x.keyHeads * x.dim)
	latest := min((x.keep+3)/4, length)
	for h := range x.keyHeads {
		var queries []float32
		for q := range group {
			queries = x.turned(queries, qkv[(h*group+q)*x.dim:], length-1)
		}
		x.best = x.best[:0]
		for key := range length - latest {
			of := keys[(key*x.keyHeads+h)*x.dim:][:x.dim]
			c := candidate{key: key}
			for q := range group {
				score := float32(0)
				for i, k := range of {
					score += queries[q*x.dim+i] * k
				}
				if q == 0 || score > c.score {
					c.score = score
				}
			}
			x.best = append(x.best, c)
		}
		slices.SortStableFunc(x.best, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
		for n := range x.keep {
			key := -1
			switch {
			case n < latest:
				key = length - 1 - n
			case n-latest < len(x.best):
				key = x.best[n-latest].key
			}
			lists = append(lists, float32(key))
		}
	}
	return lists
}

// list chooses keys for the parts of the pass and brings their lists to the device. It gives nil for what attends to all that it sees:
// layers with a window, and prompts.
func (c *cache) list(ctx context.Context, at place, qkv []float32) (*flash.Tensor, error) {
	if c.index == nil || c.groups[at.group].window > 0 {
		return nil, nil
	}
	l, lists := c.now, []float32(nil)
	for _, p := range c.parts {
		s := p.sequence[at.group]
		length, err := c.groups[at.group].cache.Length(s)
		if err != nil {
			return nil, err
		}
		rows := qkv[:p.n*c.columns()]
		qkv = qkv[len(rows):]
		c.index.add(s, at.layer, length, rows)
		if l.lists != nil {
			lists = c.index.choose(lists, s, at.layer, rows)
		}
	}
	if l.lists == nil {
		return nil, nil
	}
	for len(lists) < l.lists.Elements() { // rows without a sequence
		lists = append(lists, -1)
	}
	return l.lists, l.lists.Upload(ctx, lists)
}
