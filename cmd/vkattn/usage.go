package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a mistake on the command line.
type usageError struct {
	err     error
	command string // whose --help to read
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usage is a mistake on the command line of cmd.
func usage(cmd *cobra.Command, err error) error { return &usageError{err, cmd.CommandPath()} }

// packageNames stand before what packages of this program say, the innermost last, and tell its user nothing; nor do the operations that
// every command begins with.
var packageNames = regexp.MustCompile(`(^|: )(?:(?:flash|vk|pipeline|conformance|safetensors|onnx|tiles): )+(?:(?:Open|Devices): )?`)

// plain is text of the packages below without their names.
func plain(text string) string { return packageNames.ReplaceAllString(text, "$1") }

// What a flag's value must be, by the name that its type has in pflag.
var flagRules = map[string]string{
	"int":      "a whole number",
	"uint64":   "a whole number from 0 to 2⁶⁴−1",
	"float64":  "a number",
	"duration": "a time with its unit, such as 30s or 2m",
	"bool":     "true or false",
	"length":   "a whole number from 1 to 2³⁰−1, such as 512 or 4k",
}

// list is a flag of several values, none of which may be empty: beside others, it would be taken for none.
type list struct {
	pflag.Value
	pflag.SliceValue
}

var errEmpty = errors.New("empty")

func (l list) Set(text string) error {
	if text == "" {
		return errEmpty
	}
	return l.Value.Set(text)
}

// refuseEmptyItems makes the list flags of a command such ones.
func refuseEmptyItems(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if all, ok := f.Value.(pflag.SliceValue); ok {
			if f.Value = (list{f.Value, all}); len(all.GetSlice()) == 0 {
				f.DefValue = "" // help says nothing of it
			}
		}
	})
}

// flagError says what is wrong with a flag in words that are about the flag, not about how it was read.
func flagError(cmd *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	switch {
	case errors.Is(err, errEmpty) && errors.As(err, &bad):
		err = isEmpty(bad.GetFlag())
	case errors.As(err, &bad):
		if rule, ok := flagRules[bad.GetFlag().Value.Type()]; ok {
			err = fmt.Errorf("--%s %q: it must be %s", bad.GetFlag().Name, bad.GetValue(), rule)
		}
	}
	return usage(cmd, err)
}

// refuseEmpty refuses flags that were given nothing, which their commands would take for flags that were not given: a script's
// variable that is not set must not start the default sweep.
func refuseEmpty(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		text := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			text = strings.Join(list.GetSlice(), "")
		}
		if err == nil && text == "" {
			err = usage(cmd, isEmpty(f))
		}
	})
	return err
}

func isEmpty(f *pflag.Flag) error {
	return fmt.Errorf("--%s is empty: leave it out, or give it a value", f.Name)
}
