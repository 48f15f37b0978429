package report

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Text is a table for the terminal: a header over a rule, columns two blanks apart.
type Text struct{ t table.Writer }

// NewText begins a table. align has a letter for each column: l for text, r for figures.
func NewText(header []string, align string) *Text {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	var config []table.ColumnConfig
	for i, c := range align {
		a := text.AlignLeft
		if c == 'r' {
			a = text.AlignRight
		}
		config = append(config, table.ColumnConfig{Number: i + 1, Align: a, AlignHeader: a})
	}
	t.SetColumnConfigs(config)
	t.AppendHeader(cells(header))
	return &Text{t}
}

func cells(values []string) table.Row {
	row := make(table.Row, len(values))
	for i, v := range values {
		row[i] = v
	}
	return row
}

// Row adds a row.
func (t *Text) Row(values ...string) { t.t.AppendRow(cells(values)) }

// Rule adds a line.
func (t *Text) Rule() { t.t.AppendSeparator() }

// String renders the table without blanks at the ends of lines.
func (t *Text) String() string {
	lines := strings.Split(t.t.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
