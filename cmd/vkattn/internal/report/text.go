package report

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// gap is the number of blanks between two columns.
const gap = 2

// Text is a table for the terminal: a header over a rule, columns two blanks apart.
type Text struct {
	header []string
	align  string
	rows   [][]string // nil: a line
	width  int
	drop   []string
}

// NewText begins a table. align has a letter for each column: l for text, r for figures.
func NewText(header []string, align string) *Text { return &Text{header: header, align: align} }

// Row adds a row.
func (t *Text) Row(values ...string) { t.rows = append(t.rows, values) }

// Rule adds a line.
func (t *Text) Rule() { t.rows = append(t.rows, nil) }

// Fit makes the table at most width columns wide, 0 for any width: columns are left out in the order in which drop has their headers,
// as many as must be, and then the last one is folded if it is text. What no longer fits then stands out.
func (t *Text) Fit(width int, drop ...string) *Text {
	t.width, t.drop = width, drop
	return t
}

// Dropped are the headers of the columns that do not fit, in the order of the table.
func (t *Text) Dropped() (names []string) {
	shown := t.shown()
	for i, name := range t.header {
		if !slices.Contains(shown, i) {
			names = append(names, name)
		}
	}
	return names
}

// shown are the columns that fit.
func (t *Text) shown() []int {
	var columns []int
	total := -gap
	for i := range t.header {
		columns = append(columns, i)
		total += t.columnWidth(i) + gap
	}
	var dropped []int
	for _, name := range t.drop {
		if t.width == 0 || total <= t.width {
			break
		}
		for i, header := range t.header {
			if header == name {
				dropped = append(dropped, i)
				total -= t.columnWidth(i) + gap
			}
		}
	}
	for at := len(dropped) - 1; at >= 0; at-- { // the last one may have made room for a narrow one
		if w := t.columnWidth(dropped[at]) + gap; total+w <= t.width {
			dropped = slices.Delete(dropped, at, at+1)
			total += w
		}
	}
	return slices.DeleteFunc(columns, func(i int) bool { return slices.Contains(dropped, i) })
}

func (t *Text) columnWidth(column int) int {
	most := text.StringWidthWithoutEscSequences(t.header[column])
	for _, row := range t.rows {
		if row != nil {
			most = max(most, text.StringWidthWithoutEscSequences(row[column]))
		}
	}
	return most
}

// String renders the table without blanks at the ends of lines.
func (t *Text) String() string {
	columns := t.shown()
	w := table.NewWriter()
	style := table.StyleLight
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", gap)
	w.SetStyle(style)
	var config []table.ColumnConfig
	used := 0
	for at, i := range columns {
		a := text.AlignLeft
		if t.align[i] == 'r' {
			a = text.AlignRight
		}
		c := table.ColumnConfig{Number: at + 1, Align: a, AlignHeader: a}
		if at == len(columns)-1 && t.align[i] == 'l' && t.width > 0 && used+t.columnWidth(i) > t.width {
			c.WidthMax, c.WidthMaxEnforcer = max(t.width-used, leastFold), text.WrapSoft
		}
		used += t.columnWidth(i) + gap
		config = append(config, c)
	}
	w.SetColumnConfigs(config)
	w.AppendHeader(cells(t.header, columns))
	for _, row := range t.rows {
		if row == nil {
			w.AppendSeparator()
		} else {
			w.AppendRow(cells(row, columns))
		}
	}
	lines := strings.Split(w.Render(), "\n")
	longest := 0
	for i := range lines {
		if lines[i] = strings.TrimRight(lines[i], " "); !isRule(lines[i]) {
			longest = max(longest, text.StringWidthWithoutEscSequences(lines[i]))
		}
	}
	for i, line := range lines {
		if isRule(line) { // it is drawn under the blanks behind the last column too
			lines[i] = strings.Repeat("─", longest)
		}
	}
	return strings.Join(lines, "\n")
}

func isRule(line string) bool { return line != "" && strings.Trim(line, "─") == "" }

// leastFold is the least width of a column that is folded: words stay readable.
const leastFold = 16

func cells(values []string, columns []int) table.Row {
	row := make(table.Row, len(columns))
	for at, i := range columns {
		row[at] = values[i]
	}
	return row
}

// Fold breaks text between words into lines of at most width columns, 0 for any; lines after the first begin with indent. A dot between
// words ends a line and begins none.
func Fold(s string, width int, indent string) string {
	if width == 0 {
		return s
	}
	var b strings.Builder
	used := 0
	for i, word := range strings.Split(strings.ReplaceAll(s, " ·", "\x00·"), " ") {
		word = strings.ReplaceAll(word, "\x00", " ")
		n := text.StringWidthWithoutEscSequences(word)
		switch {
		case i == 0:
		case used+1+n > width && used > len(indent):
			folded := strings.TrimRight(b.String(), " ")
			b.Reset()
			b.WriteString(folded + "\n" + indent)
			used = len(indent)
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
