package main

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// vocabulary is a model's tokens, from the metadata of its file. There are two kinds: pieces with scores (SentencePiece, "llama"), and
// pairs that are merged in an order (byte pairs, "gpt2").
type vocabulary struct {
	pieces   []string
	types    []int32
	ids      map[string]int
	scores   []float32         // of pieces; nil of byte pairs
	merges   map[[2]string]int // of byte pairs, by their order
	words    *regexp.Regexp    // how byte pairs cut a text first
	whole    bool              // a word that is a token is that token, whatever merges make of it: Llama 3
	special  []string          // tokens that stand for themselves in a text, the longest first
	first    int               // a token before each text; −1: none
	ends     []int             // tokens that end a text
	addSpace bool              // a text begins with a space
}

// Types of tokens, in the file's numbers.
const (
	typeControl = 3
	typeUser    = 4
	typeByte    = 6
)

// cuts are the words that byte pairs are merged in, by the name that files have for it. Where white space goes before a word all of it but
// the last character is a word of its own, which is why it is a group.
var cuts = func() map[string]*regexp.Regexp {
	const (
		space = `\s\x{0b}\x{85}\p{Z}`
		marks = `| ?[^` + space + `\p{L}\p{N}]+`
	)
	newer := func(digits string) *regexp.Regexp {
		return regexp.MustCompile(`^(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|` + digits + marks + `[\r\n]*|[` + space +
			`]*[\r\n]+|([` + space + `]+))`)
	}
	gpt2 := regexp.MustCompile(`^(?:'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+` + marks + `|([` + space + `]+))`)
	return map[string]*regexp.Regexp{"gpt-2": gpt2, "gpt2": gpt2, llama3: newer(`\p{N}{1,3}`), "qwen2": newer(`\p{N}`)}
}()

// llama3 is what files call Llama 3's way of cutting a text.
const llama3 = "llama-bpe"

// readVocabulary reads the tokens of a file.
func readVocabulary(f *gguf.File) (*vocabulary, error) {
	const prefix = "tokenizer.ggml."
	model, err := gguf.Get[string](f, prefix+"model")
	if err != nil {
		return nil, err
	}
	v := &vocabulary{ids: map[string]int{}}
	if v.pieces, err = gguf.Get[[]string](f, prefix+"tokens"); err != nil {
		return nil, err
	}
	if v.types, err = gguf.Or(gguf.Get[[]int32](f, prefix+"token_type"))(make([]int32, len(v.pieces))); err != nil {
		return nil, err
	}
	for id, s := range v.pieces {
		if _, there := v.ids[s]; !there {
			v.ids[s] = id
		}
	}
	switch model {
	case "llama":
		v.scores, err = gguf.Get[[]float32](f, prefix+"scores")
	case "gpt2":
		err = v.readMerges(f, prefix)
	default:
		err = fmt.Errorf("%smodel %q: %w: there are llama, gpt2", prefix, model, errUnsupported)
	}
	if err != nil {
		return nil, err
	}
	if len(v.types) != len(v.pieces) || v.scores != nil && len(v.scores) != len(v.pieces) {
		return nil, fmt.Errorf("%stokens: there are %d, with %d types and %d scores", prefix, len(v.pieces), len(v.types), len(v.scores))
	}
	for id, t := range v.types {
		if (t == typeControl || t == typeUser) && v.pieces[id] != "" {
			v.special = append(v.special, v.pieces[id])
		}
	}
	slices.SortStableFunc(v.special, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return v, v.readRules(f, prefix)
}

// readRules reads which tokens begin and end a text.
func (v *vocabulary) readRules(f *gguf.File, prefix string) (err error) {
	flag := func(key string, otherwise bool) (x bool) {
		if err == nil {
			x, err = gguf.Or(gguf.Get[bool](f, prefix+key))(otherwise)
		}
		return x
	}
	token := func(key string) int {
		if err != nil {
			return -1
		}
		var id int
		if id, err = gguf.Or(f.Int(prefix + key))(-1); err == nil && (id < -1 || id >= len(v.pieces)) {
			err = fmt.Errorf("%s%s %d: there are %d tokens", prefix, key, id, len(v.pieces))
		}
		return id
	}
	v.addSpace = flag("add_space_prefix", v.scores != nil)
	v.first = token("bos_token_id")
	if !flag("add_bos_token", v.scores != nil || v.whole) {
		v.first = -1
	}
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if id := token(key); id >= 0 {
			v.ends = append(v.ends, id)
		}
	}
	return err
}

func (v *vocabulary) readMerges(f *gguf.File, prefix string) error {
	cut, err := gguf.Or(gguf.Get[string](f, prefix+"pre"))("gpt-2")
	if err != nil {
		return err
	}
	if v.words = cuts[cut]; v.words == nil { // texts can be written, not read: tokens are given by number
		return nil
	}
	merges, err := gguf.Get[[]string](f, prefix+"merges")
	if err != nil {
		return err
	}
	v.whole, v.merges = cut == llama3, map[[2]string]int{}
	for i, s := range merges {
		a, b, two := strings.Cut(s, " ")
		if !two {
			return fmt.Errorf("%smerges: number %d is %q: it must be two pieces", prefix, i, s)
		}
		v.merges[[2]string{a, b}] = i
	}
	return nil
}

// encode gives the tokens of a text.
func (v *vocabulary) encode(text string) (tokens []int, err error) {
	if v.scores == nil && v.merges == nil {
		return nil, fmt.Errorf("the file's way of cutting a text (tokenizer.ggml.pre): %w: give tokens by -ids", errUnsupported)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("the text is not UTF-8")
	}
	if v.first >= 0 {
		tokens = append(tokens, v.first)
	}
	for text != "" {
		at, which := len(text), ""
		for _, s := range v.special {
			if i := strings.Index(text[:min(len(text), at+len(s)-1)], s); i >= 0 && i < at {
				at, which = i, s
			}
		}
		if at > 0 {
			part, err := v.plain(text[:at])
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, part...)
		}
		if which != "" {
			tokens = append(tokens, v.ids[which])
		}
		text = text[at+len(which):]
	}
	return tokens, nil
}

// plain gives the tokens of a text without special ones.
func (v *vocabulary) plain(text string) (tokens []int, err error) {
	if v.scores != nil {
		if v.addSpace {
			text = " " + text
		}
		for _, piece := range v.joinPieces(strings.ReplaceAll(text, " ", "▁")) {
			if tokens, err = v.append(tokens, piece); err != nil {
				return nil, err
			}
		}
		return tokens, nil
	}
	v.cut(text, func(word string) {
		for _, piece := range v.piecesOf(word) {
			id, known := v.ids[piece]
			if !known && err == nil {
				err = fmt.Errorf("%q: the vocabulary has no token for it", word)
			}
			tokens = append(tokens, id)
		}
	})
	return tokens, err
}

// cut cuts a text into words.
func (v *vocabulary) cut(text string, each func(word string)) {
	for text != "" {
		at := v.words.FindStringSubmatchIndex(text)
		_, n := utf8.DecodeRuneInString(text) // a character that no rule takes is a word
		if at != nil {
			n = at[1]
			if at[2] >= 0 && n < len(text) {
				if _, last := utf8.DecodeLastRuneInString(text[:n]); n > last {
					n -= last
				}
			}
		}
		each(text[:n])
		text = text[n:]
	}
}

// append adds the token of a piece, or those of its bytes.
func (v *vocabulary) append(tokens []int, piece string) ([]int, error) {
	if id, known := v.ids[piece]; known {
		return append(tokens, id), nil
	}
	for _, b := range []byte(piece) {
		id, known := v.ids[fmt.Sprintf("<0x%02X>", b)]
		if !known {
			return nil, fmt.Errorf("%q: the vocabulary has no token for it, nor for its bytes", piece)
		}
		tokens = append(tokens, id)
	}
	return tokens, nil
}

// symbol is a piece of a text, between others.
type symbol struct {
	text       string
	prev, next int // −1: none
}

// pair is two neighbours that are a piece together. It has lost its meaning where their text has changed since.
type pair struct {
	left, right int
	text        string
	score       float32
}

// pairs is a heap: the best score first, and of equals the leftmost.
type pairs []pair

func (p pairs) Len() int { return len(p) }
func (p pairs) Less(i, j int) bool {
	return p[i].score > p[j].score || p[i].score == p[j].score && p[i].left < p[j].left
}
func (p pairs) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *pairs) Push(x any) { *p = append(*p, x.(pair)) }

// Pop implements heap.Interface.
func (p *pairs) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// joinPieces joins characters to pieces: of all neighbours that are a piece together those with the best score, again and again.
func (v *vocabulary) joinPieces(text string) (pieces []string) {
	var all []symbol
	for _, r := range text {
		all = append(all, symbol{string(r), len(all) - 1, len(all) + 1})
	}
	if len(all) == 0 {
		return nil
	}
	all[len(all)-1].next = -1
	var queue pairs
	offer := func(left, right int) {
		if left < 0 || right < 0 {
			return
		}
		text := all[left].text + all[right].text
		if id, known := v.ids[text]; known {
			heap.Push(&queue, pair{left, right, text, v.scores[id]})
		}
	}
	for i := range all[1:] {
		offer(i, i+1)
	}
	for len(queue) > 0 {
		p := heap.Pop(&queue).(pair)
		l, r := &all[p.left], &all[p.right]
		if l.text == "" || r.text == "" || l.text+r.text != p.text || l.next != p.right {
			continue
		}
		l.text, l.next, r.text = p.text, r.next, ""
		if r.next >= 0 {
			all[r.next].prev = p.left
		}
		offer(l.prev, p.left)
		offer(p.left, l.next)
	}
	for i := 0; i >= 0; i = all[i].next {
		pieces = append(pieces, all[i].text)
	}
	return pieces
}

// piecesOf joins the bytes of a word to pieces: of all neighbours those that come first in the list of merges, again and again.
func (v *vocabulary) piecesOf(word string) (pieces []string) {
	for _, b := range []byte(word) {
		pieces = append(pieces, string(letters[b]))
	}
	if word := strings.Join(pieces, ""); v.whole {
		if _, known := v.ids[word]; known {
			return []string{word}
		}
	}
	for {
		at, best := -1, math.MaxInt
		for i := range len(pieces) - 1 {
			if rank, known := v.merges[[2]string{pieces[i], pieces[i+1]}]; known && rank < best {
				at, best = i, rank
			}
		}
		if at < 0 {
			return pieces
		}
		pieces = slices.Replace(pieces, at, at+2, pieces[at]+pieces[at+1])
	}
}

// letters are the characters that stand for bytes in byte pairs: those that can be seen stand for themselves.
var letters = func() (all [256]rune) {
	next := rune(256)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' && b <= 'ÿ' {
			all[b] = b
		} else {
			all[b] = next
			next++
		}
	}
	return all
}()

var bytesOf = func() map[rune]byte {
	all := map[rune]byte{}
	for b, r := range letters {
		all[r] = byte(b)
	}
	return all
}()

// decode gives what a token says: bytes, which may be part of a character. Control tokens say nothing.
func (v *vocabulary) decode(id int) string {
	if v == nil || id >= len(v.pieces) {
		return fmt.Sprintf("<%d>", id)
	}
	s := v.pieces[id]
	switch {
	case v.types[id] == typeControl:
		return ""
	case v.types[id] == typeUser:
		return s
	case v.scores != nil && v.types[id] == typeByte:
		var b byte
		if _, err := fmt.Sscanf(s, "<0x%02X>", &b); err == nil {
			return string([]byte{b})
		}
		return s
	case v.scores != nil:
		return strings.ReplaceAll(s, "▁", " ")
	}
	var said []byte
	for _, r := range s {
		if b, known := bytesOf[r]; known {
			said = append(said, b)
		} else {
			said = utf8.AppendRune(said, r)
		}
	}
	return string(said)
}

// last says whether a token ends a text.
func (v *vocabulary) last(id int) bool { return v != nil && slices.Contains(v.ends, id) }
