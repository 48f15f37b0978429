package portable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cgo package cannot be compiled for another system without a C compiler for that one, which few machines have. Types can be
// checked everywhere: of the module's packages with their tests, and of all that they import, from source; what is C's in a cgo
// file is taken on trust (types.Config.FakeImportC). That finds the calls, files and build tags that one system lacks. The C
// itself is compiled for Windows by `make windows`.

var targets = []struct{ os, arch string }{
	{"windows", "amd64"},
	{"darwin", "arm64"},
	{"linux", "arm64"},
	{"freebsd", "amd64"},
}

func TestTypesOnOtherSystems(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the standard library's types from source for each system: seconds")
	}
	needGo(t)
	for _, target := range targets {
		t.Run(target.os+"-"+target.arch, func(t *testing.T) {
			t.Parallel()
			packages, err := list(target.os, target.arch, "./...")
			require.NoError(t, err)
			require.NoError(t, check(packages, target.arch))
		})
	}
}

// TestFindsWhatASystemLacks: the check would not let pass what it is there for.
func TestFindsWhatASystemLacks(t *testing.T) {
	needGo(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/broken\n\ngo 1.26\n",
		"a.go": "package broken\n\nimport \"syscall\"\n\n" +
			"func Attributes() any { return syscall.SysProcAttr{Setpgid: true} } // Unix alone has it\n",
		"b.go":      "package broken\n\n// int f(void);\nimport \"C\"\n\nfunc G() int { return int(C.f()) + lock() }\n",
		"b_unix.go": "//go:build unix\n\npackage broken\n\nfunc lock() int { return 0 }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	packages, err := list("windows", "amd64", "-C", dir, "./...")
	require.NoError(t, err)
	err = check(packages, "amd64")
	require.ErrorContains(t, err, "Setpgid")
	require.ErrorContains(t, err, "undefined: lock")
	packages, err = list("linux", "arm64", "-C", dir, "./...")
	require.NoError(t, err)
	require.NoError(t, check(packages, "arm64"))
}

func needGo(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
}

// listed is a package as go list describes it; one with tests stands there once more for each test that it is compiled into.
type listed struct {
	ImportPath string
	Dir        string
	Module     *struct{ Main bool }
	GoFiles    []string
	CgoFiles   []string
	ImportMap  map[string]string
	Error      *struct{ Err string }
}

// list asks for the packages and everything that they and their tests import on that system, what is imported first. args may
// begin with -C and a folder; the default is the module's root.
func list(goos, goarch string, args ...string) ([]listed, error) {
	dir := filepath.Join("..", "..")
	if len(args) > 2 && args[0] == "-C" {
		dir, args = args[1], args[2:]
	}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-test", "-e",
		"-json=ImportPath,Dir,Module,GoFiles,CgoFiles,ImportMap,Error"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s/%s: %w\n%s", goos, goarch, err, &stderr)
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		case p.Module != nil && p.Module.Main && p.Error != nil:
			return nil, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		case !strings.HasSuffix(p.ImportPath, ".test"): // else it is a main package that go test writes
			packages = append(packages, p)
		}
	}
}

// check checks the types of packages in their order. Errors are those of the main module's packages; of others only the
// declarations are looked at.
func check(packages []listed, goarch string) error {
	var wrong []error
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	for _, p := range packages {
		if p.ImportPath == "unsafe" {
			continue
		}
		own := p.Module != nil && p.Module.Main
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			if !filepath.IsAbs(name) {
				name = filepath.Join(p.Dir, name)
			}
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		path, _, _ := strings.Cut(p.ImportPath, " ")
		config := types.Config{
			FakeImportC: true, IgnoreFuncBodies: !own, Sizes: types.SizesFor("gc", goarch),
			Importer: importer(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				if found := done[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("go list did not name %s", path)
			}),
			Error: func(err error) {
				// A type that is C's is invalid here. One that is Go's and does not exist gets an error of its own besides.
				if own && !strings.Contains(err.Error(), types.Typ[types.Invalid].String()) {
					wrong = append(wrong, err)
				}
			},
		}
		pkg, _ := config.Check(path, fset, files, nil) // Error has heard of every error
		if len(p.CgoFiles) > 0 {
			asPointers(pkg.Scope())
		}
		done[p.ImportPath] = pkg
	}
	return errors.Join(wrong...)
}

// asPointers gives types that are declared as C's the underlying type of a pointer, for the packages that compare them with nil:
// where Go's declarations are named after C's types at all, those are handles.
func asPointers(scope *types.Scope) {
	for _, name := range scope.Names() {
		if declared, ok := scope.Lookup(name).(*types.TypeName); ok && declared.Type().Underlying() == types.Typ[types.Invalid] {
			if named, ok := declared.Type().(*types.Named); ok {
				named.SetUnderlying(types.Typ[types.UnsafePointer])
			}
		}
	}
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
