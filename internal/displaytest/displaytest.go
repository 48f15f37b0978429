// Package displaytest gives tests a display of their own, Xvfb's, whose pixels they can read.
//
// A machine without Xvfb skips the test; VKATTN_REQUIRE_DISPLAY=1 turns such skips into failures. tools/setup.sh --display installs what is
// needed.
package displaytest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Display is a running Xvfb.
type Display struct {
	Width, Height int
	t             testing.TB
	frame         string // file that the server keeps its pixels in
}

// Start starts a display for the length of the test, and sets DISPLAY.
func Start(t testing.TB, width, height int) *Display {
	t.Helper()
	server, err := exec.LookPath("Xvfb")
	if err != nil {
		Missing(t, "no Xvfb: "+err.Error())
	}
	dir := t.TempDir()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	// The server picks a number that is free, and writes it when it is ready.
	cmd := exec.Command(server, "-displayfd", "3", "-screen", "0", fmt.Sprintf("%dx%dx24", width, height), "-fbdir", dir,
		"-nolisten", "tcp")
	cmd.ExtraFiles = []*os.File{write}
	err = cmd.Start()
	write.Close()
	if err != nil {
		Missing(t, "Xvfb does not start: "+err.Error())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	number, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		Missing(t, "Xvfb does not say which display it is: "+err.Error())
	}
	t.Setenv("DISPLAY", ":"+strings.TrimSpace(number))
	return &Display{Width: width, Height: height, t: t, frame: filepath.Join(dir, "Xvfb_screen0")}
}

// Missing skips the test, or fails it where a display is required.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("VKATTN_REQUIRE_DISPLAY") == "1" {
		t.Fatalf("VKATTN_REQUIRE_DISPLAY=1: %s", reason)
	}
	t.Skip(reason)
}

// Pixels is what the display shows now: 0xRRGGBB, row by row.
func (d *Display) Pixels() []uint32 {
	d.t.Helper()
	// An X window dump (XWDFile.h): a header of 32-bit numbers, most significant byte first, a table of colours, and rows of pixels.
	const headerSize, width, height, rowBytes, colors, colorSize = 0, 4, 5, 12, 19, 12
	data, err := os.ReadFile(d.frame)
	if err != nil {
		d.t.Fatal(err)
	}
	field := func(i int) int { return int(binary.BigEndian.Uint32(data[4*i:])) }
	if len(data) < 100 || field(width) != d.Width || field(height) != d.Height {
		d.t.Fatalf("%s is no dump of %d × %d pixels", d.frame, d.Width, d.Height)
	}
	at := field(headerSize) + field(colors)*colorSize
	pixels := make([]uint32, 0, d.Width*d.Height)
	for y := range d.Height {
		for x := range d.Width {
			pixels = append(pixels, binary.LittleEndian.Uint32(data[at+y*field(rowBytes)+4*x:])&0xffffff)
		}
	}
	return pixels
}

// Do has xdotool move the pointer and press keys and buttons, as a user would: its arguments are those of the command.
func (d *Display) Do(args ...string) {
	d.t.Helper()
	tool, err := exec.LookPath("xdotool")
	if err != nil {
		Missing(d.t, "no xdotool: "+err.Error())
	}
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("xdotool %v: %v: %s", args, err, out)
	}
}

// Manage starts a window manager, twm, for the length of the test. It adds nothing to windows, and lets them lie where they are.
func (d *Display) Manage() {
	d.t.Helper()
	manager, err := exec.LookPath("twm")
	if err != nil {
		Missing(d.t, "no window manager: "+err.Error())
	}
	rules := filepath.Join(d.t.TempDir(), "twmrc")
	text := "NoTitle\nBorderWidth 0\nRandomPlacement\n"
	for _, font := range []string{"Title", "Menu", "Icon", "Resize", "IconManager"} {
		text += font + "Font \"fixed\"\n" // the one that is part of the server
	}
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.Command(manager, "-f", rules)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if err := cmd.Start(); err != nil {
		Missing(d.t, "twm does not start: "+err.Error())
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
