// Package folder reads models as Hugging Face has them: a folder with config.json and model.safetensors, or several files of tensors that
// model.safetensors.index.json names.
//
// What is read becomes what GGUF files of the same model hold, with names and metadata of those, so that one program reads both. Rows of
// queries' and keys' weights stay in the folder's order, in which columns half a head apart are turned together: the entry
// rope.halves of the architecture says so.
//
// Sizes are checked against the files' before memory is taken. Errors name the file and the tensor or the entry.
package folder

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// Sentinel errors; match them with errors.Is.
var (
	ErrMalformed   = errors.New("malformed")
	ErrUnsupported = errors.New("not supported")
)

// mostText is the largest JSON that is read, in bytes.
const mostText = 100 << 20

// Model is a folder's model. Its tensors read the files until it is closed.
type Model struct {
	*gguf.File
	files []*os.File
}

// Close closes the files.
func (m *Model) Close() (err error) {
	for _, f := range m.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Read reads a folder's configuration and the headers of its tensors.
func Read(dir string) (m *Model, err error) {
	m = &Model{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	c, err := readConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return m, err
	}
	files, err := filesOf(dir)
	if err != nil {
		return m, err
	}
	var tensors []*gguf.Tensor
	for _, name := range files {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return m, err
		}
		m.files = append(m.files, f)
		info, err := f.Stat()
		if err != nil {
			return m, err
		}
		some, err := readHeader(f, info.Size())
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		tensors = append(tensors, some...)
	}
	tensors = slices.DeleteFunc(tensors, func(t *gguf.Tensor) bool { // what follows from the rest
		return unneeded.MatchString(t.Name) || c.TieWordEmbeddings && t.Name == "lm_head.weight"
	})
	for _, t := range tensors {
		t.Name = rename(t.Name)
	}
	if m.File, err = gguf.New(c.metadata(), tensors); err != nil {
		return m, err
	}
	if !c.TieWordEmbeddings && !m.Has("output.weight") {
		return m, fmt.Errorf("tensor lm_head.weight: %w: config.json does not say tie_word_embeddings, and it is missing", ErrMalformed)
	}
	return m, nil
}

// readJSON reads a file of JSON.
func readJSON(path string, to any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostText+1))
	if err == nil && len(text) > mostText {
		err = fmt.Errorf("%w: it has more than %d bytes", ErrMalformed, mostText)
	}
	if err == nil {
		if err = json.Unmarshal(text, to); err != nil {
			err = fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// filesOf are the names of a folder's files of tensors.
func filesOf(dir string) ([]string, error) {
	const one, index = "model.safetensors", "model.safetensors.index.json"
	if _, err := os.Stat(filepath.Join(dir, index)); errors.Is(err, os.ErrNotExist) {
		return []string{one}, nil
	}
	var list struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := readJSON(filepath.Join(dir, index), &list); err != nil {
		return nil, err
	}
	names := slices.Compact(slices.Sorted(maps.Values(list.Files)))
	for _, name := range names {
		if name != filepath.Base(name) || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s: %w: %q is no file of the folder", index, ErrMalformed, name)
		}
	}
	return names, nil
}

// types are those of safetensors that are read.
var types = map[string]gguf.Type{"F32": gguf.F32, "F16": gguf.F16, "BF16": gguf.BF16}

// readHeader reads the header of a safetensors file: its length (uint64), and JSON with type, shape and range of bytes for each tensor.
func readHeader(from io.ReaderAt, size int64) (tensors []*gguf.Tensor, err error) {
	var n [8]byte
	if size < 8 {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, size)
	}
	if _, err := from.ReadAt(n[:], 0); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(n[:])
	if length > uint64(size-8) || length > mostText {
		return nil, fmt.Errorf("%w: a header of %d bytes in a file of %d", ErrMalformed, length, size)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(from, 8, int64(length)), text); err != nil {
		return nil, err
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	start := 8 + int64(length)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "__metadata__" {
			continue
		}
		t, err := entry(header[name], size-start)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		t.Name, t.From, t.Offset = name, from, t.Offset+start
		tensors = append(tensors, t)
	}
	return tensors, nil
}

// entry reads what a header says of a tensor, in a body of so many bytes.
func entry(text json.RawMessage, body int64) (*gguf.Tensor, error) {
	var e struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	of, known := types[e.DType]
	if !known {
		return nil, fmt.Errorf("type %q: %w: there are F32, F16, BF16", e.DType, ErrUnsupported)
	}
	_, bytes := of.Block()
	t := &gguf.Tensor{Type: of, Offset: e.Offsets[0], Bytes: int64(bytes)}
	if len(e.Shape) < 1 || len(e.Shape) > 4 {
		return nil, fmt.Errorf("%w: %d dimensions", ErrMalformed, len(e.Shape))
	}
	for _, n := range slices.Backward(e.Shape) {
		if n < 1 || n > math.MaxInt32 || t.Bytes > math.MaxInt64/n {
			return nil, fmt.Errorf("%w: shape %v", ErrMalformed, e.Shape)
		}
		t.Dims, t.Bytes = append(t.Dims, int(n)), t.Bytes*n
	}
	if e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1] > body || e.Offsets[1]-e.Offsets[0] != t.Bytes {
		return nil, fmt.Errorf("%w: bytes %d to %d of %d for %s %v", ErrMalformed, e.Offsets[0], e.Offsets[1], body, e.DType, e.Shape)
	}
	return t, nil
}

// unneeded are tensors of older folders that follow from config.json.
var unneeded = regexp.MustCompile(`^model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$`)

// names are those of tensors, and what GGUF files call them.
var names = map[string]string{"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
	"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
	"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}

var parts = regexp.MustCompile(`^(?:model\.layers\.(\d+)\.)?(.*)\.(weight|bias)$`)

// rename gives the name of GGUF files; one that is not known stays as it is, and no model has it.
func rename(name string) string {
	p := parts.FindStringSubmatch(name)
	if p == nil || names[p[2]] == "" {
		return name
	}
	if p[1] != "" {
		return "blk." + p[1] + "." + names[p[2]] + "." + p[3]
	}
	return names[p[2]] + "." + p[3]
}
