package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
)

// Cases that others computed: golden vectors and ONNX cases of a folder.

// readVectors checks every file of a folder before a device is looked for.
func readVectors(dir string) (*conformance.Folder, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("--vectors: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("--vectors: %s is a file: it must be a folder", dir)
	}
	folder, err := conformance.ReadFolder(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("--vectors: in %s: %w", dir, err)
	}
	return folder, nil
}

// printDamaged prints what is wrong with files of a folder that are no cases, and says whether there is none.
func printDamaged(w io.Writer, f *conformance.Folder, color bool) bool {
	if f == nil || len(f.Damaged) == 0 {
		return true
	}
	fmt.Fprintf(w, "%s  of %s %d cannot be read as a case, and left out:\n", paintWord("FAIL", color), count(f.Files, "file"),
		len(f.Damaged))
	for _, err := range f.Damaged {
		fmt.Fprintf(w, "      %s\n", plain(err.Error()))
	}
	return false
}

// printVectors prints one line a case and kernel: the verdict, and of the output that is nearest its bound the error and the bound.
func printVectors(w io.Writer, results []conformance.Result, failedOnly, ranOnly, wide, color bool) {
	t := newText(w, wide, []string{"worst", "bound", "error", "passes"}, []string{"case", "kernel", "verdict", "passes", "worst", "error",
		"bound", "reason"}, "lllllrrl")
	shown := 0
	for _, r := range results {
		word := resultWord(r)
		if failedOnly && word != "FAIL" || ranOnly && word == "skip" {
			continue
		}
		shown++
		row := []string{r.Case, cmp.Or(r.Target, "none"), paintWord(word, color), "", "", "", "", r.Failure}
		if r.Skipped == "" {
			row[3] = "forward"
			if r.Gradients {
				row[3] = "both"
			}
		}
		if r.Worst != "" {
			row[4], row[5], row[6] = r.Worst, fmt.Sprintf("%.1e", r.WorstErr), fmt.Sprintf("%.1e", r.WorstBound)
		}
		switch word {
		case "lacks":
			row[7] = "lacks: " + strings.Join(r.Lacks, ", ")
		case "skip":
			row[7] = r.Skipped
		case "pass":
			if r.Theirs > 0 {
				row[7] = fmt.Sprintf("%.1e from the file's values, of bf16 arithmetic", r.Theirs)
			}
		}
		t.Row(row...)
	}
	if shown > 0 {
		printText(w, t)
		fmt.Fprintln(w)
	}
}

// printLacks prints how many cases ask for what the library does not have, and for what. One that asks for several things counts for each.
func printLacks(w io.Writer, results []conformance.Result, color bool) {
	cases, whole, things := map[string]bool{}, 0, map[string]int{}
	for _, r := range results {
		if len(r.Lacks) == 0 || cases[r.Case] {
			continue
		}
		cases[r.Case] = true
		if r.Target == "" {
			whole++
		}
		for _, what := range r.Lacks {
			things[what]++
		}
	}
	if len(cases) == 0 {
		return
	}
	names := slices.SortedFunc(maps.Keys(things), func(a, b string) int { return cmp.Or(things[b]-things[a], strings.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d)", name, things[name])
	}
	fmt.Fprintf(w, "%s %-20s %s what vkattn does not have, and %d not run: %s\n", paintWord("lacks", color), "", asks(len(cases)), whole,
		strings.Join(names, ", "))
}

func asks(n int) string {
	if n == 1 {
		return "1 case asks for"
	}
	return fmt.Sprintf("%d cases ask for", n)
}
