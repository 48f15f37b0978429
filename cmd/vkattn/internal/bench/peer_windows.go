package bench

import (
	"os/exec"
	"strconv"
	"syscall"
)

// shell starts a command line. It goes to cmd as it stands: the quotes that os/exec would add are not those that cmd takes off.
func shell(command string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /S /C "` + command + `"`}
	return cmd
}

// killTree kills the shell and what it started, which outlives it otherwise.
func killTree(cmd *exec.Cmd) {
	if exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(cmd.Process.Pid)).Run() != nil {
		_ = cmd.Process.Kill()
	}
}
