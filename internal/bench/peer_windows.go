package bench

import "os/exec"

// shell starts a command line.
func shell(command string) *exec.Cmd { return exec.Command("cmd", "/C", command) }

// killTree kills what shell started.
func killTree(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
