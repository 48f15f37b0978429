package rows

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
)

// Result is a case with its figures, or with the reason why there are none.
type Result struct {
	Library string `json:"library"`
	Device  string `json:"device"`
	Driver  string `json:"driver"`
	Case

	Ms    Figure `json:"ms,omitempty"` // median device time of a run
	P20   Figure `json:"p20_ms,omitempty"`
	P80   Figure `json:"p80_ms,omitempty"`
	N     int    `json:"n,omitempty"`           // runs
	Moved Figure `json:"least_bytes,omitempty"` // Case.Bytes
	GBps  Figure `json:"GBps,omitempty"`        // 10⁹ of them a second
	Copy  Figure `json:"pct_copy,omitempty"`    // of the bandwidth of copying that was measured in the same run, in percent

	MaxErr  Figure `json:"max_err"`            // largest |x − model| over all elements written
	Checked int    `json:"err_rows,omitempty"` // rows compared with the model; all others of a cache are compared with what they were

	Note   string       `json:"note,omitempty"`
	Error  string       `json:"error,omitempty"`
	Reason bench.Reason `json:"reason,omitempty"`
}

// Failed says that the result reports a fault, not what a device cannot do.
func (r *Result) Failed() bool {
	return r.Reason == bench.ReasonFailed || r.Reason == bench.ReasonCheck
}

// Figure is a number that files keep six digits of.
type Figure float64

// MarshalJSON writes the six digits.
func (f Figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', 6, 64), 64)
	if err != nil {
		return nil, err
	}
	return json.Marshal(short)
}

// WriteLine writes a header or a result as a line of JSON, in one piece.
func WriteLine(w io.Writer, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out) // ends the line itself
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}
