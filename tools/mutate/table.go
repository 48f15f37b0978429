package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// table is the file of results: a row for each mutant that was tried, and one for each set of tests that passed without any.
type table struct {
	rows  map[string]tableRow // by the mutant's ID
	sound map[string]float64  // seconds that the expected tests take without a mutant, by Killer.String
}

type tableRow struct {
	verdict string  // killed by, or survives
	seconds float64 // from planting it to the verdict, compiling included
	tested  string  // date and commit
}

const tableHead = `# Planted mistakes, and the tests that find them

Written by ` + "`tools/mutate.sh`" + `, which plants one mistake after the other and runs ` + "`go test -short`" + `: first the tests that
ought to find it, then the same without ` + "`-short`" + `, then their packages.
Seconds count from planting the mistake to the verdict, compiling included.

`

// The two tables by the first cell of their headings.
const (
	mutantHeading = "mutant"
	soundHeading  = "without a mutant, these pass"
)

// readTable reads the file; one that does not exist has no rows.
func readTable(path string) (*table, error) {
	t := &table{rows: map[string]tableRow{}, sound: map[string]float64{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	heading := ""
	for number, line := range strings.Split(string(data), "\n") {
		cells, ok := cellsOf(line)
		if !ok || strings.HasPrefix(cells[0], "---") {
			continue
		}
		if cells[0] == mutantHeading || cells[0] == soundHeading {
			heading = cells[0]
			continue
		}
		bad := fmt.Errorf("%s:%d is no row of a table of mutants: remove the file, or name another with --out", path, number+1)
		seconds, err := strconv.ParseFloat(cells[min(3, len(cells)-1)], 64)
		id := strings.Trim(cells[0], "`")
		switch {
		case heading == mutantHeading && len(cells) == 5 && err == nil:
			t.rows[id] = tableRow{verdict: cells[2], seconds: seconds, tested: cells[4]}
		case heading == soundHeading && len(cells) == 2 && err == nil:
			t.sound[id] = seconds
		default:
			return nil, bad
		}
	}
	return t, nil
}

// cellsOf are the cells of a line of a table.
func cellsOf(line string) ([]string, bool) {
	line, ok := strings.CutPrefix(line, "| ")
	if !ok {
		return nil, false
	}
	cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], `\|`, "|")
	}
	return cells, true
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// write replaces the file. Rows of mutants that are no longer listed, and tests that none expects any more, are left out.
func (t *table) write(path string) error {
	var b bytes.Buffer
	b.WriteString(tableHead)
	fmt.Fprintf(&b, "| %s | what it breaks | found | s | tested |\n| --- | --- | --- | ---: | --- |\n", mutantHeading)
	expected := map[string]bool{}
	for _, m := range Mutants() {
		for _, k := range m.Kill {
			expected[k.String()] = true
		}
		if r, ok := t.rows[m.ID]; ok {
			fmt.Fprintf(&b, "| `%s` | %s: %s | %s | %.0f | %s |\n", m.ID, m.File, escape(m.Breaks), escape(r.verdict), r.seconds, r.tested)
		}
	}
	fmt.Fprintf(&b, "\n| %s | s |\n| --- | ---: |\n", soundHeading)
	for _, k := range slices.Sorted(maps.Keys(t.sound)) {
		if !expected[k] {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %.0f |\n", escape(k), t.sound[k])
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
