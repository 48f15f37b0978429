package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk"
)

// code is what a driver gets of a module, by name: unpacking it, and putting functions into it, is left until somebody asks for the words, who does
// not where their pipeline exists.
type code struct {
	identity string // of the words: what they are made of
	captured int    // tensors that functions in it capture
	load     func() ([]uint32, error)
}

// hashes are those of words by identity, in all of the process.
var hashes sync.Map

// hash is the SHA-256 of the words: what is remembered about them, on disk too, is remembered under it.
func (c *code) hash() (string, error) {
	if h, ok := hashes.Load(c.identity); ok {
		return h.(string), nil
	}
	words, err := c.load()
	if err != nil {
		return "", err
	}
	return c.hashed(words), nil
}

// hashed is the hash of words that were loaded, which nobody has to load for it then.
func (c *code) hashed(words []uint32) string {
	if h, ok := hashes.Load(c.identity); ok {
		return h.(string)
	}
	sum := sha256.Sum256(spirv.Bytes(words))
	h := hex.EncodeToString(sum[:])
	hashes.Store(c.identity, h)
	return h
}

// words are what the driver gets.
func (c *code) words() ([]uint32, error) {
	words, err := c.load()
	if err == nil {
		c.hashed(words) // the pipeline has to prove itself, more often than not
	}
	return words, err
}

// named is a module with functions in place of its hooks, where the constants say that it takes any.
func (e *Env) named(module string, c Constants, functions score.Code) (*code, error) {
	declared, err := e.shaders(module).Describe(module)
	if err != nil && e.Modules == nil {
		return nil, err
	}
	out := &code{load: func() ([]uint32, error) { return e.Module(module) }}
	if e.Modules == nil {
		out.identity = declared.SPIRVSHA256 + " " + e.controls()
	} else { // in tests: what the name stands for may change
		words, err := out.load()
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(spirv.Bytes(words))
		out.identity, out.load = hex.EncodeToString(sum[:]), func() ([]uint32, error) { return words, nil }
	}
	if !c.takesFunctions() {
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
	return fmt.Sprint(vk.FloatControls{RoundingRTE16: f.RoundingRTE16, DenormPreserve16: f.DenormPreserve16, SignedZeroInfNan16: f.SignedZeroInfNan16,
		DenormIndependence: f.DenormIndependence, RoundingIndependence: f.RoundingIndependence})
}

// ModuleHash names the content of Module(name), for keys of what is remembered about it.
func (e *Env) ModuleHash(name string) (string, error) {
	code, err := e.named(name, nil, score.Code{})
	if err != nil {
		return "", err
	}
	return code.hash()
}
