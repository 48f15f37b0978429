package bench

import (
	"io"
	"os"
	"strings"
)

// traceStart is what every file of Trace.Write begins with: encoding/json writes keys in their order.
const traceStart = `{"displayTimeUnit":"ns","otherData":{"bytes":"as the kernel asks for`

// ReplaceableTrace says whether a file holds nothing, or a trace that Trace.Write wrote: what an earlier run of a sweep that is
// continued has left, of which the new trace has all rows.
func ReplaceableTrace(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start, err := io.ReadAll(io.LimitReader(f, int64(len(traceStart))))
	return err == nil && strings.HasPrefix(traceStart, string(start)) && (len(start) == 0 || len(start) == len(traceStart))
}
