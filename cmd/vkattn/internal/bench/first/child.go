package first

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Environment is this process's with all caches below a folder: vkattn's own takes it by Child's argument, drivers take theirs from
// variables. NVIDIA's driver, Mesa's and AMD's keep what they compiled, whatever a program keeps.
func Environment(folder string) []string {
	var kept []string
	mine := map[string]string{
		"__GL_SHADER_DISK_CACHE": "1", "__GL_SHADER_DISK_CACHE_PATH": filepath.Join(folder, "nvidia"),
		"CUDA_CACHE_PATH":       filepath.Join(folder, "cuda"),
		"MESA_SHADER_CACHE_DIR": filepath.Join(folder, "mesa"), "XDG_CACHE_HOME": filepath.Join(folder, "user"),
		"AMD_SHADER_DISK_CACHE_PATH": filepath.Join(folder, "amd"),
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); mine[name] == "" && name != "MESA_SHADER_CACHE_DISABLE" {
			kept = append(kept, v)
		}
	}
	for name, value := range mine {
		kept = append(kept, name+"="+value)
	}
	slices.Sort(kept)
	return kept
}

// Prepare makes the folders that Environment names.
func Prepare(folder string) error {
	for _, name := range []string{"nvidia", "cuda", "mesa", "user", "amd"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// program is how this program is started again. Where something has to stand before it on the command line, as where a driver was unpacked
// that is not installed, VKATTN_EXEC says what.
func program() ([]string, error) {
	if before := strings.Fields(os.Getenv("VKATTN_EXEC")); len(before) > 0 {
		return append(before, os.Args[0]), nil
	}
	self, err := os.Executable()
	return []string{self}, err
}

// Child runs this program with arguments in that environment, and reports the steps that it prints as lines of JSON.
func Child(ctx context.Context, environment, args []string, report func(Step) error) error {
	line, err := program()
	if err != nil {
		return err
	}
	line = append(line, args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = environment
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && err == nil {
		var s Step
		if err = json.Unmarshal(lines.Bytes(), &s); err == nil {
			err = report(s)
		}
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("a process of its own: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return lines.Err()
}
