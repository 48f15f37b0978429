package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/input"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/render"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// viewFlags are the flags of view as given.
type viewFlags struct {
	device                             deviceChoice
	heads, keyHeads, seq, queries, dim length
	seed                               uint64
	dtype, size, offscreen, press      string
	frames                             int
	force                              bool
}

// length is a positive number, which may end in k or m as in lists of other commands.
type length int

func (l *length) String() string { return strconv.Itoa(int(*l)) }
func (l *length) Type() string   { return "length" }
func (l *length) Set(s string) error {
	v, err := result.ParseInts("", []string{s})
	if err == nil {
		*l = length(v[0])
	}
	return err
}

func newView() *cobra.Command {
	f := viewFlags{heads: 8, seq: 1024, dim: 64}
	cmd := &cobra.Command{
		Use:   "view [FILE]",
		Short: "Look at attention in a window, computed and drawn on one device",
		Long: `Open a window that shows the attention weights of all heads, and of one head large: what each query attends
to, computed, coloured and shown by one Vulkan device, without the matrix of weights and without a copy to the
host. Zoom in as far as single weights, change causal order, window, ALiBi slope, softcap, temperature and block
mask, and see what becomes of the weights and of the time. ? lists the keys.

FILE is safetensors: tensors whose names end in q and k and are alike before that, [heads, length, dimension] each,
one pair a layer, in fp32, fp16 or bf16, and int32 tensors whose names end in lists, of the keys that each query
lists, [key heads or 1, queries, entries]. Its metadata may hold the text that the queries and keys are of. Without
FILE queries and keys are random.

The window is part of programs built with the tag view, which 'make view' does. --offscreen needs neither that
nor a display: it draws one frame into a file, and prints times.`,
		Example: `  vkattn view
  go run ./examples/generate -heads heads.safetensors && vkattn view heads.safetensors
  vkattn view --seq 16k --heads 32 --offscreen frame.png`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return noArgs(cmd, args[1:])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runView(cmd, &f, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.Var(&f.heads, "heads", "random: query heads, a `number`")
	fl.Var(&f.keyHeads, "kv-heads", "random: key heads, a `number` that divides them (default: as many)")
	fl.Var(&f.seq, "seq", "random: keys, a `number` such as 4k")
	fl.Var(&f.queries, "q-len", "random: queries, a `number` (default: as many)")
	fl.Var(&f.dim, "head-dim", "random: head dimension, a `number`")
	fl.Uint64Var(&f.seed, "seed", 1, "random: the same seed gives the same numbers")
	fl.StringVar(&f.dtype, "dtype", "f16", "storage `type` of q and k: f32, f16 or bf16")
	fl.StringVar(&f.size, "size", "1280x800", "`width×height` of the window")
	fl.StringVar(&f.press, "press", "", "`keys` to press first, as l for linear colours")
	fl.StringVar(&f.offscreen, "offscreen", "", "no window: draw a frame into this PNG `file`, and print times")
	fl.IntVar(&f.frames, "frames", 10, "with --offscreen: frames to time, with everything computed in each")
	fl.BoolVar(&f.force, "force", false, "replace the --offscreen file")
	deviceFlags(cmd, &f.device)
	return cmd
}

func runView(cmd *cobra.Command, f *viewFlags, args []string) error {
	width, height, err := parseSize(f.size)
	if err != nil {
		return usage(cmd, err)
	}
	dtype, err := flash.ParseDType(f.dtype)
	if err != nil || dtype > flash.BF16 {
		return usage(cmd, fmt.Errorf("--dtype %q: it must be f32, f16 or bf16", f.dtype))
	}
	if f.frames < 1 {
		return usage(cmd, fmt.Errorf("--frames is %d: it must be at least 1", f.frames))
	}
	if f.offscreen == "" && (cmd.Flags().Changed("frames") || f.force) {
		return usage(cmd, errors.New("--frames and --force are about --offscreen, which was not given"))
	}
	if f.offscreen == "" {
		if err := canShow(); err != nil {
			return err
		}
	} else if _, err := os.Stat(f.offscreen); err == nil && !f.force {
		return fmt.Errorf("%s exists already: replace it with --force, or name another file", f.offscreen)
	}
	subject, err := f.subject(cmd, args)
	if err != nil {
		return err
	}
	state, err := view.New(subject, width, height)
	if err != nil {
		return usage(cmd, err)
	}
	if f.offscreen == "" {
		return showWindow(cmd.Context(), f, subject, width, height, render.Options{DType: dtype, Attach: f.device.options()})
	}
	if err := f.pressAll(state); err != nil {
		return usage(cmd, err)
	}
	return f.drawOffscreen(cmd.Context(), cmd.OutOrStdout(), state, render.Options{DType: dtype, Attach: f.device.options()})
}

// parseSize reads 1280x800.
func parseSize(text string) (width, height int, err error) {
	w, h, ok := strings.Cut(strings.ReplaceAll(text, "×", "x"), "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if !ok || errW != nil || errH != nil || min(width, height) < 16 || max(width, height) > 16384 {
		return 0, 0, fmt.Errorf("--size %q: it must be width x height in pixels, from 16 to 16384, as 1280x800", text)
	}
	return width, height, nil
}

// subject is the file's, or random.
func (f *viewFlags) subject(cmd *cobra.Command, args []string) (*view.Subject, error) {
	random := []string{"heads", "kv-heads", "seq", "q-len", "head-dim", "seed"}
	if len(args) == 1 {
		for _, name := range random {
			if cmd.Flags().Changed(name) {
				return nil, usage(cmd, fmt.Errorf("--%s is about random queries and keys, and %s was given", name, args[0]))
			}
		}
		return input.Read(args[0])
	}
	if f.keyHeads == 0 {
		f.keyHeads = f.heads
	}
	if f.queries == 0 {
		f.queries = f.seq
	}
	if f.heads%f.keyHeads != 0 {
		return nil, usage(cmd, fmt.Errorf("--kv-heads is %d: it must divide --heads, which is %d", f.keyHeads, f.heads))
	}
	s, err := input.Random(f.seed, int(f.heads), int(f.keyHeads), int(f.queries), int(f.seq), int(f.dim))
	if err != nil {
		return nil, usage(cmd, err)
	}
	return s, nil
}

// pressAll presses the keys of --press.
func (f *viewFlags) pressAll(s *view.State) error {
	for _, k := range f.press {
		if !s.Press(view.Key(k)) {
			return fmt.Errorf("--press %q: no key %c does anything; ? lists them in the window", f.press, k)
		}
	}
	s.Quit = false
	return nil
}

// physical finds the device that --device asks for among an instance's, as every other command does.
func (f *viewFlags) physical(all []*vk.PhysicalDevice) (*vk.PhysicalDevice, error) {
	dev, err := f.device.open()
	if err != nil {
		return nil, err
	}
	want := dev.Info().Facts
	if err := dev.Close(); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p *vk.PhysicalDevice) bool {
		return p.Facts().Name == want.Name && p.Facts().DeviceUUID == want.DeviceUUID
	})
	if i < 0 {
		return nil, fmt.Errorf("%w: %s is no longer there", flash.ErrNoDevice, want.Name)
	}
	return all[i], nil
}

// drawOffscreen draws a frame into a file, and times others.
func (f *viewFlags) drawOffscreen(ctx context.Context, out io.Writer, state *view.State, o render.Options) (err error) {
	instance, err := vk.NewInstance(vk.InstanceOptions{AppName: "vkattn view"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Close()) }()
	all, err := instance.PhysicalDevices()
	if err != nil {
		return err
	}
	physical, err := f.physical(all)
	if err != nil {
		return err
	}
	dev, err := physical.Open(vk.DeviceOptions{})
	if err != nil {
		return err
	}
	r, err := render.New(dev, state.Subject, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	off, err := render.NewOffscreen(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, off.Close()) }()

	if _, err := off.Draw(state); err != nil { // compiles what is to be timed
		return err
	}
	if note := r.Facts().Note; note != "" {
		return errors.New(note)
	}
	var attention, maps, drawn, host []float64
	state.Running = true
	for range f.frames {
		t, err := off.Draw(state)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
		attention, maps = append(attention, ms(t.Attention)), append(maps, ms(t.Maps))
		drawn, host = append(drawn, ms(t.Frame-t.Attention-t.Maps)), append(host, ms(t.Host))
	}
	state.Running = false
	picture, err := off.Picture(state)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		return err
	}
	if err := writeWhole(f.offscreen, f.force, file.Bytes()); err != nil {
		return err
	}
	l, w, facts := state.LayerShown(), state.Work(), r.Facts()
	fmt.Fprintf(out, "%s · %d heads, %d queries × %d keys, head dimension %d · %s\n", facts.Device, l.Heads, l.Queries, l.Keys, l.Dim,
		facts.Kernel)
	fmt.Fprintf(out, "%d × %d cells of each head and %d × %d of one, in %d × %d pixels: %s\n", w.Grid.Rows, w.Grid.Columns, w.Large.Rows,
		w.Large.Columns, state.Width, state.Height, f.offscreen)
	if facts.Frame > 0 {
		a := result.Median(attention)
		fmt.Fprintf(out, "attention %s ms (%s), maps %s ms, picture %s ms of the device\n", result.Digits(a), view.Rate(facts.FLOPs/a*1e3),
			result.Digits(result.Median(maps)), result.Digits(result.Median(drawn)))
	}
	fmt.Fprintf(out, "frame %s ms; medians of %s\n", result.Digits(result.Median(host)), count(f.frames, "frame"))
	return nil
}
