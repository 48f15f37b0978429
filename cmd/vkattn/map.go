package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/heads"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/picture"
	"github.com/vkattn/vkattn/flash"
)

// mapFlags are the flags of map as given.
type mapFlags struct {
	device                         deviceChoice
	names                          heads.Names
	random                         bool
	heads, seq, dim                int
	length                         string // seq as given
	causal                         string
	window                         []int
	which                          []string
	batch, cells                   int
	queries, keys, pool            string
	linear                         bool
	decades                        float64
	colors, out, appendTo, caption string
	force                          bool
}

// pools are the names of flash.Pool on the command line.
var pools = map[string]flash.Pool{"mean": flash.PoolMean, "sum": flash.PoolSum, "max": flash.PoolMax}

func newMap() *cobra.Command {
	var f mapFlags
	var colors []string
	for _, c := range picture.Scales {
		colors = append(colors, c.Name)
	}
	cmd := &cobra.Command{
		Use:   "map [FILE…]",
		Short: "Draw what attends to what: attention weights of heads as a picture",
		Long: `Draw attention weights, exp(s − lse), as a grid of heads: queries down, keys across. The device makes weights
again from q, k and the log-sum-exp of a forward pass and pools them into as many cells as the picture has; no
matrix of queries × keys is stored, whatever their number. Cells that are no numbers are striped, and counted.

A FILE is safetensors with q and k of a model, [batch, heads, tokens, dim] or the last two or three of these, in
F32, F16 or BF16; grouped keys are fine. Its metadata may have "causal" (none, bottom-right, top-left), "window"
(left,right), "scale" and "title"; vkattn's test vectors are such files. 'go run ./examples/train -heads FILE'
writes the heads of a transformer that it has trained on its text. Heads of several files stand side by side.`,
		Example: `  vkattn map heads.safetensors --out map.png
  vkattn map heads.safetensors --head 0-3 --queries 0:128 --keys 0:128 --out close.svg
  vkattn map model.safetensors --q layer0.q --k layer0.k --linear --out layer0.png
  vkattn map --random --seq 16k --causal=false --window 256,256 --out window.png`,
		RunE: func(cmd *cobra.Command, args []string) error { return runMap(cmd, &f, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.out, "out", "", "picture to write: a `file` that ends in .png or .svg")
	fl.BoolVar(&f.force, "force", false, "replace the --out file")
	fl.StringVar(&f.names.Q, "q", "q", "`name` of the tensor of queries in each FILE")
	fl.StringVar(&f.names.K, "k", "k", "`name` of the tensor of keys")
	fl.StringVar(&f.names.Lists, "lists", "", "`name` of a tensor of lists, I32 [heads or 1, queries, entries]: weights of the keys that "+
		"each query lists")
	fl.BoolVar(&f.random, "random", false, "random heads in place of a FILE, of the sizes that follow")
	fl.IntVar(&f.heads, "heads", 4, "`number` of random heads")
	fl.StringVar(&f.length, "seq", "1k", "`number` of their tokens")
	fl.IntVar(&f.dim, "head-dim", 64, "`number` of columns of q and k")
	fl.StringVar(&f.causal, "causal", "", "true or false: a query sees no key after it (default: what the FILE says, else true)")
	fl.Lookup("causal").NoOptDefVal = "true"
	fl.IntSliceVar(&f.window, "window", nil, "keys before and after its own that a query sees: `left,right`, -1 for all (default: what "+
		"the FILE says)")
	fl.StringSliceVar(&f.which, "head", nil, "`list` of heads to draw: 0,3-5 (default all, 64 at most)")
	fl.IntVar(&f.batch, "batch", 0, "batch entry to draw")
	fl.StringVar(&f.queries, "queries", "", "`first:end` of queries to draw, the end not included (default all)")
	fl.StringVar(&f.keys, "keys", "", "`first:end` of keys (default all)")
	fl.IntVar(&f.cells, "cells", 256, "most cells of a head, down and across")
	fl.StringVar(&f.pool, "pool", "mean", "what a cell is of its pairs' weights: mean, sum or max")
	fl.BoolVar(&f.linear, "linear", false, "linear colours, from 0 to the largest cell; else logarithmic")
	fl.Float64Var(&f.decades, "decades", 4, "powers of ten that logarithmic colours span below the largest cell")
	fl.StringVar(&f.colors, "colors", colors[0], "colours, right for colour-blind eyes: "+strings.Join(colors, ", "))
	fl.StringVar(&f.caption, "title", "", "`text` above the picture")
	fl.StringVar(&f.appendTo, "append", "", "result `file` of bench to add the picture to, for 'vkattn report' to show")
	deviceFlags(cmd, &f.device)
	return cmd
}

func runMap(cmd *cobra.Command, f *mapFlags, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return err
	}
	all, err := f.read(args)
	if err != nil {
		return err
	}
	var results *result.OutFile // nil: none
	if f.appendTo != "" {
		if results, err = result.AddTo(f.appendTo); err != nil {
			return err
		}
		defer results.Close()
		if results.Earlier != nil && results.Earlier.Cut > 0 {
			sayRemoved(cmd.ErrOrStderr(), f.appendTo)
		}
	}
	dev, err := f.device.open()
	if err != nil {
		return err
	}
	defer closeDevice(cmd.ErrOrStderr(), dev)
	g, err := f.grid(cmd.Context(), dev, all, args)
	if err != nil {
		return err
	}
	draw := g.PNG
	if strings.EqualFold(filepath.Ext(f.out), ".svg") {
		draw = g.SVG
	}
	data, err := draw()
	if err != nil {
		return err
	}
	var line []byte
	if results != nil { // what cannot be added is refused before the picture is written, and in the way of the next call
		if line, err = pictureLine(g); err != nil {
			return fmt.Errorf("--append %s: %w", f.appendTo, err)
		}
	}
	if err := f.write(cmd.OutOrStdout(), data, g); err != nil || results == nil {
		return err
	}
	if _, err := results.Write(line); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "added to %s\n", f.appendTo)
	return err
}

// pictureLine is the line of a result file that a picture makes.
func pictureLine(g *picture.Grid) ([]byte, error) {
	png, err := g.PNG()
	if err != nil {
		return nil, err
	}
	return result.Picture{Title: g.Title, Caption: g.Caption, PNG: png}.Line()
}

// check refuses what cannot be before anything is read or measured.
func (f *mapFlags) check(cmd *cobra.Command, args []string) error {
	mistake := func(format string, a ...any) error { return usage(cmd, fmt.Errorf(format, a...)) }
	_, pooled := pools[f.pool]
	switch ext := strings.ToLower(filepath.Ext(f.out)); {
	case len(args) == 0 && !f.random:
		return mistake("no FILE is given, and no --random")
	case f.names.Lists != "" && f.random:
		return mistake("--lists %s: random heads have none", f.names.Lists)
	case len(args) > 0 && f.random:
		return mistake("--random stands in the place of a FILE, and there is one")
	case f.out == "":
		return mistake("--out is missing: it must name the picture to write")
	case ext != ".png" && ext != ".svg":
		return mistake("--out %s: it must end in .png or .svg", f.out)
	case !pooled:
		return mistake("--pool %q: it must be mean, sum or max", f.pool)
	case picture.ColorsNamed(f.colors) == nil:
		return mistake("--colors %q: there are none of that name", f.colors)
	case f.cells < 1 || f.cells > 4096:
		return mistake("--cells %d: it must be from 1 to 4096", f.cells)
	case !(f.decades > 0 && f.decades <= 30):
		return mistake("--decades %g: it must be above 0, and 30 at most", f.decades)
	case f.window != nil && len(f.window) != 2:
		return mistake("--window must be two numbers, left,right")
	case f.causal != "" && f.causal != "true" && f.causal != "false":
		return mistake("--causal %q: it must be true or false", f.causal)
	case f.batch < 0:
		return mistake("--batch %d: it must be 0 or more", f.batch)
	}
	seq, err := result.ParseInts("--seq", []string{f.length})
	if err != nil {
		return usage(cmd, err)
	}
	f.seq = seq[0]
	for name, n := range map[string]int{"heads": f.heads, "seq": f.seq, "head-dim": f.dim} {
		if n < 1 {
			return mistake("--%s %d: it must be at least 1", name, n)
		}
		if !f.random && cmd.Flags().Changed(name) {
			return mistake("--%s is of --random heads: a FILE has sizes of its own", name)
		}
	}
	for _, span := range [][2]string{{"queries", f.queries}, {"keys", f.keys}} {
		if _, err := parseSpan(span[1]); err != nil {
			return mistake("--%s %w", span[0], err)
		}
	}
	if _, err := os.Stat(f.out); err == nil && !f.force {
		return fmt.Errorf("%s exists already: replace it with --force, or name another file", f.out)
	}
	return nil
}

// parseSpan reads first:end; "" is everything.
func parseSpan(text string) (r flash.Range, err error) {
	if text == "" {
		return r, nil
	}
	first, end, ok := strings.Cut(text, ":")
	if ok {
		if r.Begin, err = strconv.Atoi(first); err == nil {
			r.End, err = strconv.Atoi(end)
		}
	}
	if !ok || err != nil || r.Begin < 0 || r.End <= r.Begin {
		return r, fmt.Errorf("%q: it must be first:end, the end not included, as 0:128", text)
	}
	return r, nil
}

// chosen are the heads of a list, of those there are.
func (f *mapFlags) chosen(most int) (out []int, err error) {
	if len(f.which) == 0 {
		for i := range min(most, 64) {
			out = append(out, i)
		}
		return out, nil
	}
	for _, item := range f.which {
		first, last, several := strings.Cut(item, "-")
		a, err := strconv.Atoi(first)
		b := a
		if err == nil && several {
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 0 || b < a || b >= most {
			return nil, fmt.Errorf("--head %s: there are heads 0 to %d", item, most-1)
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out, nil
}

// read gives the heads of all files, with the masks that flags ask for.
func (f *mapFlags) read(args []string) (all []*heads.Heads, err error) {
	if f.random {
		h, err := heads.Random(flash.Problem{Batch: 1, Heads: f.heads, QueryLen: f.seq, HeadDim: f.dim, DType: flash.F16,
			Causal: flash.CausalBottomRight}, 1)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	for _, path := range args {
		h, err := heads.Read(path, f.names)
		if err != nil {
			return nil, err
		}
		if !h.Masked {
			h.Problem.Causal = flash.CausalBottomRight
		}
		all = append(all, h)
	}
	for _, h := range all {
		switch f.causal {
		case "false":
			h.Problem.Causal = flash.CausalNone
		case "true":
			if h.Problem.Causal == flash.CausalNone {
				h.Problem.Causal = flash.CausalBottomRight
			}
		}
		if f.window != nil {
			h.Problem.Window = flash.SlidingWindow(f.window[0], f.window[1])
		}
		if h.Problem, err = h.Problem.Normalize(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// grid makes the maps and lays them out.
func (f *mapFlags) grid(ctx context.Context, dev *flash.Device, all []*heads.Heads, args []string) (*picture.Grid, error) {
	g := &picture.Grid{Colors: picture.ColorsNamed(f.colors), Unit: f.pool + " weight of a cell"}
	queries, _ := parseSpan(f.queries)
	keys, _ := parseSpan(f.keys)
	largest := 0.0
	for i, h := range all {
		p := h.Problem
		if i > 0 && (p.QueryLen != all[0].Problem.QueryLen || p.KeyLen != all[0].Problem.KeyLen) {
			return nil, fmt.Errorf("%s has %d queries and %d keys, %s %d and %d: a picture has axes for one number of each", args[0],
				all[0].Problem.QueryLen,
				all[0].Problem.KeyLen, args[i], p.QueryLen, p.KeyLen)
		}
		for _, span := range []struct {
			name string
			of   *flash.Range
			most int
		}{{"queries", &queries, p.QueryLen}, {"keys", &keys, p.KeyLen}} {
			if *span.of == (flash.Range{}) {
				span.of.End = span.most
			}
			if span.of.End > span.most {
				return nil, fmt.Errorf("--%s %d:%d: there are %d", span.name, span.of.Begin, span.of.End, span.most)
			}
		}
		if f.batch >= p.Batch {
			return nil, fmt.Errorf("--batch %d: the last entry is %d", f.batch, p.Batch-1)
		}
		which, err := f.chosen(p.Heads)
		if err != nil {
			return nil, err
		}
		first, end := slices.Min(which), slices.Max(which)+1
		m := flash.Map{Batches: flash.Range{Begin: f.batch, End: f.batch + 1}, Heads: flash.Range{Begin: first, End: end}, Queries: queries,
			Keys: keys, Pool: pools[f.pool]}
		made, err := h.Map(ctx, dev, m, f.cells, f.cells)
		if err != nil {
			return nil, err
		}
		for _, n := range which {
			title := fmt.Sprintf("head %d", n)
			if len(all) > 1 {
				title = cmp.Or(h.Title, strings.TrimSuffix(filepath.Base(args[i]), filepath.Ext(args[i]))) + ", " + title
			}
			cells := made.Cells[n-first]
			for _, x := range cells {
				if y := float64(x); y > largest && !math.IsInf(y, 0) { // false of NaN
					largest = y
				}
			}
			g.Panels = append(g.Panels, picture.Panel{Title: title, Rows: made.Rows, Columns: made.Columns, Cells: cells})
		}
		line := fmt.Sprintf("%v: %d × %d cells", p, made.Rows, made.Columns)
		if h.Lists != nil {
			line += fmt.Sprintf(", of lists of %s", count(h.Lists.Longest, "key"))
		}
		if made.Time > 0 {
			line += fmt.Sprintf(", %s ms for %s", result.Digits(made.Time.Seconds()*1e3), count(end-first, "head"))
		}
		g.Caption = append(g.Caption, line)
		if i == len(all)-1 {
			g.Caption = append(g.Caption, fmt.Sprintf("%s on %s, vkattn %s", made.Kernel, dev.Info().Name, version()))
		}
	}
	g.Queries, g.Keys = [2]int{queries.Begin, queries.End}, [2]int{keys.Begin, keys.End}
	g.Title = f.caption
	if g.Title == "" {
		g.Title = "Attention weights"
		if len(all) == 1 && all[0].Title != "" {
			g.Title += ": " + all[0].Title
		}
	}
	if n, of := g.NoNumbers(); n > 0 {
		const why = "there is NaN or an infinity in q or k, or scores overflow"
		g.Caption = append(g.Caption, fmt.Sprintf("%d of %s are no numbers (striped): %s", n, count(of, "cell"), why))
	}
	if largest == 0 {
		largest = 1 // nothing is seen
	}
	g.Range = picture.Range{High: largest}
	if !f.linear {
		g.Range = picture.Decades(largest, f.decades)
	}
	return g, nil
}

// write writes the picture, whole or not at all.
func (f *mapFlags) write(w io.Writer, data []byte, g *picture.Grid) error {
	if err := writeWhole(f.out, f.force, data); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s\n%s\n", f.out, count(len(g.Panels), "head"), strings.Join(g.Caption, "\n"))
	return err
}
