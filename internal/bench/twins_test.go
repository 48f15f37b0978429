package bench

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPyTorchHasTheSameCases: for every suite tools/torch_baseline.py has a case for each shape, with the same passes, so that
// rows of both programs are twins. Listing cases needs Python alone.
func TestPyTorchHasTheSameCases(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3:", err)
	}
	for _, s := range Suites() {
		t.Run(s.Name, func(t *testing.T) {
			jobs, err := s.Jobs(false, Grid{})
			require.NoError(t, err)
			want := map[Case]Passes{}
			for _, j := range jobs {
				shape := j.Case.Shape()
				if p, ok := want[shape]; ok {
					j.Passes = j.Passes.and(p)
				}
				want[shape] = j.Passes
			}
			cmd := exec.Command(python, "../../tools/torch_baseline.py", "--suite", s.Name, "--impl", "fa2", "--list")
			cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, stderr.String())
			got := map[Case]Passes{}
			for line := range bytes.Lines(out) {
				var row Row
				require.NoError(t, json.Unmarshal(line, &row))
				var q question
				require.NoError(t, json.Unmarshal(line, &q))
				p, err := ParsePasses(q.Passes)
				require.NoError(t, err)
				require.Equal(t, "fa2", row.Impl)
				require.NotContains(t, got, row.Shape(), "twice")
				got[row.Shape()] = p
			}
			require.Equal(t, want, got)
		})
	}
}
