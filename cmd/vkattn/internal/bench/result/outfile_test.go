package result

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCreateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	const a, b, c = `{"torch": "a"}` + "\n", `{"torch": "b"}` + "\n", `{"torch": "c"}` + "\n"
	write := func(mode CreateMode, text string) error {
		f, err := CreateFile(path, mode)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write([]byte(text))
		return err
	}
	holds := func(want string) {
		t.Helper()
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
	require.NoError(t, write(Append, a), "a file that is not there is made")
	require.ErrorContains(t, write(CreateNew, b), "exists already: add to it with --append")
	require.NoError(t, write(Append, b))
	holds(a + b)
	require.NoError(t, write(Force, c))
	holds(c)
	require.NoError(t, os.WriteFile(path, []byte("precious\n"), 0o644))
	require.ErrorContains(t, write(Append, a), path+":1: not a JSON object")
	holds("precious\n")
	require.Error(t, write(Append, ""))
}

// TestOneWriterAtATime: whoever has the file keeps others from it, whatever they mean to do, and loses nothing.
func TestOneWriterAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	first, err := CreateFile(path, CreateNew)
	require.NoError(t, err)
	line := []byte(`{"torch": "a"}` + "\n")
	_, err = first.Write(line)
	require.NoError(t, err)
	for _, mode := range []CreateMode{Append, Force} {
		_, err = CreateFile(path, mode)
		require.ErrorContains(t, err, path+" is being written by another process: wait until that ends, or name another file")
	}
	_, err = first.Write(line)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	second, err := CreateFile(path, Append)
	require.NoError(t, err)
	require.Len(t, second.Earlier.Other, 2)
	require.NoError(t, second.Close())
}

// TestEmptyFilesAreNotLeft: a file that was made and not written to is not in the way of the next call; what others made stays.
func TestEmptyFilesAreNotLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	for _, mode := range []CreateMode{CreateNew, Append, Force} {
		f, err := CreateFile(path, mode)
		require.NoError(t, err)
		require.FileExists(t, path)
		require.NoError(t, f.Close())
		require.NoFileExists(t, path)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.ErrorIs(t, f.Close(), os.ErrClosed)
		require.FileExists(t, path, "of another process")
		require.NoError(t, os.Remove(path))

		f, err = CreateFile(path, mode)
		require.NoError(t, err)
		require.NoError(t, NewWriter(f).Line(sampleRow()))
		require.NoError(t, f.Close())
		require.FileExists(t, path)
		require.NoError(t, os.Remove(path))
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := CreateFile(path, Append)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.FileExists(t, path, "it was there")
}

// sampleFile is the text of a file with a header and two rows.
func sampleFile(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	require.NoError(t, w.Line(Header{VKAttn: "test"}))
	require.NoError(t, w.Line(sampleRow()))
	require.NoError(t, w.Line(sampleRow()))
	return b.String()
}

// TestFileCutAtEveryLength: whatever a power cut leaves of a file, its whole lines are read, and lines that are added stand after
// those.
func TestFileCutAtEveryLength(t *testing.T) {
	text := sampleFile(t)
	path := filepath.Join(t.TempDir(), "out.jsonl")
	for _, tail := range []string{"", "\x00\x00\x00"} {
		for n := 0; n <= len(text); n++ {
			left := text[:n] + tail
			whole := strings.Count(text[:n], "\n")
			end := strings.LastIndex(text[:n], "\n") + 1
			if tail == "" && n < len(text) && text[n] == '\n' { // all of a line but its newline
				whole, end = whole+1, n
			}
			got, err := read("x", strings.NewReader(left))
			require.NoError(t, err, n)
			require.Equal(t, whole, len(got.Headers)+len(got.Rows), n)
			require.Equal(t, len(left)-end, got.Cut, n)

			if n%37 != 0 && n < len(text)-3 { // writing takes longer
				continue
			}
			require.NoError(t, os.WriteFile(path, []byte(left), 0o644))
			f, err := CreateFile(path, Append)
			require.NoError(t, err)
			require.Equal(t, len(left)-end, f.Earlier.Cut)
			require.NoError(t, NewWriter(f).Line(sampleRow()))
			require.NoError(t, f.Close())
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			lines := strings.SplitAfter(text, "\n")
			require.Equal(t, strings.Join(lines[:whole], "")+lines[1], string(data), n)
		}
	}
}

// TestDevicesAreNotFiles: a device can be written to, and is neither locked nor cut.
func TestDevicesAreNotFiles(t *testing.T) {
	if _, err := os.Stat("/dev/null"); err != nil {
		t.Skip(err)
	}
	for _, mode := range []CreateMode{Append, Force} {
		f, err := CreateFile("/dev/null", mode)
		require.NoError(t, err)
		require.NoError(t, NewWriter(f).Line(sampleRow()))
		require.NoError(t, f.Close())
	}
}

// TestPictureIsAdded: a picture is a line of its own whatever the file ends with, beside no other writer; and a line that no reader takes
// is not made.
func TestPictureIsAdded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	line, err := Picture{Title: "a", PNG: make([]byte, 1000)}.Line()
	require.NoError(t, err)
	text := strings.TrimSuffix(sampleFile(t), "\n")
	for _, tail := range []string{"", "\n", "\n{\"impl\": \"fla"} {
		require.NoError(t, os.WriteFile(path, []byte(text+tail), 0o644))
		f, err := AddTo(path)
		require.NoError(t, err)
		_, err = AddTo(path)
		require.ErrorContains(t, err, "is being written by another process")
		_, err = f.Write(line)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		got, err := ReadFile(path)
		require.NoError(t, err)
		require.Len(t, got.Rows, 2)
		require.Len(t, got.Maps, 1)
	}
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	_, err = AddTo(path)
	require.ErrorContains(t, err, "the file is empty")
	missing := path + ".none"
	_, err = AddTo(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoFileExists(t, missing)

	// Four characters stand for three bytes: the longest line there may be is read, and one that is longer is refused.
	frame, err := Picture{}.Line()
	require.NoError(t, err)
	room := (MostLine - len(frame) + len("null") - len(`""`)) / 4 * 3
	line, err = Picture{PNG: make([]byte, room)}.Line()
	require.NoError(t, err)
	got, err := Read("x", bytes.NewReader(line))
	require.NoError(t, err)
	require.Len(t, got.Maps, 1)
	_, err = Picture{PNG: make([]byte, room+3)}.Line()
	require.ErrorContains(t, err, "the picture makes a line of 1025 KiB, and one of a result file may have 1024: draw fewer heads")
}
