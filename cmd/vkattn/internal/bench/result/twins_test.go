package result

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// torchList runs tools/torch_baseline.py --list on a list of cases. Listing needs Python alone.
func torchList(t *testing.T, cases []byte, args ...string) (out []byte, complaint string, err error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3:", err)
	}
	// Without the packages that are installed: a list takes none, and PyTorch, where it is, takes seconds to import.
	cmd := exec.Command(python, append([]string{"-S", "../../../../../tools/torch_baseline.py", "--list"}, args...)...)
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
			if !slices.Contains([]string{"guard", "scores", "packed"}, s.Name) {
				vktest.Long(t, "suites with every kind of case")
			}
			jobs, err := s.Jobs(false, Grid{})
			require.NoError(t, err)
			var list bytes.Buffer
			w := NewWriter(&list)
			want := map[Case]Passes{}
			for _, j := range jobs {
				require.NoError(t, w.Line(j))
				shape := j.Case.Shape()
				if p, ok := want[shape]; ok {
					j.Passes = j.Passes.And(p)
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
	require.Contains(t, complaint, "--impl flash9: must be of standard, fa2, cudnn, efficient, flex")

	for text, want := range map[string]string{
		`"score":"rope"`:                  `score is 'rope', must be`,
		`"score":"softcap=0"`:             `score is 'softcap=0', must be`,
		`"score":3`:                       "score is 3, must be text",
		`"bias":"rows"`:                   "bias is 'rows', must be one of full, heads, batch, pairs, keys",
		`"mask":"documents=65"`:           "mask is 'documents=65', must be",
		`"mask":"prefix"`:                 "mask is 'prefix', must be",
		`"mask":"prefix=4","causal":true`: "causal must be false",
		`"sinks":1`:                       "sinks is 1, must be true or false",
		`"window":-1`:                     "window is -1",
		`"page":-16`:                      "page is -16",
		`"packed":"sorted"`:               "packed is 'sorted', must be one of equal, mixed",
		`"packed":"equal","Nq":2`:         "packed is 'equal': Nq must be N",
		`"cache":8`:                       "cache is 8, must be text",
		`"used":"equal"`:                  "used is 'equal', must be mixed",
		`"used":"mixed","bias":"keys"`:    "used is 'mixed': there must be no mask and no bias",
	} {
		if testing.Short() && len(text)%4 != 0 { // a process each: some of them
			continue
		}
		_, complaint, err := torchList(t, []byte(`{"impl":"flash2","B":1,"H":2,"N":64,"D":64,`+text+"}"))
		require.Error(t, err, text)
		require.Contains(t, complaint, want)
		require.NotContains(t, complaint, "Traceback")
	}
}

// torchSays runs a program in Python that has tools/torch_baseline.py as torch_baseline, and gives what it prints as JSON.
func torchSays(t *testing.T, program string, input []byte, out any) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3:", err)
	}
	// None of it is computed here: without PyTorch, as in torchList.
	cmd := exec.Command(python, "-S", "-c", "import sys, json, torch_baseline as torch\n"+program)
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=../../../../../tools")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	text, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.NoError(t, json.Unmarshal(text, out))
}

// TestPyTorchComputesTheSameProblem: both programs count the same operations, and mean the same by what cases do with their scores.
func TestPyTorchComputesTheSameProblem(t *testing.T) {
	var cases []Case
	var list bytes.Buffer
	w := NewWriter(&list)
	for _, c := range []Case{
		{}, {Causal: true}, {Window: 9}, {Window: 9, Causal: true}, {Mask: "documents=8"}, {Mask: "documents=7", Causal: true},
		{Mask: "documents=3", Window: 20, Causal: true},
		{Mask: "prefix=10"}, {Mask: "prefix=50", Window: 30}, {Nq: 20, Causal: true}, {Nq: 20, Mask: "documents=5"},
		{Nq: 200, Mask: "documents=5", Causal: true}, {Nq: 200, Mask: "prefix=3"},
		{Packed: "equal"}, {Packed: "mixed", Causal: true}, {Packed: "mixed", Causal: true, Window: 9}, {Packed: "mixed", B: 40},
		{Used: "mixed", Nq: 2}, {Used: "mixed", B: 40, Causal: true, Nq: 20}, {Used: "mixed", Window: 9, Page: 16},
		{Used: "mixed", Causal: true},
		{Bias: "full", Nq: 5}, {Bias: "heads"}, {Bias: "batch"}, {Bias: "pairs"}, {Bias: "keys"}, {Score: "softcap=30", Sinks: true},
		{Listed: 9}, {Listed: 20, Causal: true}, {Listed: 200, Nq: 5}, {Listed: 4, Window: 9, Nq: 200},
	} {
		c.Impl, c.DType, c.H, c.Hkv, c.N, c.D, c.Dv = "standard", "float16", 6, 3, 96, 16, 32
		c.B = max(c.B, 2)
		c.Nq = max(c.Nq, 1)
		if c.Nq == 1 {
			c.Nq = c.N
		}
		require.NoError(t, c.Validate())
		require.NoError(t, w.Line(Job{Case: c}))
		cases = append(cases, c)
	}
	var told []struct {
		Fwd, Bwd float64
		Seen     [][2]int
		Bias     [4]int
		Starts   []int32
		Used     []int32
	}
	torchSays(t, `
cases = [torch.Case.from_json(line) for line in sys.stdin]
json.dump([dict(fwd=c.flop("fwd"), bwd=c.flop("bwd"), seen=[c.seen(i) for i in range(c.Nq)], bias=c.bias_shape() if c.bias else [0] * 4,
    starts=torch.torch_packed.starts(c) if c.packed else None, used=torch.torch_packed.lengths(c) if c.used else None)
    for c in cases], sys.stdout)`, list.Bytes(), &told)
	require.Len(t, told, len(cases))
	for i, c := range cases {
		require.Equal(t, c.ForwardFLOPs(), told[i].Fwd, "%s", c)
		require.Equal(t, c.BackwardFLOPs(), told[i].Bwd, "%s", c)
		require.Equal(t, c.BiasShape(), told[i].Bias, "%s", c)
		require.Equal(t, c.Starts(), told[i].Starts, "%s", c)
		if c.Used != "" {
			require.Equal(t, c.UsedKeys(), told[i].Used, "%s", c)
		}
		for q, seen := range told[i].Seen {
			first, end := c.Seen(q)
			require.Equal(t, [2]int{first, end}, seen, "%s: query %d", c, q)
		}
	}

	var scores struct {
		Slopes   map[string][]float32
		One, Two []float64 // buckets of T5, causal and not
	}
	torchSays(t,
		`json.dump(dict(slopes={n: torch.alibi_slopes(n) for n in range(1, 41)}, one=torch.t5_classes(False), two=torch.t5_classes(True)), sys.stdout)`, nil, &scores)
	require.Len(t, scores.Slopes, 40)
	for heads, slopes := range scores.Slopes {
		n, err := strconv.Atoi(heads)
		require.NoError(t, err)
		require.InDeltaSlice(t, alibiSlopes(n), slopes, 1e-7)
	}
	numbers := make([]float32, t5Buckets)
	for i := range numbers {
		numbers[i] = float32(i)
	}
	for both, classes := range map[bool][]float64{false: scores.One, true: scores.Two} {
		e, err := score.RelativeBias(score.Table(numbers, t5Buckets, 1), score.T5Bucket(both, t5Buckets, t5Distance)).Bind(nil)
		require.NoError(t, err)
		require.Len(t, classes, 2*t5Distance+1)
		for i, class := range classes {
			require.Equal(t, e.Value(score.Point{Key: 1000 + i - t5Distance, Position: 1000}), class, "both ways %v, distance %d", both,
				i-t5Distance)
		}
	}
}

// TestPyTorchIgnoresNoOption: an implementation that cannot do what a case asks of its scores says so.
func TestPyTorchIgnoresNoOption(t *testing.T) {
	takes := map[string][]string{
		"standard": {"window", "score", "bias", "mask", "sinks", "dropout"}, "flex": {"window", "score", "mask"},
		// their backends refuse the biases that they do not take
		"fa2": {"window", "bias", "packed", "used", "dropout"}, "cudnn": {"bias", "dropout"}, "efficient": {"bias", "dropout"},
	}
	var refused map[string][]string
	torchSays(t, `
options = dict(window=8, score="alibi", bias="full", mask="documents=2", sinks=True, packed="mixed", used="mixed", page=16, cache="q8_0", max_logit=True, dropout=0.5)
refused = {}
for impl in torch.IMPLEMENTATIONS:
    refused[impl] = []
    for name, value in options.items():
        try:
            torch.attention(torch.Case(impl=impl, B=1, H=2, N=64, D=8, **{name: value}), None)
        except torch.Unsupported:
            refused[impl].append(name)
        except (AttributeError, ImportError):
            pass  # where PyTorch itself would be asked
json.dump(refused, sys.stdout)`, nil, &refused)
	require.Len(t, refused, len(takes))
	for impl, options := range takes {
		var others []string
		for _, o := range []string{"window", "score", "bias", "mask", "sinks", "packed", "used", "page", "cache", "max_logit", "dropout"} {
			if !slices.Contains(options, o) {
				others = append(others, o)
			}
		}
		require.ElementsMatch(t, others, refused[impl], impl)
	}
}

// TestPyTorchIsAskedForUsedKeys: slots are FlashAttention's sequences, of which seqused_k tells how many rows count; none of it is computed
// here.
func TestPyTorchIsAskedForUsedKeys(t *testing.T) {
	c := Case{Impl: "fa2", DType: "float16", B: 3, H: 4, Hkv: 2, Nq: 2, N: 849, D: 64, Dv: 64, Causal: true, Window: 9, Used: "mixed"}
	var list bytes.Buffer
	require.NoError(t, NewWriter(&list).Line(Job{Case: c}))
	var asked struct {
		Args  []any
		Used  []int32 `json:"seqused_k"`
		Left  int     `json:"window_size_left"`
		Right int     `json:"window_size_right"`
		Error string
		Shape []int
	}
	torchSays(t, `
class Fake:
    int32 = "int32"
    def tensor(values, device, dtype): return list(values)
    def arange(first, end, step, device, dtype): return list(range(first, end, step))
    class ops:
        class aten:
            def _flash_attention_forward(q, k, v, *args, **options): return [dict(options, args=args)]
torch.torch_packed.torch = Fake
case = torch.Case.from_json(sys.stdin.readline())
asked = torch.attention(case, None)(None, None, None, None, None)
try:
    torch.measure_backward(case, None, None, None, {})
except torch.Unsupported as error:
    asked["error"] = str(error)
json.dump(dict(asked, shape=torch.torch_packed.shape(case, case.Hkv, case.N, case.D)), sys.stdout)`, list.Bytes(), &asked)
	starts := func(each float64) []any { return []any{0.0, each, 2 * each, 3 * each} }
	require.Equal(t, []any{starts(2), starts(849), 2.0, 849.0, 0.0, true, false}, asked.Args)
	require.Equal(t, c.UsedKeys(), asked.Used)
	require.Equal(t, []int32{849, 140, 260}, asked.Used)
	require.Equal(t, [2]int{9, 0}, [2]int{asked.Left, asked.Right})
	require.Equal(t, []int{3 * 849, 2, 64}, asked.Shape)
	require.Contains(t, asked.Error, "forward alone", "backward is refused, not computed without lengths")
}
