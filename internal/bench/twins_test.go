package bench

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// torchList runs tools/torch_baseline.py --list on a list of cases. Listing needs Python alone.
func torchList(t *testing.T, cases []byte, args ...string) (out []byte, complaint string, err error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3:", err)
	}
	cmd := exec.Command(python, append([]string{"../../tools/torch_baseline.py", "--list"}, args...)...)
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(cases), &stderr
	out, err = cmd.Output()
	return out, stderr.String(), err
}

// jobOf reads a line of a list.
func jobOf(t *testing.T, line []byte) Job {
	t.Helper()
	var row Row
	require.NoError(t, json.Unmarshal(line, &row))
	var q struct{ Passes []string }
	require.NoError(t, json.Unmarshal(line, &q))
	require.NotEmpty(t, q.Passes)
	p, err := ParsePasses(q.Passes)
	require.NoError(t, err)
	return Job{row.Case, p}
}

// TestPyTorchMeasuresTheListedCases: of the list of every suite tools/torch_baseline.py takes each shape once, with the passes of all
// its cases, so that rows of both programs are twins. The list itself reads back as the jobs.
func TestPyTorchMeasuresTheListedCases(t *testing.T) {
	for _, s := range Suites() {
		t.Run(s.Name, func(t *testing.T) {
			jobs, err := s.Jobs(false, Grid{})
			require.NoError(t, err)
			var list bytes.Buffer
			w := NewWriter(&list)
			want := map[Case]Passes{}
			for _, j := range jobs {
				require.NoError(t, w.Job(j))
				shape := j.Case.Shape()
				if p, ok := want[shape]; ok {
					j.Passes = j.Passes.and(p)
				}
				want[shape] = j.Passes
			}
			var read []Job
			for line := range bytes.Lines(list.Bytes()) {
				read = append(read, jobOf(t, line))
			}
			require.Equal(t, jobs, read)

			out, complaint, err := torchList(t, list.Bytes(), "--impl", "fa2,cudnn")
			require.NoError(t, err, complaint)
			got := map[Case]Passes{}
			n := 0
			for line := range bytes.Lines(out) {
				j := jobOf(t, line)
				require.Equal(t, []string{"fa2", "cudnn"}[n%2], j.Case.Impl)
				n++
				got[j.Case.Shape()] = j.Passes
			}
			require.Equal(t, want, got)
			require.Equal(t, 2*len(want), n, "each once")
		})
	}
}

// TestPyTorchRefusesWhatItDoesNotKnow: an option of a case that it would ignore is an error that names the line.
func TestPyTorchRefusesWhatItDoesNotKnow(t *testing.T) {
	const good = `{"impl":"flash2","dtype":"float16","B":1,"H":2,"N":64,"D":64,"tuning":"br=64","passes":["fwd"]}` + "\n"
	_, complaint, err := torchList(t, []byte(good))
	require.NoError(t, err, complaint)
	for text, want := range map[string]string{
		good + `{"impl":"flash2","B":1,"H":2,"N":64,"D":64,"pages":128}`: "-:2: unknown key pages",
		"\n" + `{"impl":"flash2","B":1,"H":2,"N":64}`:                    "-:2: missing key D",
		`[1]`: "-:1: a case must be a JSON object",
		`x`:   "-:1: ",
		"\n":  "- has no cases",
	} {
		_, complaint, err := torchList(t, []byte(text))
		require.Error(t, err, text)
		require.Contains(t, complaint, want)
		require.NotContains(t, complaint, "Traceback")
	}
	_, complaint, err = torchList(t, []byte(good), "--impl", "flash9")
	require.Error(t, err)
	require.Contains(t, complaint, "--impl flash9: must be of standard, fa2, cudnn, efficient")
}
