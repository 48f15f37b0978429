package plainjson

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWords: errors say what the text has and should have, without Go's names.
func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "it breaks off",
		"{":                "it breaks off",
		`{"on": tru`:       "it breaks off",
		`{"name": "a`:      "it breaks off",
		"hello":            `its byte 1, "h", is not what JSON has there`,
		"\x00\x00":         `its byte 1, "\x00", is not what JSON has there`,
		`{"name" 3}`:       `its byte 9, "3", is not what JSON has there`,
		`{}x`:              `its byte 3, "x", is not what JSON has there`,
		`[1]`:              "it is a list, and must be an object",
		`{"name": 3}`:      "name: it is a number, and must be text",
		`{"n": 3.5}`:       "n: it is 3.5, and must be a whole number that is not too large",
		`{"n": 1e30}`:      "n: it is 1e30, and must be a whole number that is not too large",
		`{"x": "3"}`:       "x: it is text, and must be a number",
		`{"on": {}}`:       "on: it is an object, and must be true or false",
		`{"list": true}`:   "list: it is true or false, and must be a list",
		`{"when": "noon"}`: `"noon" is no time as in 2006-01-02T15:04:05Z`,
	} {
		var v struct {
			Name string  `json:"name"`
			N    int     `json:"n"`
			X    float64 `json:"x"`
			On   bool    `json:"on"`
			List []int   `json:"list"`
			When time.Time
		}
		require.EqualError(t, Unmarshal([]byte(text), &v), want, text)
	}
	var n int
	require.NoError(t, Unmarshal([]byte(" 7 "), &n))
	require.Equal(t, 7, n)
}
