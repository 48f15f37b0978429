package tiles

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFiles: the built-in files can be read and linked, have a row for every problem, and say what was measured.
func TestFiles(t *testing.T) {
	all, err := load()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	any := 0
	for _, f := range all {
		for kernel := range kernels {
			if strings.HasSuffix(kernel, "_blocks") { // the kernel without a mask has the rows
				continue
			}
			rows := f.Rows(kernel)
			require.NotEmpty(t, rows, "%s: %s", f.Name, kernel)
			require.Equal(t, Conditions{}, rows[len(rows)-1].When, "%s: the last row of %s is for every problem", f.Name, kernel)
		}
		for _, r := range f.Own() {
			require.NotEqual(t, Tuned, r.Source, r.Place())
			if f.Name == "generic" {
				require.NotEqual(t, Measured, r.Source, "%s: there is no such device", r.Place())
			}
		}
		for _, s := range f.Devices {
			if len(s) == 0 {
				any++
			}
		}
	}
	require.Equal(t, 1, any, "one family is for devices that no other is for")
}

// TestRowsAreReached: no row of a file hides a later one of the same file. A row for what shared memory leaves over follows one for the
// same problems, and says less of itself.
func TestRowsAreReached(t *testing.T) {
	for _, f := range Families() {
		seen := map[string]*Row{}
		for _, r := range f.Own() {
			if r.Source == Candidate {
				continue
			}
			key := fmt.Sprint(r.Kernel, r.When, r.Values)
			require.Nil(t, seen[key], "%v is there twice", r.Place())
			seen[key] = r
		}
	}
}

// TestText: a family's text is read back as it was.
func TestText(t *testing.T) {
	for _, f := range Families() {
		back, err := Parse(f.File, f.Text())
		require.NoError(t, err)
		require.Equal(t, f.Text(), back.Text())
		require.Equal(t, [2]string{f.Name, f.Inherits}, [2]string{back.Name, back.Inherits})
		require.Equal(t, f.given, back.given)
		require.Equal(t, f.Devices, back.Devices)
		require.Len(t, back.rows, len(f.rows))
		for i, r := range f.rows {
			b := *back.rows[i]
			b.Line = r.Line
			require.Equal(t, *r, b)
		}
	}
}

const head = "family mine\ndevice any\n"

// TestErrors: what is wrong with a file is said with its line.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "f.tiles: no line says what family",
		"device any":                        "f.tiles:1: a file begins with",
		"family a":                          "f.tiles: no line says which devices",
		"family A":                          "f.tiles:1: family needs one name",
		"family " + strings.Repeat("a", 65): "f.tiles:1: family needs one name",
		"family a\n# x\nfamily b":           "f.tiles:3: family was given in line 1",
		"family a\ndevice":                  "f.tiles:2: device needs facts",
		"family a\ndevice vendor":           `f.tiles:2: "vendor" is not FACT=VALUE`,
		"family a\ndevice vendor=x":         `f.tiles:2: "x" is no number`,
		"family a\ndevice colour=1":         `f.tiles:2: unknown fact "colour"`,
		"family a\ndevice lanes=1 lanes=2":  "f.tiles:2: lanes stands there twice",
		"family a\ndevice lanes=9..3":       `f.tiles:2: "9..3" is no range`,
		"family a\ndevice lanes=..":         `f.tiles:2: ".." is no range`,
		"family a\ndevice lanes=-1":         `f.tiles:2: "-1" is no number`,
		"family a\ndevice type=toaster":     `f.tiles:2: "toaster" is no type`,
		"family a\ndevice matrix=16x16":     `f.tiles:2: "16x16" is no fragment`,
		"family a\ndevice matrix=0x1x1":     `f.tiles:2: "0x1x1" is no fragment`,
		head + "constants few=1":            `f.tiles:3: unknown constant "few=1"`,
		head + "constants fill=1 fill=1":    "f.tiles:3: constant fill was given in line 3",
		head + "constants fill=0.5":         "f.tiles:3: fill=0.5 must be a number from 0 to 1, whole",
		head + "constants half_pace=NaN":    "f.tiles:3: half_pace=NaN must be",
		head + "constants few_groups=1e99":  "f.tiles:3: few_groups=1e99 must be",
		head + "any : w=1":                  "f.tiles:3: a row before any line says of which kernel",
		head + "kernel matrix_forward":      "f.tiles:3: kernel needs a name, and measured",
		head + "kernel nothing measured":    `f.tiles:3: unknown kernel "nothing"`,
		head + "kernel matrix_forward best": "f.tiles:3: kernel needs a name, and measured",
		head + "numbers w=1..64":            "f.tiles:3: numbers of kernels stand in the library's own generic.tiles alone",
	} {
		_, err := Parse("f.tiles", text)
		var e *Error
		require.ErrorAs(t, err, &e, text)
		require.True(t, strings.HasPrefix(err.Error(), want), "%q: %v", text, err)
	}
	for row, want := range map[string]string{
		"hello":                      `"hello" is neither a row`,
		": w=1":                      "a row needs conditions",
		"any :":                      "a row needs numbers",
		"any : w":                    `"w" is not NAME=NUMBER`,
		"any : w=1 w=1":              "w stands there twice",
		"any : w=65":                 "w=65 must be from 1 to 64",
		"any : w=0":                  "w=0 must be from 1 to 64",
		"any : mr=4":                 `matrix_forward has no number "mr"`,
		"any any : w=1":              `unknown condition "any"`,
		"dim<=0 : w=1":               "dim<=0 must be at least 1",
		"dim<=64 dim<=64 : w=1":      "dim<= stands there twice",
		"mask=some : w=1":            "mask=some: must be causal or none",
		"dropout dropout : w=1":      "dropout stands there twice",
		"dropout=1 : w=1":            `unknown condition "dropout=1"`,
		"keys>=99999999999999 : w=1": `"99999999999999" is no number`,
		"fragment=8 : w=1":           `"8" is no fragment`,
		"any : w=1 rm=1 bc=8":        "a row of matrix_forward needs ck",
	} {
		_, err := Parse("f.tiles", head+"kernel matrix_forward measured\n"+row)
		require.Error(t, err, row)
		require.True(t, strings.HasPrefix(err.Error(), "f.tiles:4: "+want), "%q: %v", row, err)
	}
	_, err := Parse("f.tiles", head+strings.Repeat("#\n", MostBytes))
	require.ErrorContains(t, err, "bytes are more than")
	_, err = Parse("f.tiles", head+"kernel matrix_forward measured\n"+strings.Repeat("any : w=1 rm=1 bc=8 ck=8\n", mostRows+1))
	require.ErrorContains(t, err, "more than 4096 rows")
	_, err = Parse("f.tiles", head+strings.Repeat("device any\n", mostDevices))
	require.ErrorContains(t, err, "more than 256 lines of devices")
}

// TestNumbers: lines of numbers say the least, the most, and what a row may leave out.
func TestNumbers(t *testing.T) {
	got, err := readNumbers("kernel a derived\nnumbers w=1..64 # subgroups\nnumbers q?=2..8 on=0..1\nany : w=3\n" +
		"kernel b derived\nnumbers w=3..4\nkernel c derived\nnumbers b q=1..2")
	require.NoError(t, err)
	require.Equal(t, map[string]values{"a": {"w": {1, 64, false}, "q": {2, 8, true}, "on": {0, 1, true}}, "b": {"w": {3, 4, false}},
		"c": {"w": {3, 4, false}, "q": {1, 2, false}}}, got)
	_, err = readNumbers("numbers w=1..2")
	require.ErrorContains(t, err, "behind the line of their kernel")
	for _, bad := range []string{"w", "w=1", "w=1..", "w=..2", "w=1..x", "w=2..2", "w=-1..2", "w=1..2 w=1..3"} {
		_, err := readNumbers("kernel a derived\nnumbers " + bad)
		require.ErrorContains(t, err, `tiles: numbers of "a": `, bad)
	}
}

// TestSuits: a row is for the problems that its conditions name, and for no other.
func TestSuits(t *testing.T) {
	base := Problem{HeadDim: 64, ValueDim: 32, Queries: 100, Keys: 200, Rows: 300, DType: "f16", Lanes: 32, Fragment: [3]int{16, 16, 16},
		KeyType: "q5_1"} // which rows for q4_0 are for too
	for conditions, change := range map[string]func(p *Problem){
		"dim<=64":           func(p *Problem) { p.ValueDim = 65 },
		"head_dim=64":       func(p *Problem) { p.HeadDim = 63 },
		"value_dim=32":      func(p *Problem) { p.ValueDim = 33 },
		"queries<=100":      func(p *Problem) { p.Queries = 101 },
		"queries>=100":      func(p *Problem) { p.Queries = 99 },
		"keys<=200":         func(p *Problem) { p.Keys = 201 },
		"rows<=300":         func(p *Problem) { p.Rows = 301 },
		"keys>=200":         func(p *Problem) { p.Keys = 199 },
		"mask=none":         func(p *Problem) { p.Causal = true },
		"dtype=f16":         func(p *Problem) { p.DType = "bf16" },
		"plain":             func(p *Problem) { p.Blocks = true },
		"whole":             func(p *Problem) { p.Keys = 201 },
		"lanes=32":          func(p *Problem) { p.Lanes = 64 },
		"fragment=16x16x16": func(p *Problem) { p.Fragment[1] = 8 },
		"dim<=64 plain":     func(p *Problem) { p.Dropout = true },
		"key_type=q4_0":     func(p *Problem) { p.KeyType = "q8_0" },
	} {
		f, err := Parse("f.tiles", head+"kernel matrix_forward measured\n"+conditions+" : w=1 rm=1 bc=8 ck=8")
		require.NoError(t, err)
		require.Equal(t, conditions, f.Own()[0].When.String())
		p := base
		require.True(t, f.Own()[0].Suits(&p), conditions)
		change(&p)
		require.False(t, f.Own()[0].Suits(&p), conditions)
	}
	for conditions, change := range map[string]func(p *Problem){"mask=causal": func(p *Problem) { p.Causal = true },
		"dropout":         func(p *Problem) { p.Dropout = true },
		"value_type=q5_1": func(p *Problem) { p.ValueType = "q5_1" },
		"scored":          func(p *Problem) { p.Scored = true }, "bias": func(p *Problem) { p.Bias = true },
		"bare": func(p *Problem) { p.Bare = true }, "near": func(p *Problem) { p.Near = true }} {
		f, err := Parse("f.tiles", head+"kernel matrix_forward measured\n"+conditions+" : w=1 rm=1 bc=8 ck=8")
		require.NoError(t, err)
		p := base
		require.False(t, f.Own()[0].Suits(&p), conditions)
		change(&p)
		require.True(t, f.Own()[0].Suits(&p), conditions)
	}
}

// TestOver: a file from outside goes before the built-in rows, on the devices that it is for.
func TestOver(t *testing.T) {
	d := Device{Vendor: 0x10de, ID: 0x2335, Type: "discrete", Multiprocessors: 132, Subgroups: 64, SharedKiB: 48, Lanes: 32}
	f := New("mine", Exactly(d), []*Row{{Kernel: "matrix_forward", Source: Derived, Values: map[string]int{"w": 3}}})
	f.File = "mine.tiles"
	over, err := f.Over(d)
	require.NoError(t, err)
	require.Equal(t, 3, over.Rows("matrix_forward")[0].Get("w"))
	require.Equal(t, For(d).Rows("matrix_forward"), over.Rows("matrix_forward")[1:])
	require.Equal(t, For(d).Constants, over.Constants)

	other := d
	other.Lanes = 64
	_, err = f.Over(other)
	require.EqualError(t, err, "mine.tiles: these tiles are for other devices: for vendor=nvidia id=0x2335 type=discrete "+
		"multiprocessors=132 shared=48 lanes=32,"+
		" and this one is vendor=nvidia id=0x2335 type=discrete multiprocessors=132 shared=48 lanes=64")

	f, err = Parse("mine.tiles", "family mine\ninherits cpu\ndevice any\nconstants few_groups=7\n")
	require.NoError(t, err)
	over, err = f.Over(d)
	require.NoError(t, err)
	require.Equal(t, "cpu", over.Rows("scalar_forward")[0].Family)
	require.Equal(t, 7, over.FewGroups)
	require.False(t, over.Fill)
	f, err = Parse("mine.tiles", "family mine\ninherits nobody\ndevice any\n")
	require.NoError(t, err)
	_, err = f.Over(d)
	require.ErrorContains(t, err, `no built-in family "nobody"`)
}

// FuzzParse: whatever a file holds, reading it ends, and what is read is written so that it is read the same.
func FuzzParse(f *testing.F) {
	entries, err := files.ReadDir(".")
	require.NoError(f, err)
	for _, e := range entries {
		text, err := os.ReadFile(e.Name())
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Add(head + "kernel matrix_forward tuned\nhead_dim=64 value_dim=64 : parts=3 br=64\n")
	f.Add("family a\r\ndevice lanes=0x20..64 matrix=none # c\r\nkernel scalar_decode derived\nany:w=1\n")
	f.Add("family a\ndevice any\nkernel scalar_decode measured\nkey_type=q5_1 value_type=fp8_e5m2 : w=4 u=4 lpr=8\n")
	f.Add("family \xff\x00")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := Parse("f.tiles", text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 0 || e.Line > 1+strings.Count(text, "\n") {
				t.Fatal(err)
			}
			return
		}
		written := read.Text()
		again, err := Parse("f.tiles", written)
		if err != nil || again.Text() != written || !maps.Equal(read.given, again.given) || len(read.rows) != len(again.rows) ||
			!slices.EqualFunc(read.Devices, again.Devices, func(a, b Selector) bool { return a.String() == b.String() }) {
			t.Fatalf("%v\n%s", err, written)
		}
		for _, d := range []Device{{}, {Vendor: 0x10de, Lanes: 32, Fragments: [][3]int{{16, 16, 16}}}} {
			if over, err := read.Over(d); err == nil {
				over.Rows("matrix_forward")
			}
		}
	})
}
