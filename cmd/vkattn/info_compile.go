package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/compiled"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/diskfile"
)

// compileFlags are those of info --compile.
type compileFlags struct {
	on, validation      bool
	suite, out, against string
}

const compileSuite = "compile"

func (f *compileFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.on, "compile", false, "compile kernels, run nothing, and print what the driver says of them")
	fl.StringVar(&f.suite, "suite", compileSuite, "with --compile, the `suite` of problems, of 'vkattn bench --help'")
	fl.StringVar(&f.out, "out", "", "with --compile, write the table to this `file` (default: standard output)")
	fl.StringVar(&f.against, "against", "", "with --compile, fail where more spills, or less runs at once, than in the table of this "+
		"`file`, where this driver made it, or a problem is refused that was not")
	fl.BoolVar(&f.validation, "validation", false, "with --compile, turn the validation layers on, and fail where they object")
}

// without is an error for flags that only --compile has.
func (f *compileFlags) without() error {
	if f.suite != compileSuite || f.out != "" || f.against != "" || f.validation {
		return errors.New("--suite, --out, --against and --validation go with --compile")
	}
	return nil
}

func (f *compileFlags) run(cmd *cobra.Command, device *deviceChoice) error {
	suite, err := result.FindSuite(f.suite)
	if err != nil {
		return usage(cmd, err)
	}
	jobs, err := suite.Jobs(false, result.Grid{})
	if err != nil {
		return err
	}
	var before []compiled.Pass
	var made string // what it says of what made it
	if f.against != "" {
		if before, made, err = readTable(f.against); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var objections []string
	options := []flash.DeviceOption{flash.CompileOnly()}
	if f.validation {
		options = append(options, flash.WithValidation(func(m flash.Message) {
			mu.Lock()
			defer mu.Unlock()
			objections = append(objections, m.String())
		}))
	}
	dev, err := device.open(options...)
	if err != nil {
		return err
	}
	defer closeDevice(cmd.ErrOrStderr(), dev)
	again := func() (*flash.Device, error) { return device.open(options...) }
	passes, err := compiled.Compile(cmd.Context(), dev, again, jobs, func(i, of int, what string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d: %s\n", i+1, of, what)
	})
	if err != nil {
		return err
	}
	info := dev.Info()
	var table strings.Builder
	fmt.Fprintf(&table, "# vkattn info --compile --suite %s: %s, %s; tiles %s\n", f.suite, info.Name, info.Driver,
		strings.Join(info.Tiles, ", then "))
	if err := compiled.Write(&table, passes); err != nil {
		return err
	}
	if f.out == "" {
		_, err = io.WriteString(cmd.OutOrStdout(), table.String())
	} else {
		err = diskfile.Replace(f.out, []byte(table.String()))
	}
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(objections) > 0 {
		return fmt.Errorf("the validation layers object, %d times, first: %s", len(objections), objections[0])
	}
	if f.against == "" {
		return nil
	}
	same := !strings.Contains(made, "; tiles ") || strings.Contains(made, ", "+info.Driver+"; tiles ")
	worse, compared := compiled.Compare(before, passes, same)
	fmt.Fprintf(cmd.ErrOrStderr(), "%d passes compared with %s\n", compared, f.against)
	if !same {
		fmt.Fprintf(cmd.ErrOrStderr(), "another compiler than %s made that table: only what is refused is compared\n", info.Driver)
	}
	if compared == 0 {
		return fmt.Errorf("%s has none of the suite's problems", f.against)
	}
	if len(worse) > 0 {
		return fmt.Errorf("worse than %s:\n  %s", f.against, strings.Join(worse, "\n  "))
	}
	return nil
}

func readTable(path string) (passes []compiled.Pass, made string, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	if passes, made, err = compiled.Read(in); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return passes, made, nil
}
