package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// What is read of a file or of a peer. A row has some two thousand bytes, a header ten times as many at the most.
const (
	MostLine = 1 << 20 // bytes of a line
	mostFile = 1 << 28 // bytes of a file
)

// Lines reads a stream line by line and holds no more than one of them.
type Lines struct {
	name  string // for errors
	in    *bufio.Scanner
	at    int  // number of the line read last
	ended bool // it has an end; the last line of a file that was cut off has none
}

// NewLines reads at most most bytes of r, 0 for no bound.
func NewLines(name string, r io.Reader, most int64) *Lines {
	if most > 0 {
		r = &bounded{r: r, left: most, err: fmt.Errorf("it is longer than %d MiB, the most that is read of a result file", most>>20)}
	}
	l := &Lines{name: name, in: bufio.NewScanner(r)}
	l.in.Buffer(make([]byte, 0, 1<<16), MostLine)
	l.in.Split(func(data []byte, atEnd bool) (int, []byte, error) {
		n, text, err := bufio.ScanLines(data, atEnd)
		l.ended = n > 0 && data[n-1] == '\n'
		return n, text, err
	})
	return l
}

// Next gives a line without its end, until the next call; false at the end of the stream, or where err says what is wrong.
func (l *Lines) Next() ([]byte, bool) {
	if !l.in.Scan() {
		return nil, false
	}
	l.at++
	return l.in.Bytes(), true
}

// Err names the stream and the line where reading ended too early, nil where it did not.
func (l *Lines) Err() error {
	err := l.in.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("the line is longer than %d MiB: result files hold one JSON object a line", MostLine>>20)
	}
	return l.wrap(l.at+1, err)
}

// bad is an error about the line that next gave.
func (l *Lines) bad(err error) error { return l.wrap(l.at, err) }

func (l *Lines) wrap(line int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s:%d: %w", l.name, line, err)
}

// bounded fails with err where more than left bytes are read.
type bounded struct {
	r    io.Reader
	left int64
	err  error
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.err
	}
	return n, err
}

// Writer appends JSON lines, each in one write, so that an interrupted sweep
// keeps the rows it has.
type Writer struct{ w io.Writer }

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w} }

// Line writes a header, a row of any kind, a job or a picture.
func (w *Writer) Line(v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out) // ends the line itself
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.w.Write(out.Bytes())
	return err
}

// Peer notes header lines of a peer, each a JSON object.
func (w *Writer) Peer(lines []string) error {
	for _, text := range lines {
		if err := w.Line(map[string]json.RawMessage{"peer": json.RawMessage(text)}); err != nil {
			return err
		}
	}
	return nil
}

// object is a JSON object whose keys keep their order. The zero value is one without keys.
type object struct {
	text bytes.Buffer
	err  error
}

// add writes a key, unless its value is empty and the key is not sure to be there. A pointer stands for what it points to.
func (o *object) add(key string, value any, sure bool) {
	if o.err != nil || !sure && empty(value) {
		return
	}
	if o.text.Len() == 0 {
		o.text.WriteByte('{')
	} else {
		o.text.WriteByte(',')
	}
	for i, v := range []any{key, value} {
		if i > 0 {
			o.text.WriteByte(':')
		}
		enc := json.NewEncoder(&o.text)
		enc.SetEscapeHTML(false)
		if o.err = enc.Encode(v); o.err != nil {
			return
		}
		o.text.Truncate(o.text.Len() - 1) // the encoder ends lines
	}
}

func (o *object) end() ([]byte, error) {
	if o.text.Len() == 0 {
		o.text.WriteByte('{')
	}
	o.text.WriteByte('}')
	return o.text.Bytes(), o.err
}

// empty says whether a value is zero or has no elements. A pointer in a field is empty only where it is nil.
func empty(value any) bool {
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return !v.IsValid() || v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}
