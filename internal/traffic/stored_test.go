package traffic

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

var every = []Model{
	QueriesOutside{Label: "f", Rows: 64, Keys: 32, QAgain: true, Packed: true, Parts: 3, Combine: "c", QReaders: 2, KeysAhead: 1,
		ValuesAhead: 1, AheadAgain: true, NoneUnseen: true},
	KeysOutside{Label: "f", Rows: 64, Keys: 32, VAgain: true, RowReaders: 2, Fragment: 8},
	Standard{Scores: Product{Label: "s", Rows: 64, Columns: 32, Run: 2, Unit: 8}, Softmax: Rows{Label: "r", ReadTwice: true},
		Product: Product{Label: "p", Rows: 64, Columns: 16}, SlabRows: 7},
	BackwardFused{Delta: "d", Keys: BackwardTile{Label: "k", Rows: 64, Columns: 32, Restaged: true, RowReaders: 3},
		Queries: BackwardTile{Label: "q", Rows: 32, Columns: 16, Masked: true, Ahead: true, Apart: true}, DBias: true},
	BackwardSlabs{Delta: "d", Weights: BackwardTile{Label: "w", Rows: 64, Columns: 32, Masked: true, Streamed: true},
		Behind: 160, DBias: true,
		Values:  Product{Label: "v", Rows: 8, Columns: 8, Across: 3},
		Queries: Product{Label: "q", Rows: 8, Columns: 8}, Keys: Product{Label: "k", Rows: 8, Columns: 8}},
	BackwardKeeping{Delta: "d", Keys: BackwardTile{Label: "k", Rows: 64, Columns: 32, Masked: true, Ahead: true},
		Queries: Product{Label: "q", Rows: 8, Columns: 8}, OperandKeys: 16, OperandQueries: 8, SubgroupKeys: 16,
		ChunkQueries: 8},
	BackwardLists{Delta: "d", Invert: "i", Keys: "k", Queries: "q", Rows: 3},
	BackwardStandard{Again: Product{Label: "s", Rows: 32, Columns: 32, Run: 1, Unit: 4},
		Weights: Product{Label: "w", Rows: 64, Columns: 32, Run: 2, Unit: 8}, Scores: Rows{"s", true, 4},
		Values: Product{Label: "v", Rows: 8, Columns: 8}, Queries: Product{Label: "q", Rows: 8, Columns: 8},
		Keys: Product{Label: "k", Rows: 8, Columns: 8}, SlabHeads: 2, SlabRows: 9},
	Tangents{Tile: BackwardTile{Label: "q", Rows: 32, Columns: 16, Restaged: true, RowReaders: 2}},
	ForwardOperations{},
	BackwardOperations{},
}

// TestModelsReadBack: every kind of model is the same after a file.
func TestModelsReadBack(t *testing.T) {
	require.Len(t, kinds, len(every))
	for _, m := range every {
		data, err := Marshal(m)
		require.NoError(t, err)
		require.True(t, json.Valid(data), "%s", data)
		back, err := Unmarshal(data)
		require.NoError(t, err, "%s", data)
		require.Equal(t, m, back, "%s", data)
	}
	data, err := Marshal(QueriesOutside{Label: "scalar_forward", Rows: 64, Keys: 32})
	require.NoError(t, err)
	require.Equal(t, `{"kind":"queries outside","label":"scalar_forward","rows":64,"keys":32}`, string(data))
	m, err := Unmarshal([]byte(`{"kind":"backward atomic","delta":"d","keys":{"label":"k","rows":64,"columns":32},"sum_rows":16}`))
	require.NoError(t, err, "a kernel that older files have, and that is gone")
	require.Nil(t, m)
	_, err = Unmarshal([]byte(`{"kind":"sideways"}`))
	require.ErrorContains(t, err, `there is no model of the kind "sideways"`)
	_, err = Unmarshal([]byte(`{"kind":"standard","scores":3}`))
	require.Error(t, err)
	_, err = Unmarshal([]byte(`[]`))
	require.Error(t, err)
}

// FuzzModel: a model in a result file, whoever wrote it, counts at once, or is refused.
func FuzzModel(f *testing.F) {
	for _, m := range every {
		data, err := Marshal(m)
		require.NoError(f, err)
		f.Add(string(data), uint32(512), byte(0))
		f.Add(string(data), uint32(1<<30-1), byte(2))
	}
	for _, text := range []string{
		`{"kind":"queries outside","rows":1,"keys":1}`, `{"kind":"queries outside","rows":9223372036854775807,"keys":9223372036854775807}`,
		`{"kind":"queries outside","rows":64,"keys":64,"parts":99999999999}`,
		`{"kind":"queries outside","rows":64,"keys":64,"keys_ahead":-1}`,
		`{"kind":"keys outside","rows":16,"keys":16,"fragment":9223372036854775807}`,
		`{"kind":"backward","keys":{"rows":1,"columns":1},"queries":{"rows":1,"columns":1}}`,
		`{"kind":"standard","scores":{"rows":1,"columns":1,"run":65536},"product":{"rows":65536,"columns":65536},"slab_rows":-1}`,
		`{"kind":"backward standard","weights":{"rows":1,"columns":1},"values":{"rows":1,"columns":1},"queries":{"rows":1,"columns":1},"keys":{"rows":1,"columns":1},"slab_heads":1,"slab_rows":1}`,
	} {
		f.Add(text, uint32(512), byte(0))
		f.Add(text, uint32(1<<20), byte(1))
		f.Add(text, uint32(1<<30-1), byte(3))
	}
	f.Fuzz(func(t *testing.T, text string, length uint32, problem byte) {
		m, err := Unmarshal([]byte(text))
		if err != nil || m == nil {
			return
		}
		n := int(max(1, length%(1<<30)))
		p := attn.Problem{Batch: 1, Heads: 1, KeyHeads: 1, QueryLen: n, KeyLen: n, HeadDim: 1, ValueDim: 1, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: attn.Causal(problem % 3)}}
		var c Call
		if problem&4 != 0 {
			p.Blocks, c.Nonzero = attn.Blocks{Queries: 1 + int(problem), Keys: 128}, 0.5
		}
		start := time.Now()
		steps, err := m.Steps(p, c)
		if err == nil {
			require.GreaterOrEqual(t, Total(steps).Read, 0.0, text)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Fatalf("%q takes %v", text, took)
		}
	})
}
