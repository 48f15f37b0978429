package result

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// Which keys the queries of a case see, by their positions and by its mask: as the library takes it, as the oracle does, and counted.

// masks gives them to a problem.
func (c Case) masks(p *flash.Problem) {
	if c.Causal {
		p.Causal = flash.CausalBottomRight
	}
	if c.Window > 0 {
		p.Window = flash.SlidingWindow(c.reach())
	}
	p.MaskFunction = c.sees()
}

// Masks gives them to the oracle.
func (c Case) Masks(o *ref.Options) {
	if c.Causal {
		o.Causal = ref.BottomRight
	}
	if c.Window > 0 {
		left, right := c.reach()
		o.Window = &ref.Window{Left: left, Right: right}
	}
	o.Sees = c.sees()
}

// reach is the window's, without end to the right where the causal order ends it.
func (c Case) reach() (left, right int) {
	if c.Causal {
		return c.Window, -1
	}
	return c.Window, c.Window
}

// ParseMask reads a mask: documents=NUMBER, prefix=NUMBER, or none, which is "" in files.
func ParseMask(s string) (string, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if text == "" || text == "none" {
		return "", nil
	}
	if name, n := maskOf(text); n > 0 {
		return fmt.Sprintf("%s=%d", name, n), nil
	}
	return "", fmt.Errorf("mask %q: it must be none, documents=N (as many documents of equal length) or prefix=N (the first N keys, and "+
		"those up to one's own position)", s)
}

// maskOf takes a mask apart; n is 0 where there is none.
func maskOf(mask string) (name string, n int) {
	name, number, _ := strings.Cut(mask, "=")
	if name != "documents" && name != "prefix" {
		return "", 0
	}
	list, err := ParseInts("mask", []string{number})
	if err != nil {
		return "", 0
	}
	return name, list[0]
}

// sees is the mask function of a case.
func (c Case) sees() score.MaskFunction {
	switch name, n := maskOf(c.Mask); name {
	case "documents":
		ids := make([]int32, c.N)
		for j := range ids {
			ids[j] = int32(c.document(j, n))
		}
		return score.Documents(score.TableInt(ids, c.N))
	case "prefix":
		return score.PrefixLM(n)
	}
	return score.MaskFunction{}
}

// document is which of n documents a token is of. They are of one length where n divides the keys, else of two that differ by one.
func (c Case) document(token, n int) int { return token * n / c.N }

// Seen are the keys of a query, from first up to, not including, end: what the causal order, the window and the mask leave.
func (c Case) Seen(query int) (first, end int) {
	at := query + c.N - c.Nq
	end = c.N
	if c.Causal {
		end = min(end, at+1)
	}
	if c.Window > 0 {
		first, end = max(first, at-c.Window), min(end, at+c.Window+1)
	}
	switch name, n := maskOf(c.Mask); name {
	case "documents":
		d := c.document(max(at, 0), n) // an index before the first token reads the first
		first, end = max(first, (d*c.N+n-1)/n), min(end, ((d+1)*c.N+n-1)/n)
	case "prefix":
		end = min(end, max(n, at+1))
	}
	return first, max(first, end)
}

// pairs is the number of pairs of a head that are seen, of lists as many as they have room for.
func (c Case) pairs() (n float64) {
	for i := range c.Nq {
		first, end := c.Seen(i)
		if c.Listed > 0 {
			end = min(end, first+c.Listed)
		}
		n += float64(end - first)
	}
	return n
}

// checkMasks says what of masks does not go together.
func (c Case) checkMasks() error {
	switch name, n := maskOf(c.Mask); {
	case name == "documents" && n > c.N:
		return fmt.Errorf("mask is %s: there are %d keys", c.Mask, c.N)
	case name == "prefix" && n > c.N:
		return fmt.Errorf("mask is %s: there are %d keys", c.Mask, c.N)
	case name == "prefix" && c.Causal:
		return fmt.Errorf("mask is %s: it is causal beyond the prefix by itself, and with a causal mask the prefix would be one too; "+
			"causal must be false", c.Mask)
	}
	return nil
}
