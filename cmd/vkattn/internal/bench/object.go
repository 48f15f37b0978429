package bench

import (
	"bytes"
	"encoding/json"
	"reflect"
)

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
