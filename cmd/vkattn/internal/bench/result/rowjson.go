package result

import (
	"encoding/json"
	"fmt"

	"github.com/vkattn/vkattn/internal/plainjson"
)

// MarshalJSON writes the row with the keys of result files, which
// tools/torch_baseline.py shares, so that both programs read each other's files.
// Figures keep six significant digits.
func (r Row) MarshalJSON() ([]byte, error) {
	var o object
	for i := range fileColumns {
		c := &fileColumns[i]
		o.add(c.Key, c.stored(&r), c.sure)
	}
	return o.end()
}

// UnmarshalJSON reads a row of ours or of torch_baseline.py. Keys it does not
// know are left alone; a row without impl, dtype or sizes is refused.
func (r *Row) UnmarshalJSON(data []byte) error {
	var values map[string]json.RawMessage
	if err := plainjson.Unmarshal(data, &values); err != nil {
		return err
	}
	return r.take(values)
}

// take is UnmarshalJSON of an object that was taken apart.
func (r *Row) take(values map[string]json.RawMessage) error {
	var row Row
	for _, c := range fileColumns {
		value, ok := values[c.Key]
		if !ok {
			continue
		}
		if err := plainjson.Unmarshal(value, c.field(&row)); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
		if v, ok := c.field(&row).(*float64); ok && c.positive && *v < 0 {
			return fmt.Errorf("%s is %v: it must not be negative", c.Key, *v)
		}
	}
	if row.Impl == "" {
		return fmt.Errorf("the row has no impl")
	}
	for _, a := range Axes {
		if err := a.read(&row.Case); err != nil {
			return err
		}
	}
	for _, a := range Axes {
		a.derive(&row.Case)
	}
	row.Failure.known()
	row.BwdFailure.known()
	if err := row.Validate(); err != nil {
		return err
	}
	*r = row
	return nil
}
