package result

import (
	"fmt"
	"reflect"
	"strings"
)

// Shape is the case without its implementation, block mask, tuning and order of sums: rows of
// equal shape are compared with one another.
func (c Case) Shape() Case {
	for _, a := range ownLoops {
		a.clear(&c)
	}
	return c
}

// String reads "flash2 float16 B16 H32 N2048 D64 causal".
func (c Case) String() string {
	var parts []string
	for _, a := range Axes {
		if a.Text == nil {
			continue
		}
		if text := a.Text(c); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, " ")
}

// Path reads "impl=flash2/dtype=float16/B=16/…/causal=true": the keys of result
// files with their values.
func (c Case) Path() string {
	var parts []string
	for _, a := range Axes {
		if v := a.in(&c); v != nil && (a.Sure || !empty(v)) {
			parts = append(parts, fmt.Sprintf("%s=%v", a.Key, reflect.ValueOf(v).Elem()))
		}
	}
	return strings.Join(parts, "/")
}

// Validate says what is wrong with a case before any device sees it.
func (c Case) Validate() error {
	for _, a := range Axes {
		if err := a.check(a.Name, &c); err != nil {
			return err
		}
	}
	if c.H%c.Hkv != 0 {
		return fmt.Errorf("kv-heads is %d: it must divide heads, which is %d", c.Hkv, c.H)
	}
	if err := c.checkLatent(); err != nil {
		return err
	}
	if err := c.checkLengths(); err != nil {
		return err
	}
	return c.checkMasks()
}
