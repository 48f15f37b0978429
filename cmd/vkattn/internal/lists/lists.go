// Package lists holds which keys each query lists, as files of heads have it, for pictures.
package lists

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/ref"
)

// Lists name the keys that queries attend to, as flash.Lists has it: Numbers is [Heads, Queries, Longest], of keys 0 to Keys − 1, each at
// most once in a list, and −1 for none. Heads is 1, which is for all, or the number of key heads.
type Lists struct {
	Heads, Queries, Keys, Longest int
	Numbers                       []float32
}

// mostTokens bounds queries and keys, so that the place of a cell in a picture is a 32-bit number.
const mostTokens = 1 << 17

// Parse takes a file's tensor of lists: I32 [1, heads, queries, longest], or the last two or three of these.
func Parse(name string, of ref.Stored, keyHeads, queries, keys int) (*Lists, error) {
	if of.DType != "I32" || len(of.Shape) < 2 || len(of.Shape) > 4 {
		return nil, fmt.Errorf("tensor %q is %s %v: lists of keys must be I32, of [1, heads, queries, longest] or the last two or three "+
			"of these", name, of.DType, of.Shape)
	}
	shape := [4]int{1, 1, 1, 1}
	copy(shape[4-len(of.Shape):], of.Shape)
	if shape[0] != 1 || shape[1] != 1 && shape[1] != keyHeads || shape[2] != queries || shape[3] < 1 {
		return nil, fmt.Errorf("tensor %q is %v: lists must be [1, 1 or %d key heads, %d queries, 1 or more keys]", name, of.Shape,
			keyHeads, queries)
	}
	if max(queries, keys) > mostTokens {
		return nil, fmt.Errorf("tensor %q: lists of %d queries and %d keys: pictures have at most %d", name, queries, keys, mostTokens)
	}
	numbers, err := of.Floats()
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	l := &Lists{Heads: shape[1], Queries: queries, Keys: keys, Longest: shape[3], Numbers: numbers}
	last := make([]int, keys) // list that named a key last, counted from 1
	for i, n := range numbers {
		list, key := i/l.Longest, int(n)
		switch {
		case key < -1 || key >= keys:
			return nil, fmt.Errorf("tensor %q: query %d of head %d lists key %d: keys are 0 to %d, and -1 is none", name, list%queries,
				list/queries, key, keys-1)
		case key >= 0 && last[key] == list+1:
			return nil, fmt.Errorf("tensor %q: query %d of head %d lists key %d twice", name, list%queries, list/queries, key)
		case key >= 0:
			last[key] = list + 1
		}
	}
	return l, nil
}

// Of gives the list of a query, for a query head of so many.
func (l *Lists) Of(head, heads, query int) []float32 {
	return l.Numbers[(head*l.Heads/heads*l.Queries+query)*l.Longest:][:l.Longest]
}

// Shown is how many heads have bits of their own, of so many query heads: all, or one that is for all.
func (l *Lists) Shown(heads int) int {
	if l.Heads == 1 {
		return 1
	}
	return heads
}

// Pitch is the words of a row of bits.
func (l *Lists) Pitch() int { return (l.Keys + 31) / 32 }

// Bits has a bit for each pair, set where the query lists the key: a tensor of flash.Bit, [1, Shown(heads), Queries, Keys], whose rows are
// Pitch words of 32 bits apart.
func (l *Lists) Bits(heads int) []byte {
	pitch := 4 * l.Pitch()
	bits := make([]byte, l.Shown(heads)*l.Queries*pitch)
	for h := range l.Shown(heads) {
		for q := range l.Queries {
			row := bits[(h*l.Queries+q)*pitch:][:pitch]
			for _, n := range l.Of(h, l.Shown(heads), q) {
				if key := int(n); key >= 0 {
					row[key/8] |= 1 << (key % 8)
				}
			}
		}
	}
	return bits
}
