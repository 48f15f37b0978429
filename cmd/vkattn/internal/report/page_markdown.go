package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// Markdown renders the page for a README; its figures are in the folder figures.
func (p *Page) Markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", p.Title)
	for _, run := range p.Runs {
		for _, line := range run.Lines {
			fmt.Fprintf(&b, "%s  \n", line)
		}
	}
	b.WriteString("\n")
	for _, r := range p.Ratios {
		fmt.Fprintf(&b, "- %s\n", escape(r.String()))
	}
	if s := p.Spread.String(); s != "" {
		fmt.Fprintf(&b, "- %s\n", escape(s))
	}
	fmt.Fprintf(&b, "\n%s\n", figure.Legend)
	for _, m := range p.Maps {
		fmt.Fprintf(&b, "\n## %s\n\n![%s](figures/%s.png)\n\n%s\n", escape(m.Title), escape(m.Title), m.ID,
			escape(strings.Join(m.Caption, "; ")))
	}
	for _, f := range p.ordered() {
		markdownFigure(&b, f)
	}
	for _, run := range p.Runs {
		for _, s := range run.sections() {
			s.markdown(&b, run.Label, len(p.Runs) > 1)
		}
	}
	for _, run := range p.Runs {
		if len(run.Results.Rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## All rows: %s\n\n", run.Label)
		_ = writeMarkdown(&b, run.Results) // a buffer takes everything
	}
	b.WriteString("\n## Sources\n\n")
	for i, c := range figure.Citations {
		fmt.Fprintf(&b, "- [%d] %s\n", i+1, c.Text)
	}
	return b.Bytes()
}

func markdownFigure(b *bytes.Buffer, f *figure.Figure) {
	fmt.Fprintf(b, "\n## %s\n\n", f.Title)
	if f.Fixed != "" {
		fmt.Fprintf(b, "%s\n\n", f.Fixed)
	}
	drawn := views(f)
	if len(drawn) == 0 {
		fmt.Fprintf(b, "%s\n", f.Empty)
	}
	for _, view := range drawn {
		fmt.Fprintf(b, "![%s](figures/%s.svg)\n", view.Title, view.ID)
	}
	list := func(title, mark string, lines []string, end string) {
		if len(lines) > 0 {
			fmt.Fprintf(b, "\n%s\n\n", title)
			for _, line := range lines {
				fmt.Fprintf(b, "%s %s%s\n", mark, escape(line), end)
			}
		}
	}
	list("Rounds that disagree, ringed:", "-", f.Doubts, "")
	list("Not in the figure:", "-", f.Missing, "")
	list("Files that are not in the figure, for want of rows at this setting:", "-", f.Absent, "")
	list("Others measured, with other code on other GPUs:", ">", f.Others, "  ")
}

func (s Section) markdown(b *bytes.Buffer, label string, several bool) {
	title := s.Title
	if several {
		title += ": " + label
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if s.Fixed != "" {
		fmt.Fprintf(b, "%s\n\n", s.Fixed)
	}
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + escape(c) + " |")
		}
		b.WriteString("\n")
	}
	line(s.Table.Header)
	b.WriteString("|" + strings.Repeat(" --- |", len(s.Table.Header)) + "\n")
	for _, row := range s.Table.Rows {
		line(row)
	}
	for _, m := range s.Others {
		fmt.Fprintf(b, "\n> %s\n", m)
	}
}
