package report

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

//go:embed page.tmpl
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"times": result.Times,
	"inc": func(i int) int { return i + 1 }}).Parse(pageSource))

// htmlPage is a Page as its template takes it.
type htmlPage struct {
	*Page
	Light, Dark template.CSS
	Legend      string
	Drawn       []htmlFigure
	Sections    []htmlSection
	Tables      []htmlTable
	Citations   []figure.Citation
	Several     bool // runs
	Rings       bool // rows of several devices
}

type htmlSection struct {
	Section
	Label string // of the run, where there are several
}

type htmlFigure struct {
	*figure.Figure
	Views []htmlView // side by side; none: nothing is drawn
}

// htmlView is one drawing of a figure.
type htmlView struct {
	*figure.Figure
	SVG   template.HTML
	Table FigureTable
}

type htmlTable struct {
	Run     Run
	Columns []htmlColumn
	Rows    []htmlRow
	Shared  string
	Notes   []string
	Open    bool // short enough to be shown at once
}

type htmlColumn struct {
	Name string
	Left bool
}

type htmlRow struct {
	Peer, First bool // First: of its shape
	Cells       []string
}

// HTML renders the page: one file that needs nothing else.
func (p *Page) HTML() ([]byte, error) {
	out := htmlPage{Page: p, Light: template.CSS(figure.Variables(false)), Dark: template.CSS(figure.Variables(true)),
		Legend:    figure.Legend,
		Citations: figure.Citations, Several: len(p.Runs) > 1}
	for _, f := range p.ordered() {
		h := htmlFigure{Figure: f}
		for _, view := range views(f) {
			svg, err := view.Inline()
			if err != nil {
				return nil, err
			}
			h.Views = append(h.Views, htmlView{view, template.HTML(svg), Table(view)})
		}
		out.Drawn = append(out.Drawn, h)
	}
	for _, run := range p.Runs {
		out.Rings = out.Rings || len(run.Rings) > 0
		for _, s := range run.sections() {
			h := htmlSection{Section: s.apart()}
			if len(p.Runs) > 1 {
				h.Label = run.Label
				h.ID += fmt.Sprintf("-%d", len(out.Sections))
			}
			out.Sections = append(out.Sections, h)
		}
		if len(run.Results.Rows) > 0 {
			out.Tables = append(out.Tables, run.table())
		}
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, out)
	return b.Bytes(), err
}

// Source is the picture's bytes as an address, so that the page needs nothing else.
func (p Picture) Source() template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(p.PNG))
}

// views are the drawings of a figure: itself, and the same against a peer's baseline; none of a figure without rows.
func views(f *figure.Figure) (out []*figure.Figure) {
	for ; f != nil && len(f.Series) > 0; f = f.Peer {
		out = append(out, f)
	}
	return out
}

func (r Run) table() htmlTable {
	g := build(r.Results)
	t := htmlTable{Run: r, Shared: strings.Join(g.shared, " · "), Notes: g.notes, Open: len(g.cells) <= 40}
	for _, c := range g.columns {
		t.Columns = append(t.Columns, htmlColumn{c.Name, c.Left})
	}
	for i, cells := range g.cells {
		t.Rows = append(t.Rows, htmlRow{Peer: g.peer[i], First: i > 0 && g.groups[i] != g.groups[i-1], Cells: cells})
	}
	return t
}
