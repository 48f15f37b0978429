package folder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// file is a safetensors file of a header and a body.
func file(header string, body int) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, body)...)
}

// hostile are files that lie, by what is said of them.
var hostile = map[string][]byte{
	"malformed: 3 bytes":          []byte("abc"),
	"in a file of 16":             append(binary.LittleEndian.AppendUint64(nil, 1<<62), make([]byte, 8)...),
	"malformed: header":           file("[", 0),
	"tensor a: malformed: json":   file(`{"a":3}`, 0),
	`type "I8": not supported`:    file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1),
	"malformed: 0 dimensions":     file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4),
	"malformed: 5 dimensions":     file(`{"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}}`, 4),
	"malformed: shape [0]":        file(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, 4),
	"shape [2147483647 21474836":  file(`{"a":{"dtype":"F32","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,4]}}`, 4),
	"bytes 0 to 8 of 4":           file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4),
	"bytes -4 to 0 of 4":          file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 4),
	"bytes 4 to 0 of 4":           file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4),
	"bytes 0 to 4 of 4 for F16 [": file(`{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}}`, 4),
}

func TestHostile(t *testing.T) {
	for want, file := range hostile {
		_, err := readHeader(bytes.NewReader(file), int64(len(file)))
		require.ErrorContains(t, err, want)
		require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnsupported), err)
	}
}

// FuzzHeader: whatever a file holds, its header is a named error, or tensors whose data lies in the file.
func FuzzHeader(f *testing.F) {
	f.Add(file(`{"__metadata__":{},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}`, 8))
	for _, file := range hostile {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, err := readHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnsupported) || errors.Is(err, io.EOF), err)
		}
		for _, tensor := range tensors {
			_, err := tensor.Data()
			require.NoError(t, err)
		}
	})
}

// TestWindows: a number of sliding_window counts where it is said that there are windows, or in models that always have them.
func TestWindows(t *testing.T) {
	for text, want := range map[string]any{
		`{"model_type":"mistral","sliding_window":4096}`:                          int64(4096),
		`{"model_type":"qwen2","sliding_window":4096}`:                            nil,
		`{"model_type":"qwen2","sliding_window":4096,"use_sliding_window":false}`: nil,
		`{"model_type":"llama","sliding_window":4096,"num_attention_heads":4}`:    nil,
		`{"model_type":"mistral","sliding_window":null,"num_hidden_layers":2}`:    nil,
		`{"model_type":"mistral","sliding_window":64,"use_sliding_window":false}`: nil,
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		c, err := readConfig(path)
		require.NoError(t, err)
		require.Equal(t, want, c.metadata()[archs[c.ModelType]+".attention.sliding_window"], text)
	}
}
