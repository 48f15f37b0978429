package traffic

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/plainjson"
)

// kinds read models from files. A new order of loops is a file beside this one and a line here.
var kinds = map[string]func(data []byte) (Model, error){
	QueriesOutside{}.Kind():     read[QueriesOutside],
	KeysOutside{}.Kind():        read[KeysOutside],
	Standard{}.Kind():           read[Standard],
	BackwardFused{}.Kind():      read[BackwardFused],
	BackwardSlabs{}.Kind():      read[BackwardSlabs],
	BackwardKeeping{}.Kind():    read[BackwardKeeping],
	BackwardLists{}.Kind():      read[BackwardLists],
	BackwardStandard{}.Kind():   read[BackwardStandard],
	Tangents{}.Kind():           read[Tangents],
	ForwardOperations{}.Kind():  read[ForwardOperations],
	BackwardOperations{}.Kind(): read[BackwardOperations],
}

// gone are kinds of kernels that exist no longer. What files have of them reads as no model.
var gone = []string{"backward atomic"}

func read[M Model](data []byte) (Model, error) {
	var m M
	err := plainjson.Unmarshal(data, &m)
	return m, err
}

// Marshal writes a model as an object of its kind and numbers, for example {"kind":"queries
// outside","label":"scalar_forward","rows":64,"keys":32}.
func Marshal(m Model) ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	kind, err := json.Marshal(m.Kind())
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"kind":`), kind...)
	if len(data) > len("{}") {
		out = append(out, ',')
	}
	return append(out, data[1:]...), nil
}

// Unmarshal reads what Marshal wrote, nil for a kind that is gone. Keys that a model does not know are left alone; a kind that none has is
// an error.
func Unmarshal(data []byte) (Model, error) {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := plainjson.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if slices.Contains(gone, head.Kind) {
		return nil, nil
	}
	read := kinds[head.Kind]
	if read == nil {
		return nil, fmt.Errorf("there is no model of the kind %q", head.Kind)
	}
	return read(data)
}
