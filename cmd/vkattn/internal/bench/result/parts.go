package result

// What rows of every kind are made of: those of attention on a device (Row) and over several (RingRow), of what moves rows beside it
// (rows.Result) and of what a program waits for (first.Step). A kind adds what it is about.

// Origin is who measured a row, and on what.
type Origin struct {
	Library string `json:"library,omitempty"` // "vkattn 0.1.0", "torch 2.11.0+cu130"
	Device  string `json:"device,omitempty"`
	Driver  string `json:"driver,omitempty"`
}

// Check is how far outputs were off a reference.
type Check struct {
	MaxErr  *float64 `json:"max_err,omitempty"`   // largest |x − reference|
	ErrMax  *float64 `json:"err_bound,omitempty"` // what MaxErr may be; nil: the rule is another one
	ErrRows int      `json:"err_rows,omitempty"`  // rows compared
}

// Failure is why a row has no figures; the zero value says that it has them.
type Failure struct {
	Error  string `json:"error,omitempty"`
	Reason Reason `json:"reason,omitempty"` // the kind of Error
}

// Reason is the kind of a failure.
type Reason string

const (
	ReasonMemory      Reason = "memory"      // does not fit the device
	ReasonLimit       Reason = "limit"       // over the time limit of a row
	ReasonUnsupported Reason = "unsupported" // no kernel of this device can
	ReasonFailed      Reason = "failed"      // anything else went wrong
	ReasonCheck       Reason = "check"       // the output is wrong
)

// Skipped says that there are no figures but nothing is wrong.
func (f Failure) Skipped() bool { return f.Error != "" && !f.Reason.fault() }

// Failed says that something is wrong.
func (f Failure) Failed() bool { return f.Error != "" && f.Reason.fault() }

// lasting says that measuring again would give the same.
func (f Failure) lasting() bool {
	return f.Error != "" && f.Reason != ReasonMemory && f.Reason != ReasonLimit
}

func (r Reason) fault() bool { return r == ReasonFailed || r == ReasonCheck }

// Word is the reason as it stands in place of a time.
func (r Reason) Word() string {
	switch r {
	case ReasonMemory:
		return "no memory"
	case ReasonLimit:
		return "skipped"
	case ReasonUnsupported:
		return "unsupported"
	case ReasonCheck:
		return "WRONG"
	}
	return "FAILED"
}

// known fills in the reason of a peer's row, which says in words only why it has no figures.
func (f *Failure) known() {
	if f.Error != "" && f.Reason == "" {
		f.Reason = ReasonFailed
	}
}
