package result

import "fmt"

// Override returns the grid with every axis that o names replaced by o's.
func (g Grid) Override(o Grid) Grid {
	for _, a := range Axes {
		a.override(&g, &o)
	}
	if len(o.Batch) > 0 { // a batch given by hand unties it from the sequence length
		g.Tokens = 0
	}
	if o.Tokens > 0 {
		g.Batch, g.Tokens = nil, o.Tokens
	}
	return g
}

// Wants says whether the grid has the case's value on every axis that it names.
func (g Grid) Wants(c Case) bool {
	for _, a := range Axes {
		if !a.wants(&g, &c) {
			return false
		}
	}
	return true
}

// Expand returns the cases of the grid, implementations innermost, so that
// cases of one shape stand together. The first impossible combination is an
// error that names it.
func (g Grid) Expand() ([]Case, error) {
	if g.Tokens > 0 && len(g.Batch) > 0 {
		return nil, fmt.Errorf("batch and tokens are both given: with tokens the batch is tokens / seq")
	}
	if g.Tokens < 0 {
		return nil, fmt.Errorf("tokens is %d: it must be positive", g.Tokens)
	}
	g = g.withDefaults()
	if _, err := g.headShapes(); err != nil {
		return nil, err
	}
	for _, a := range Axes {
		if err := a.clean(&g); err != nil {
			return nil, err
		}
	}
	cases, err := g.loop(problemLoops, []Case{{}})
	if err != nil {
		return nil, err
	}
	for _, c := range cases {
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("case %s: %w", c, err)
		}
	}
	if cases, err = g.loop(ownLoops, cases); err != nil {
		return nil, err
	}
	return Distinct(cases), nil
}

// loop repeats every case for the values of some axes.
func (g Grid) loop(axes []Axis, cases []Case) (_ []Case, err error) {
	for _, a := range axes {
		if cases, err = a.vary(cases, &g); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// withDefaults fills the empty axes.
func (g Grid) withDefaults() Grid {
	d := Defaults
	if g.Tokens > 0 {
		d.Batch = []int{1} // a placeholder: the batch follows from the sequence length
	}
	// Of heads, head-dim and emb-dim, two given ones fix the third.
	switch {
	case len(g.EmbDim) > 0 && len(g.Heads) > 0:
		d.HeadDim = nil
	case len(g.EmbDim) > 0:
		d.Heads = nil
	}
	out := d.Override(g)
	if g.Tokens > 0 {
		out.Batch, out.Tokens = d.Batch, g.Tokens
	}
	for _, a := range Axes {
		a.fill(&out)
	}
	return out
}

// Distinct drops repeated cases, keeping the first of each.
func Distinct(cases []Case) []Case {
	seen := make(map[Case]bool, len(cases))
	out := cases[:0:0]
	for _, c := range cases {
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}
