package main

import (
	"fmt"
	"slices"
	"strings"
)

// alphabetOf lists the characters of a text in order.
func alphabetOf(text string) []rune {
	all := []rune(text)
	slices.Sort(all)
	return slices.Compact(all)
}

// encode numbers the characters of a text as the model knows them.
func (m *model) encode(text string) ([]int, error) {
	var tokens []int
	for _, r := range text {
		id, known := slices.BinarySearch(m.alphabet, r)
		if !known {
			return nil, fmt.Errorf("the model knows no %q: its characters are %q", r, string(m.alphabet))
		}
		tokens = append(tokens, id)
	}
	return tokens, nil
}

func (m *model) decode(tokens []int) string {
	var b strings.Builder
	for _, id := range tokens {
		b.WriteRune(m.alphabet[id])
	}
	return b.String()
}
