package report

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium that is spoken to over a pipe, in the DevTools protocol: one JSON message, then a zero byte.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	next    int
	session string
	events  []event
}

type event struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct{ Message string }
}

// startBrowser skips the test where there is no Chromium, unless VKATTN_REQUIRE_BROWSER=1.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{os.Getenv("VKATTN_BROWSER"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if name == "" {
			continue
		}
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" || runtime.GOOS == "windows" {
		const why = "no Chromium on this machine (VKATTN_BROWSER names one; Debian's package is chromium)"
		if os.Getenv("VKATTN_REQUIRE_BROWSER") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	inRead, inWrite, err := os.Pipe()
	require.NoError(t, err)
	outRead, outWrite, err := os.Pipe()
	require.NoError(t, err)
	profile, err := os.MkdirTemp("", "browser") // which is cleared as well as can be: its children may go on writing
	require.NoError(t, err)
	// Tests may run as root and in containers, where neither the sandbox nor much of /dev/shm is to be had.
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-extensions", "--disable-component-update", "--disable-background-networking", "--disable-sync",
		"--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	// Chromium is the system's program: libraries that the tests run with are not for it.
	cmd.Env = append(os.Environ(), "HOME="+profile, "LD_LIBRARY_PATH=")
	cmd.ExtraFiles = []*os.File{inRead, outWrite} // descriptors 3 and 4
	require.NoError(t, cmd.Start())
	inRead.Close()
	outWrite.Close()
	b := &browser{t: t, to: inWrite, from: bufio.NewReaderSize(outRead, 1<<20)}
	stop := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		stop.Stop()
		_ = b.send("Browser.close", nil)
		inWrite.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		outRead.Close()
		for range 20 {
			if os.RemoveAll(profile) == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Network", "Log", "Runtime"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) send(method string, params any) error {
	b.next++
	message := map[string]any{"id": b.next, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = b.session
	}
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = b.to.Write(append(data, 0))
	return err
}

func (b *browser) read() event {
	b.t.Helper()
	data, err := b.from.ReadBytes(0)
	require.NoError(b.t, err, "the browser ended")
	var e event
	require.NoError(b.t, json.Unmarshal(data[:len(data)-1], &e))
	return e
}

// call waits for the answer; events that come before it are kept.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	require.NoError(b.t, b.send(method, params))
	for {
		e := b.read()
		if e.ID == 0 {
			b.events = append(b.events, e)
			continue
		}
		if e.ID != b.next {
			continue
		}
		require.Nil(b.t, e.Error, method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(e.Result, result))
		}
		return
	}
}

// open loads a file and returns what the browser did for it.
func (b *browser) open(path string) []event {
	b.t.Helper()
	abs, err := filepath.Abs(path)
	require.NoError(b.t, err)
	b.events = nil
	b.call("Page.navigate", map[string]any{"url": (&url.URL{Scheme: "file", Path: abs}).String()}, nil)
	loaded := func() bool {
		for _, e := range b.events {
			if e.Method == "Page.loadEventFired" {
				return true
			}
		}
		return false
	}
	for !loaded() {
		if e := b.read(); e.ID == 0 {
			b.events = append(b.events, e)
		}
	}
	b.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))", nil)
	return b.events
}

// eval computes an expression in the page.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	require.Nil(b.t, out.ExceptionDetails, expression)
	if result != nil {
		require.NoError(b.t, json.Unmarshal(out.Result.Value, result))
	}
}

func (b *browser) view(width, height int, dark bool) {
	b.t.Helper()
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}},
		nil)
}

// screenshot keeps the whole page as VKATTN_SCREENSHOTS/name.png, for people to look at.
func (b *browser) screenshot(name string) {
	dir := os.Getenv("VKATTN_SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644))
}

// trouble lists what failed to load, what was asked of any network, and what was complained of.
func trouble(events []event) []string {
	var out []string
	for _, e := range events {
		switch e.Method {
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			_ = json.Unmarshal(e.Params, &p)
			if !strings.HasPrefix(p.Request.URL, "file:") && !strings.HasPrefix(p.Request.URL, "data:") {
				out = append(out, "asked for "+p.Request.URL)
			}
		case "Network.loadingFailed", "Runtime.exceptionThrown", "Log.entryAdded":
			out = append(out, fmt.Sprintf("%s %s", e.Method, e.Params))
		}
	}
	return out
}
