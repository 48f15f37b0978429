// Command testview shows what go test -json tells: a line of progress on a terminal, what failed in full, a package's closing line as go
// test prints it, and in the end what ran of each kernel family and why the rest did not. tools/test.sh runs it.
//
//	go test -json ./... | testview [-v] [-tally FILE]
//
// Its exit status says only whether it could read: that of go test says whether the tests passed.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/term"
)

func main() {
	verbose := flag.Bool("v", false, "print the output of tests that pass, too")
	tally := flag.String("tally", "", "the file that VKATTN_TEST_TALLY names for the tests: what they compiled, and what was passed over")
	flag.Parse()
	signal.Ignore(os.Interrupt) // go test gets it, and what had run by then is summed up
	p := noProgress
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) && !*verbose {
		p = newProgress(os.Stdout, func() int {
			width, _, err := term.GetSize(fd)
			if err != nil || width <= 0 { // some terminals do not know
				return 80
			}
			return width
		})
	}
	if err := show(os.Stdin, os.Stdout, *verbose, *tally, p, time.Now); err != nil {
		fmt.Fprintln(os.Stderr, "testview:", err)
		os.Exit(1)
	}
}

// show reads events to the end.
func show(in io.Reader, out io.Writer, verbose bool, tally string, p *progress, now func() time.Time) error {
	v := newView(out, verbose, p, now)
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			v.line(line)
		}
		if err == io.EOF {
			v.finish(tally)
			return nil
		}
		if err != nil {
			return err
		}
	}
}
