package result

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
)

// mixedLengths are those of a batch of 32 documents of 16,384 tokens, of all lengths up to 1403.
var mixedLengths = []int{849, 140, 260, 800, 29, 943, 254, 842, 492, 303, 612, 422, 695, 161, 335, 324,
	497, 383, 1284, 643, 169, 84, 276, 144, 193, 421, 939, 880, 28, 966, 613, 1403}

// packings are what lengths packed sequences have, by the names of files. "" is a batch.
var packings = []string{"equal", "mixed"}

// ParsePacked reads what lengths packed sequences have, or none, which is "" in files.
func ParsePacked(s string) (string, error) { return parseName("packed", s, packings) }

// ParseUsed reads how many of its keys a batch entry uses, or all, which is "" in files.
func ParseUsed(s string) (string, error) {
	switch text := strings.ToLower(strings.TrimSpace(s)); text {
	case "", "all", "none":
		return "", nil
	case "mixed":
		return text, nil
	}
	return "", fmt.Errorf("used %q: it must be all or mixed", s)
}

// uneven says that batch entries have lengths of their own: of packed sequences, or of keys that are in use.
func (c Case) uneven() bool { return c.Packed != "" || c.Used != "" }

// Lengths are the keys of each batch entry, and of packed sequences the queries: N, or mixedLengths from the first on, over and over, in
// proportion, of which the longest is N; nil where all are N in a batch.
func (c Case) Lengths() []int {
	if !c.uneven() {
		return nil
	}
	out := make([]int, c.B)
	longest := slices.Max(mixedLengths[:min(c.B, len(mixedLengths))])
	for b := range out {
		if out[b] = c.N; c.Packed == "mixed" || c.Used == "mixed" {
			out[b] = max(1, (mixedLengths[b%len(mixedLengths)]*c.N+longest/2)/longest)
		}
	}
	return out
}

// Starts are where each packed sequence starts and, last, where the last one ends; nil of a batch.
func (c Case) Starts() (out []int32) {
	if c.Packed == "" {
		return nil
	}
	at := int32(0)
	for _, n := range c.Lengths() {
		out, at = append(out, at), at+int32(n)
	}
	return append(out, at)
}

// packed says so for the library.
func (c Case) packed() flash.Packed {
	s := c.Starts()
	if s == nil {
		return flash.Packed{}
	}
	total := int(s[c.B])
	return flash.Packed{Queries: total, Keys: total}
}

// Entry is the case as far as a batch entry goes: with the queries and keys that this one has.
func (c Case) Entry(b int) Case {
	if c.uneven() {
		c.N = c.Lengths()[b]
	}
	if c.Packed != "" {
		c.Nq = c.N
	}
	return c
}

// alone is a batch entry as a batch of one that has nothing but its own queries and keys.
func (c Case) alone(b int) Case {
	c = c.Entry(b)
	c.B, c.Packed, c.Used = 1, "", ""
	return c
}

// UsedKeys are the numbers of keys in use, as device memory has them.
func (c Case) UsedKeys() []int32 {
	var out []int32
	for _, n := range c.Lengths() {
		out = append(out, int32(n))
	}
	return out
}

// Place says where tensors have row i of a batch entry: in their first entry, which is the only one, where sequences are packed.
func (c Case) Place(b, i int) (entry, row int) {
	if c.Packed == "" {
		return b, i
	}
	return 0, int(c.Starts()[b]) + i
}

// checkLatent says what does not go together with values that are columns of keys.
func (c Case) checkLatent() error {
	if c.Latent && c.Dv > c.D {
		return fmt.Errorf("value-dim is %d: values that are columns of keys have %d at most", c.Dv, c.D)
	}
	return nil
}

// checkLengths says what does not go together with lengths of batch entries.
func (c Case) checkLengths() error {
	switch {
	case !c.uneven():
		return nil
	case c.Packed != "" && c.Used != "":
		return fmt.Errorf("used is %s: it is of a batch, and packed sequences use all keys that they have", c.Used)
	case c.Packed != "" && c.Nq != c.N:
		return fmt.Errorf("q-len is %d: packed sequences have as many queries as keys, %d at most", c.Nq, c.N)
	case c.Mask != "":
		return fmt.Errorf("mask is %s: it is of a batch whose entries have one length, and sequences are packed in place of it", c.Mask)
	case c.Bias != "":
		return fmt.Errorf("bias is %s: it is of a batch whose entries have one length", c.Bias)
	}
	return nil
}
