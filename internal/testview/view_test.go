package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

// sample is a package of tests of every kind; the second one does not compile, the third panics.
var sample = map[string]string{
	"go.mod": "module example.com/sample\n\ngo 1.25\n",
	"a/a_test.go": `package a

import ("os"; "testing")

func TestPasses(t *testing.T) { t.Log("said in passing") }

func TestCases(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) { t.Attr("family", "flash2"); t.Attr("tier", "matrix"); t.Attr("dtype", "float16") })
	}
	t.Run("three", func(t *testing.T) { t.Attr("family", "flash2"); t.Attr("tier", "matrix"); t.Skip("dimension 40 is too large") })
	t.Run("four", func(t *testing.T) { t.Skip("dimension 80 is too large") })
}

func TestLate(t *testing.T) { t.Log("before"); t.Skip("left out for lack of time: its package has 1s\nand no more") }

func TestFails(t *testing.T) {
	if os.Getenv("FAIL") == "" { return }
	t.Run("within", func(t *testing.T) { t.Log("the story so far"); t.Error("wrong by 7") })
}
`,
	"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { nonsense }\n",
	"c/c_test.go": "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) { t.Log(\"last words\"); panic(\"oh\") }\n",
	"d/d.go":      "package d\n",
}

// goTest runs go test -json on packages of the sample and views it.
func goTest(t *testing.T, fail bool, verbose bool, packages ...string) (text string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range sample {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	cmd := exec.Command("go", append([]string{"test", "-count=1", "-json"}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if fail {
		cmd.Env = append(cmd.Env, "FAIL=1")
	}
	var events bytes.Buffer
	cmd.Stdout, cmd.Stderr = &events, &events
	err := cmd.Run()
	var out bytes.Buffer
	require.NoError(t, show(&events, &out, verbose, "", noProgress, time.Now))
	return out.String(), err == nil
}

func TestViewOfPassingTests(t *testing.T) {
	text, ok := goTest(t, false, false, "./a", "./d")
	require.True(t, ok, text)
	require.Regexp(t, `(?m)^ok  \texample.com/sample/a\t[0-9.]+s$`, text)
	require.Regexp(t, `(?m)^\?   \texample.com/sample/d\t\[no test files\]$`, text)
	require.NotContains(t, text, "said in passing")
	require.NotContains(t, text, "=== ")
	require.Regexp(t, `(?m)^flash2 +matrix +2 +0 +1 +[0-9.]+ +float16$`, text)
	require.Regexp(t, `(?m)^ +2  dimension (40|80) is too large \(and other numbers\)$`, text)
	require.Contains(t, text, "!    1  Left out for lack of time: its package has 1s and no more\n         the first: "+
		"example.com/sample/a TestLate\n")
	require.Less(t, strings.Index(text, "Left out"), strings.Index(text, "dimension"), "what there was no time for comes first")
	require.Regexp(t, `(?m)^5 tests and cases passed, 0 failed, 3 skipped; 2 packages, 0 failed; `, text)
	require.True(t, strings.HasPrefix(vktest.LeftOut, leftOut) && strings.HasPrefix(leftOut, vktest.LeftOut))
}

func TestViewOfFailures(t *testing.T) {
	text, ok := goTest(t, true, false, "./a")
	require.False(t, ok)
	require.Regexp(t,
		`(?s)a_test.go:\d+: the story so far\n.*a_test.go:\d+: wrong by 7\n.*--- FAIL: TestFails/within.*--- FAIL: TestFails `, text)
	require.NotContains(t, text, "said in passing")
	require.Regexp(t, `(?m)^FAIL\texample.com/sample/a\t[0-9.]+s$`, text)
	require.Contains(t, text, "4 tests and cases passed, 2 failed")
	text, ok = goTest(t, true, true, "./a")
	require.False(t, ok)
	require.Contains(t, text, "said in passing", "-v prints everything")
	require.Equal(t, 1, strings.Count(text, "wrong by 7"), "and nothing twice")
}

// Neither a package that does not compile nor one that ends in the middle passes unseen.
func TestViewOfBrokenPackages(t *testing.T) {
	text, ok := goTest(t, false, false, "./b", "./c")
	require.False(t, ok)
	require.Contains(t, text, "undefined: nonsense")
	require.Contains(t, text, "panic: oh")
	require.Contains(t, text, "last words")
	require.Regexp(t, `2 packages, 2 failed`, text)
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	at := time.Unix(100, 0)
	p := newProgress(&out, func() int { return 30 })
	v := newView(&out, false, p, func() time.Time { return at })
	event := func(text string) { v.line([]byte(text)) }
	event(`{"Action":"run","Package":"example.com/m/x/flash","Test":"TestOfALongNameThatDoesNotFit"}`)
	require.Equal(t, "\r\x1b[K0s  0 passed, 0 packages don…", out.String())
	out.Reset()
	event(`{"Action":"pass","Package":"example.com/m/x/flash","Test":"TestOfALongNameThatDoesNotFit"}`)
	require.Empty(t, out.String(), "not more than ten times a second")
	event(`{"Action":"output","Package":"example.com/m/x/flash","Output":"ok  \texample.com/m/x/flash\t1s\n"}`)
	require.Equal(t, "\r\x1b[Kok  \texample.com/m/x/flash\t1s\n\r\x1b[K0s  1 passed, 0 packages don…", out.String(),
		"lines take its place, and it comes back below them")
	event("go: some message\n")
	require.Contains(t, out.String(), "\r\x1b[Kgo: some message\n")
}

func TestReasons(t *testing.T) {
	for want, output := range map[string][]string{
		"no device": {"    x_test.go:12: no device\n", "--- SKIP: TestX (0.00s)\n"},
		"two lines": {"        x_test.go:1: earlier\n", "        x_test.go:12: two\n", "            lines\n",
			"    --- SKIP: TestX/y (0.00s)\n"},
		"without a reason": {"--- SKIP: TestX (0.00s)\n"},
	} {
		require.Equal(t, want, reason(output))
	}
}
