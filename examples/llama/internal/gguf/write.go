package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Entry is a metadata entry to be written.
type Entry struct {
	Key   string
	Value any // uint32, int32, float32, bool, string, or a slice of these
}

// Values is a tensor to be written.
type Values struct {
	Name string
	Type Type
	Dims []int // as of Tensor
	Data []byte
}

// Write writes a file of version 3: what tests and tiny models need of a writer.
func Write(w io.Writer, metadata []Entry, tensors []Values) error {
	const alignment = 32
	var head bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				binary.Write(&head, binary.LittleEndian, uint64(len(s)))
				head.WriteString(s)
			} else {
				binary.Write(&head, binary.LittleEndian, v)
			}
		}
	}
	head.WriteString("GGUF")
	put(uint32(3), uint64(len(tensors)), uint64(len(metadata)))
	for _, e := range metadata {
		put(e.Key)
		switch v := e.Value.(type) {
		case uint32:
			put(uint32(kindUint32), v)
		case int32:
			put(uint32(kindInt32), v)
		case float32:
			put(uint32(kindFloat32), v)
		case bool:
			put(uint32(kindBool), v)
		case string:
			put(uint32(kindString), v)
		case []string:
			put(uint32(kindArray), uint32(kindString), uint64(len(v)))
			for _, s := range v {
				put(s)
			}
		case []float32:
			put(uint32(kindArray), uint32(kindFloat32), uint64(len(v)), v)
		case []int32:
			put(uint32(kindArray), uint32(kindInt32), uint64(len(v)), v)
		default:
			return fmt.Errorf("gguf: %s: a value of type %T cannot be written", e.Key, v)
		}
	}
	offset := 0
	up := func(n int) int { return (n + alignment - 1) / alignment * alignment }
	for _, t := range tensors {
		put(t.Name, uint32(len(t.Dims)))
		for _, n := range t.Dims {
			put(uint64(n))
		}
		put(uint32(t.Type), uint64(offset))
		offset += up(len(t.Data))
	}
	pad := func() { head.Write(make([]byte, up(head.Len())-head.Len())) }
	pad()
	for _, t := range tensors {
		head.Write(t.Data)
		pad()
	}
	_, err := w.Write(head.Bytes())
	return err
}
