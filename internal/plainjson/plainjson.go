// Package plainjson says what is wrong with JSON in words that are about the text, where encoding/json speaks of Go's types.
package plainjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Unmarshal is json.Unmarshal with such errors.
func Unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var moment *time.ParseError
	switch {
	case errors.As(err, &syntax) && endsEarly(syntax, data):
		return errors.New("it breaks off")
	case errors.As(err, &syntax):
		at := min(max(int(syntax.Offset), 1), len(data))
		return fmt.Errorf("its byte %d, %q, is not what JSON has there", at, data[at-1:at])
	case errors.As(err, &kind):
		text := fmt.Sprintf("it is %s, and must be %s", found(kind.Value), wanted(kind.Type))
		if kind.Field != "" {
			text = kind.Field + ": " + text
		}
		return errors.New(text)
	case errors.As(err, &moment):
		return fmt.Errorf("%q is no time as in 2006-01-02T15:04:05Z", moment.Value)
	}
	return err
}

// Twice gives a name that an object of the text has twice, the path of objects to it before it, "" where there is none. Unmarshal takes the
// last such value, and does not say so. The text is valid JSON.
func Twice(data []byte) string {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	name, _ := twice(d, "")
	return name
}

func twice(d *json.Decoder, path string) (string, error) {
	token, err := d.Token()
	if err != nil {
		return "", err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return "", nil
	}
	seen := map[string]bool{}
	for d.More() {
		at := path
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return "", err
			}
			key, _ := name.(string)
			if at = strings.TrimPrefix(path+"."+key, "."); seen[key] {
				return at, nil
			}
			seen[key] = true
		}
		if name, err := twice(d, at); name != "" || err != nil {
			return name, err
		}
	}
	_, err = d.Token() // the end
	return "", err
}

// endsEarly says whether the text is a beginning of JSON. Of a literal cut short, encoding/json says that a blank follows it.
func endsEarly(err *json.SyntaxError, data []byte) bool {
	return err.Error() == "unexpected end of JSON input" ||
		int(err.Offset) == len(data) && strings.HasPrefix(err.Error(), "invalid character ' '") && data[len(data)-1] != ' '
}

// found is what encoding/json calls a value: "number 3.5", "array".
func found(value string) string {
	if _, number, ok := strings.Cut(value, "number "); ok {
		return number
	}
	switch value {
	case "number":
		return "a number"
	case "string":
		return "text"
	case "array":
		return "a list"
	case "object":
		return "an object"
	}
	return "true or false"
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number that is not too large"
}
