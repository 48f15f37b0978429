package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tree is a Git worktree of HEAD in which mutants are planted.
type tree struct {
	root, dir, commit string
}

func newTree(ctx context.Context, root string) (*tree, error) {
	commit, err := output(ctx, root, "git", "rev-parse", "--short", "HEAD")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "vkattn-mutate-")
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, dir: dir, commit: commit}
	if err := os.Mkdir(dir+cleanSuffix, 0o700); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if _, err := output(ctx, root, "git", "worktree", "add", "--quiet", "--detach", dir, "HEAD"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if changed, err := output(ctx, root, "git", "status", "--short", "--untracked-files=no"); err == nil && changed != "" {
		fmt.Fprintln(os.Stderr, "mutate: HEAD is tested; what is changed and not committed is no part of it")
	}
	return t, nil
}

// remove takes the worktree away, also after an interrupt.
func (t *tree) remove() {
	if _, err := output(context.Background(), t.root, "git", "worktree", "remove", "--force", t.dir); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
	if err := os.RemoveAll(t.dir + cleanSuffix); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
}

// plant makes the mutant's change and compiles the shaders that it asks for.
func (t *tree) plant(ctx context.Context, m *Mutant) error {
	path := filepath.Join(t.dir, filepath.FromSlash(m.File))
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(data), m.Old); n != 1 {
		return fmt.Errorf("its text is %d times in %s, and must be there once", n, m.File)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), m.Old, m.New, 1)), 0o644); err != nil {
		return err
	}
	if !isShader(m.File) {
		return nil
	}
	// Compiling waits for others in the same folder of temporary files, as it must in one tree; this one is nobody else's.
	own := append([]string{"TMPDIR=" + t.dir + cleanSuffix, filepath.Join(t.dir, "tools", "glslc.sh")}, strings.Fields(m.Modules)...)
	if _, err := output(ctx, t.dir, "env", own...); err != nil {
		return errors.Join(err, t.restore())
	}
	changed, err := output(ctx, t.dir, "git", "diff", "--name-only", "shaders/spv")
	if err == nil && changed == "" {
		err = fmt.Errorf("the compiler makes the same SPIR-V of it: modules %q", m.Modules)
	}
	if err != nil {
		return errors.Join(err, t.restore())
	}
	return nil
}

// restore makes the tree HEAD again, without what tests left there.
func (t *tree) restore() error {
	ctx := context.Background() // also after an interrupt
	_, err1 := output(ctx, t.dir, "git", "checkout", "--quiet", "--", ".")
	_, err2 := output(ctx, t.dir, "git", "clean", "--quiet", "--force", "-d")
	return errors.Join(err1, err2)
}

func isShader(file string) bool {
	return strings.HasSuffix(file, ".comp") || strings.HasSuffix(file, ".glsl")
}
