package pipeline

import (
	"strings"
	"time"

	"github.com/vkattn/vkattn/internal/tally"
)

// account tells the summary of a test run, if this is one, that a pipeline was made and how long the driver took.
func (i *KernelInfo) account(took time.Duration, err error) {
	if err != nil || !tally.On() {
		return
	}
	l := tally.Line{Kind: tally.Pipeline, Name: i.Name, Seconds: took.Seconds()}
	if i.Constants != nil {
		l.Detail = strings.TrimSpace(i.Constants.String())
	}
	tally.Add(l)
}
