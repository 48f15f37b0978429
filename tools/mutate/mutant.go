package main

import (
	"slices"
	"strings"
)

// Mutant is a mistake to plant: one text in place of another.
type Mutant struct {
	ID     string // a few words, for --only
	File   string // to change, below the repository's root
	Old    string // is there exactly once
	New    string
	Breaks string // what is wrong then, for people

	// Modules is how the names of the shader modules begin that are compiled again (shaders/modules.txt), separated by blanks, where
	// File is a shader. A few of those that the mistake reaches are enough, if they are those that the tests run.
	Modules string

	Kill []Killer // tests that ought to find it, the cheapest first

	// Equivalent is the reason why no test can find it: results are the same with it. It is tried all the same.
	Equivalent string
	// OnlyOn says which devices run what is mistaken, where not all do; on others it may survive.
	OnlyOn string
}

// Killer is tests that ought to find a mutant.
type Killer struct {
	Package string // ./flash
	Run     string // go test -run; "" for all
}

// String is the killer as the table has it.
func (k Killer) String() string { return strings.TrimPrefix(k.Package, "./") + " " + k.Run }

// packages are those of the expected tests.
func (m *Mutant) packages() []string {
	var out []string
	for _, k := range m.Kill {
		if !slices.Contains(out, k.Package) {
			out = append(out, k.Package)
		}
	}
	return out
}

// Mutants lists them all. A case of the conformance suite that short runs leave out on the device at hand finds nothing: other tests stand
// behind it.
func Mutants() []Mutant {
	return slices.Concat(
		behind(forwardMutants, in("./flash", "TestForward", "TestTiles", "TestLayouts")),
		partsMutants, rowMutants, onnxMutants, cacheMutants,
		behind(dropoutMutants, dropoutMask, differences),
		behind(backwardMutants, differences, in("./flash", "TestBackwardTiles")),
		behind(matrixMutants, matrixForms, matrixTiles),
		jvpMutants,
		behind(otherKernelMutants, in("./flash", "TestForward", "TestBlockSparse.*"), differences),
		maxLogitMutants, listMutants, ringMutants, pipelineMutants, callMutants, hostMutants, referenceMutants, benchMutants,
		libraryMutants, llamaMutants)
}

// behind adds tests to the mutants that cases of the conformance suite ought to find.
func behind(mutants []Mutant, more ...Killer) []Mutant {
	out := slices.Clone(mutants)
	for i := range out {
		m := &out[i]
		if isCase := func(k Killer) bool { return strings.HasPrefix(k.Run, suite) }; slices.ContainsFunc(m.Kill, isCase) {
			m.Kill = slices.Concat(m.Kill, slices.DeleteFunc(slices.Clone(more), func(k Killer) bool { return slices.Contains(m.Kill, k) }))
		}
	}
	return out
}

// suite is how the -run patterns of the conformance suite's cases begin.
const suite = "^TestConformance$/"

// in makes a killer of tests of a package, one or several: in("./flash", "TestTiles", "TestLayouts").
func in(pkg string, tests ...string) Killer {
	return Killer{pkg, "^(" + strings.Join(tests, "|") + ")$"}
}

// conformance makes a killer of a case of the conformance suite on the targets whose names contain this one's parts.
func conformance(name, target string) Killer {
	return Killer{"./cmd/vkattn/internal/conformance", exactly("TestConformance/"+name) + "/" + target}
}

// exactly is the -run pattern of a test's name in full.
func exactly(test string) string {
	var parts []string
	for part := range strings.SplitSeq(test, "/") {
		parts = append(parts, "^"+quote(part)+"$")
	}
	return strings.Join(parts, "/")
}

// quote is regexp.QuoteMeta, with any one character for what -run would take for something else.
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case strings.ContainsRune(`/|`, r):
			b.WriteByte('.')
		case strings.ContainsRune(`\.+*?()[]{}^$`, r):
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
