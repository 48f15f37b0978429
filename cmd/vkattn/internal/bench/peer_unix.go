//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// shell starts a command line in a process group of its own: an interrupt
// typed at the terminal then reaches only us, and we end the peer in order.
func shell(command string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// killTree kills the shell and what it started.
func killTree(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
