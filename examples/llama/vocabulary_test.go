package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// say is what tokens say together.
func (v *vocabulary) say(tokens []int) string {
	var b strings.Builder
	for _, id := range tokens {
		b.WriteString(v.decode(id))
	}
	return b.String()
}

// names are tokens as the file has them.
func (v *vocabulary) names(tokens []int) (all []string) {
	for _, id := range tokens {
		all = append(all, v.pieces[id])
	}
	return all
}

// TestPieces: neighbours are joined by score, not by length or from the left; what is no piece is bytes; and tokens say the text again.
func TestPieces(t *testing.T) {
	v, err := readVocabulary(tinyModel("llama").file(t))
	require.NoError(t, err)
	for text, want := range map[string][]string{
		"the sea":      {"<s>", "▁the", "▁sea"},
		"Once upon":    {"<s>", "▁", "O", "n", "ce", "▁upon"}, // "ce" has a better score than "nc"
		"he  is":       {"<s>", "▁", "he", "▁", "▁is"},
		"ü":            {"<s>", "▁", "<0xC3>", "<0xBC>"},
		"a</s>sea":     {"<s>", "▁a", "</s>", "▁sea"},
		"":             {"<s>"},
		"theory":       {"<s>", "▁the", "or", "y"},
		"\n":           {"<s>", "▁", "<0x0A>"},
		"ssss":         {"<s>", "▁s", "s", "s", "s"},
		"<s><s>is":     {"<s>", "<s>", "<s>", "▁is"},
		"time to rest": {"<s>", "▁time", "▁to", "▁", "re", "s", "t"},
	} {
		tokens, err := v.encode(text)
		require.NoError(t, err)
		require.Equal(t, want, v.names(tokens), text)
	}
	const long = "Once upon a time the sea, on which he is — nothing – was öld & новый 海."
	tokens, err := v.encode(long)
	require.NoError(t, err)
	require.Equal(t, " "+long, v.say(tokens))
	_, err = v.encode("\xff")
	require.ErrorContains(t, err, "UTF-8")
	require.True(t, v.last(2))
	require.False(t, v.last(1))
}

// bytePairs is a file's vocabulary of byte pairs: all bytes, and what merges make.
func bytePairs(t *testing.T, cut string, merges ...string) *gguf.File {
	tiny := tinyModel("qwen2")
	var pieces []string
	for _, r := range letters {
		pieces = append(pieces, string(r))
	}
	for _, m := range merges {
		pieces = append(pieces, strings.ReplaceAll(m, " ", ""))
	}
	pieces = append(pieces, "whole", "<|end|>")
	types := make([]int32, len(pieces))
	types[len(pieces)-1] = typeControl
	tiny.set("tokenizer.ggml.model", "gpt2")
	tiny.set("tokenizer.ggml.pre", cut)
	tiny.set("tokenizer.ggml.tokens", pieces)
	tiny.set("tokenizer.ggml.token_type", types)
	tiny.set("tokenizer.ggml.merges", merges)
	tiny.set("tokenizer.ggml.add_bos_token", cut == "gpt2")
	tiny.set("tokenizer.ggml.eos_token_id", uint32(len(pieces)-1))
	return tiny.file(t)
}

// TestBytePairs: pairs are merged in the order of the list, within words, and tokens say the text again.
func TestBytePairs(t *testing.T) {
	v, err := readVocabulary(bytePairs(t, "llama-bpe", "e a", "Ġ s", "Ġs ea", "t h", "h e", "th e", "1 2", "12 3"))
	require.NoError(t, err)
	for text, want := range map[string][]string{
		"the sea":         {"the", "Ġsea"},
		"he":              {"he"},
		"1234":            {"123", "4"},
		"the<|end|> sea":  {"the", "<|end|>", "Ġsea"},
		"a  sea":          {"a", "Ġ", "Ġsea"},
		"a \n sea":        {"a", "Ġ", "Ċ", "Ġsea"},
		"it's":            {"i", "t", "'", "s"},
		"whole":           {"whole"}, // which no merges make
		"wholes":          {"w", "h", "o", "l", "e", "s"},
		"ü":               {"Ã", "¼"},
		"a  ":             {"a", "Ġ", "Ġ"},
		"":                nil,
		"\u00a0\u00a0sea": {"Â", "ł", "Â", "ł", "s", "ea"},
	} {
		tokens, err := v.encode(text)
		require.NoError(t, err)
		require.Equal(t, want, v.names(tokens), text)
		require.Equal(t, strings.ReplaceAll(text, "<|end|>", ""), v.say(tokens))
	}
	qwen, err := readVocabulary(bytePairs(t, "qwen2", "o l"))
	require.NoError(t, err)
	tokens, err := qwen.encode("whole")
	require.NoError(t, err)
	require.Equal(t, []string{"w", "h", "ol", "e"}, qwen.names(tokens))
	before, err := readVocabulary(bytePairs(t, "gpt2", "e a"))
	require.NoError(t, err)
	require.Equal(t, 1, before.first)
	other, err := readVocabulary(bytePairs(t, "another", "e a"))
	require.NoError(t, err)
	_, err = other.encode("sea")
	require.ErrorIs(t, err, errUnsupported)
	require.Equal(t, "ea", other.say([]int{256}))
}

// TestWords: texts are cut as the models' own rules cut them.
func TestWords(t *testing.T) {
	words := func(cut, text string) (all []string) {
		v := &vocabulary{words: cuts[cut], merges: map[[2]string]int{}, ids: map[string]int{}}
		for _, r := range letters {
			v.ids[string(r)] = int(r)
		}
		v.cut(text, func(word string) { all = append(all, word) })
		return all
	}
	const text = "I'll pay 12345 $, OK?\n\n  Then   go\t\tHOME'S end.  "
	require.Equal(t, []string{"I", "'ll", " pay", " ", "123", "45", " $,", " OK", "?\n\n", " ", " Then", "  ", " go", "\t", "\tHOME", "'S",
		" end", ".", "  "}, words("llama-bpe", text))
	require.Equal(t, []string{"I", "'ll", " pay", " ", "1", "2", "3", "4", "5", " $,", " OK", "?\n\n", " ", " Then", "  ", " go", "\t",
		"\tHOME", "'S", " end", ".", "  "}, words("qwen2", text))
	require.Equal(t, []string{"I", "'ll", " pay", " 12345", " $,", " OK", "?", "\n\n ", " Then", "  ", " go", "\t", "\t", "HOME", "'", "S",
		" end", ".", "  "}, words("gpt-2", text))
}

// TestBadVocabulary: tokens that do not fit each other are errors.
func TestBadVocabulary(t *testing.T) {
	for want, set := range map[string]func(t *tiny){
		"tokenizer.ggml.model: missing":      func(t *tiny) { t.metadata = t.metadata[:3] },
		`model "wordpiece": not supported`:   func(t *tiny) { t.set("tokenizer.ggml.model", "wordpiece") },
		"with 1 types":                       func(t *tiny) { t.set("tokenizer.ggml.token_type", []int32{1}) },
		"1 scores":                           func(t *tiny) { t.set("tokenizer.ggml.scores", []float32{1}) },
		"it is []string and must be []int32": func(t *tiny) { t.set("tokenizer.ggml.token_type", []string{"x"}) },
		"bos_token_id 1000000":               func(t *tiny) { t.set("tokenizer.ggml.bos_token_id", uint32(1000000)) },
		"eos_token_id -2":                    func(t *tiny) { t.set("tokenizer.ggml.eos_token_id", int32(-2)) },
		"merges: missing":                    func(t *tiny) { t.set("tokenizer.ggml.model", "gpt2") },
		`number 1 is "ab"`: func(t *tiny) {
			t.set("tokenizer.ggml.model", "gpt2")
			t.set("tokenizer.ggml.merges", []string{"a b", "ab"})
		},
	} {
		tiny := tinyModel("llama")
		set(tiny)
		_, err := readVocabulary(tiny.file(t))
		require.ErrorContains(t, err, want)
	}
}
