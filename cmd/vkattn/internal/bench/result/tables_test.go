package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/tune"
)

// fillAll gives every exported field of a struct a value of its own, and says which it could not.
func fillAll(v reflect.Value, next *int) {
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanSet() {
			continue
		}
		*next++
		if m, ok := f.Addr().Interface().(*tune.Model); ok { // has no fields of its own to see
			if err := m.UnmarshalJSON(fmt.Appendf(nil, `{"kind":"queries outside","rows":%d,"keys":%d}`, *next, *next)); err != nil {
				panic(err)
			}
			continue
		}
		switch f.Kind() {
		case reflect.Struct:
			fillAll(f, next)
		case reflect.String:
			f.SetString(fmt.Sprintf("text %d", *next))
		case reflect.Int:
			f.SetInt(int64(*next))
		case reflect.Float64:
			f.SetFloat(float64(*next) + 0.5)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Pointer:
			f.Set(reflect.ValueOf(ptr(float64(*next) + 0.25)))
		case reflect.Slice:
			f.Set(reflect.ValueOf([]float64{float64(*next), 1}))
		default:
			panic(f.Kind())
		}
	}
}

// TestFilesHoldWholeRows: whatever is known of a row is in result files, under a key of its own. A field without a line in the table
// of axes or of columns fails here.
func TestFilesHoldWholeRows(t *testing.T) {
	for _, lengths := range [][2]string{{}, {"mixed", ""}, {"", "mixed"}} { // which not everything goes with
		holdsWhole(t, lengths[0], lengths[1])
	}
}

func holdsWhole(t *testing.T, packed, used string) {
	var row Row
	next := 0
	fillAll(reflect.ValueOf(&row).Elem(), &next)
	row.DType, row.H, row.Hkv, row.D, row.Dv = "float16", 12, 4, 64, 32
	row.Dropout, row.Density, row.Tuning = 0.25, 0.5, "bc=32,br=64"
	row.Score, row.Bias, row.Mask, row.Cache, row.Causal = "softcap=30", "heads", "documents=2", "q8_0", false
	without := 2
	if row.Packed, row.Used = packed, used; packed != "" || used != "" {
		row.Bias, row.Mask, without = "", "", 3
	}
	if packed != "" {
		row.Nq = row.N
	}
	text, err := json.Marshal(row)
	require.NoError(t, err)
	var got Row
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, row, got)

	var keys map[string]any
	require.NoError(t, json.Unmarshal(text, &keys))
	require.Len(t, keys, countKeys(t, text), "no key twice")
	require.Len(t, keys, len(fileColumns)-without)
}

// countKeys is the number of keys of a JSON object, those that come twice counting twice.
func countKeys(t *testing.T, text []byte) (n int) {
	in := json.NewDecoder(bytes.NewReader(text))
	_, err := in.Token() // {
	require.NoError(t, err)
	for ; in.More(); n++ {
		_, err := in.Token()
		require.NoError(t, err)
		var value json.RawMessage
		require.NoError(t, in.Decode(&value))
	}
	return n
}

// TestKeysKeepTheirOrder: the orders of files name keys that there are, each once, and files have all of them.
func TestKeysKeepTheirOrder(t *testing.T) {
	var file, csv []string
	for _, c := range fileColumns {
		file = append(file, c.Key)
	}
	for _, c := range CSVColumns() {
		csv = append(csv, c.Key)
	}
	require.GreaterOrEqual(t, len(file), len(fileOrder))
	require.Equal(t, fileOrder, file[:len(fileOrder)])
	require.GreaterOrEqual(t, len(csv), len(csvOrder))
	require.Equal(t, csvOrder, csv[:len(csvOrder)])
	for _, keys := range [][]string{file, csv} {
		seen := map[string]bool{}
		for _, k := range keys {
			require.False(t, seen[k], k)
			seen[k] = true
		}
	}
	require.Equal(t, []string{"b", "a", "c", "d"}, inOrder([]string{"a", "b", "c", "d"}, []string{"b", "a"},
		func(s string) string { return s }))
}

// TestEveryFieldOfACaseIsAnAxis: and every list of a grid; an axis has a flag, and a column of its own or another's.
func TestEveryFieldOfACaseIsAnAxis(t *testing.T) {
	var c Case
	var g Grid
	fields, lists := map[any]string{}, 0
	for i := range reflect.TypeFor[Case]().NumField() {
		fields[reflect.ValueOf(&c).Elem().Field(i).Addr().Interface()] = reflect.TypeFor[Case]().Field(i).Name
	}
	names := map[string]bool{}
	for _, a := range Axes {
		require.NotEmpty(t, a.Name)
		require.NotEmpty(t, a.Usage, a.Name)
		require.False(t, names[a.Name], a.Name)
		names[a.Name] = true
		lists++
		require.False(t, a.given(&g), a.Name)
		delete(fields, a.in(&c))
		if a.Label != "" && !a.Own {
			require.NotNil(t, a.Told, a.Name)
		}
	}
	require.Empty(t, fields)
	require.Equal(t, reflect.TypeFor[Grid]().NumField(), lists)
	for _, name := range loopOrder {
		require.NotNil(t, AxisOf(name), name)
	}
	require.Nil(t, AxisOf("no such axis"))
}

func TestWants(t *testing.T) {
	c := Case{Impl: "flash2", DType: "float16", B: 2, H: 8, Hkv: 8, Nq: 64, N: 64, D: 32, Dv: 32, Causal: true}
	require.True(t, Grid{}.Wants(c))
	require.True(t, Grid{Heads: []int{4, 8}, Causal: yes, EmbDim: []int{7}}.Wants(c), "a width is no value of a case")
	require.False(t, Grid{Heads: []int{4}}.Wants(c))
	require.False(t, Grid{Heads: []int{8}, Causal: no}.Wants(c))
}

// TestRecordedRowsAreWrittenAsTheyWere: a row that is read from a recorded file and written again is the same line, byte by byte.
func TestRecordedRowsAreWrittenAsTheyWere(t *testing.T) {
	paths, err := filepath.Glob("../../../../../testdata/results/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte(`"impl"`)) {
				continue
			}
			var row Row
			require.NoError(t, json.Unmarshal(line, &row))
			var out bytes.Buffer
			require.NoError(t, NewWriter(&out).Line(row))
			require.Equal(t, string(line), out.String(), path)
		}
	}
}
