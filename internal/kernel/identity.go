package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk"
)

// code is what a driver gets of a module, by name: unpacking it, and putting functions into it, is left until somebody asks for the words,
// who does not where their pipeline exists.
type code struct {
	identity string // of the words: what they are made of
	captured int    // tensors that functions in it capture
	load     func() ([]uint32, error)
}

// hashes are those of words by identity, in all of the process.
var hashes sync.Map

// hash is the SHA-256 of the words: what is remembered about them, on disk too, is remembered under it. Whoever built a pipeline of them
// knows it.
func (c *code) hash() (string, error) {
	if h, ok := hashes.Load(c.identity); ok {
		return h.(string), nil
	}
	words, err := c.load()
	if err != nil {
		return "", err
	}
	return c.hashed(sha256.Sum256(spirv.Bytes(words))), nil
}

// hashed remembers the hash of words.
func (c *code) hashed(sum [sha256.Size]byte) string {
	if h, ok := hashes.Load(c.identity); ok {
		return h.(string)
	}
	h := hex.EncodeToString(sum[:])
	hashes.Store(c.identity, h)
	return h
}

// codeRevision counts changes of what vk.WithFloatControls16 and score.Splice make of modules: words are kept on disk under their identity,
// and those of an earlier revision are no longer what it stands for.
const codeRevision = "2"

// named is a module with functions in place of its hooks, where the constants say that it takes any.
func (e *Env) named(module string, c Constants, functions score.Code) (*code, error) {
	declared, err := e.shaders(module).Describe(module)
	if err != nil && e.Modules == nil {
		return nil, err
	}
	out := &code{load: func() ([]uint32, error) { return e.Module(module) }}
	if e.Modules == nil {
		out.identity = codeRevision + " " + declared.SPIRVSHA256 + e.controls()
	} else { // in tests: what the name stands for may change
		words, err := out.load()
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(spirv.Bytes(words))
		out.identity, out.load = hex.EncodeToString(sum[:]), func() ([]uint32, error) { return words, nil }
	}
	if !c.TakesFunctions() {
		return out, nil
	}
	functions.FirstBinding = declared.Interface.BindingCount()
	tensors, err := functions.Captures()
	if err != nil {
		return nil, err
	}
	out.captured = len(tensors)
	out.identity += " " + functions.CacheKey()
	plain := out.load
	out.load = func() ([]uint32, error) {
		words, err := plain()
		if err != nil {
			return nil, err
		}
		return score.Splice(words, functions)
	}
	return out, nil
}

// controls is what modules ask of fp16 on this device.
func (e *Env) controls() string {
	f := e.Dev.FloatControls()
	asked := make([]byte, 0, 16)
	for _, on := range [...]bool{f.RoundingRTE16, f.DenormPreserve16, f.SignedZeroInfNan16} {
		asked = strconv.AppendBool(append(asked, ' '), on)
	}
	for _, n := range [...]vk.Independence{f.DenormIndependence, f.RoundingIndependence} {
		asked = strconv.AppendUint(append(asked, ' '), uint64(n), 10)
	}
	return string(asked)
}

// ModuleHash names the content of Module(name), for keys of what is remembered about it.
func (e *Env) ModuleHash(name string) (string, error) {
	code, err := e.named(name, nil, score.Code{})
	if err != nil {
		return "", err
	}
	return code.hash()
}
