// Package zerotest calls every exported method of a package's exported types on values that no constructor made: the zero value and
// the nil pointer. None may panic.
package zerotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// Run calls the methods of values, one of each exported type with methods that the package in the working directory declares: a type
// that is missing fails the test, so that none is forgotten. Arguments are zero values.
func Run(t *testing.T, values ...any) {
	t.Helper()
	declared, err := typesWithMethods(".")
	if err != nil {
		t.Fatal(err)
	}
	Only(t, values...)
	var given []string
	for _, v := range values {
		given = append(given, reflect.TypeOf(v).Name())
	}
	slices.Sort(given)
	if !slices.Equal(given, declared) {
		t.Errorf("the package has the exported types with methods\n\t%v\nand the test\n\t%v", declared, given)
	}
}

// Only calls the methods of these types, whatever others there are.
func Only(t *testing.T, values ...any) {
	t.Helper()
	for _, v := range values {
		of := reflect.TypeOf(v)
		t.Run(of.Name(), func(t *testing.T) { calls(t, of) })
	}
}

// calls goes through the methods of a type, on a zero value and, where the receiver is a pointer, on nil.
func calls(t *testing.T, of reflect.Type) {
	pointer := reflect.PointerTo(of)
	for i := range pointer.NumMethod() {
		name := pointer.Method(i).Name
		call(t, of.Name()+"{}."+name, reflect.New(of).Method(i))
		if _, byValue := of.MethodByName(name); !byValue { // Go itself panics for a nil pointer where a value is wanted
			call(t, "(*"+of.Name()+")(nil)."+name, reflect.Zero(pointer).Method(i))
		}
	}
}

func call(t *testing.T, name string, method reflect.Value) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s panics: %v\n%s", name, p, origin())
		}
	}()
	var in []reflect.Value
	for i := range method.Type().NumIn() {
		if method.Type().IsVariadic() && i == method.Type().NumIn()-1 {
			break
		}
		in = append(in, reflect.Zero(method.Type().In(i)))
	}
	method.Call(in)
}

// origin is the line of this module that panicked first.
func origin() string {
	for _, line := range strings.Split(string(debug.Stack()), "\n") {
		if strings.Contains(line, ".go:") && !strings.Contains(line, "/zerotest.go:") && !strings.Contains(line, "/src/") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// typesWithMethods lists the exported types that a folder's package declares and gives exported methods, in order.
func typesWithMethods(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(os.DirFS(dir), filepath.Base(file))
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if name, ok := of.(*ast.Ident); ok && name.IsExported() && !slices.Contains(names, name.Name) {
				names = append(names, name.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
