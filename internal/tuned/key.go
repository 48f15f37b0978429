// Package tuned keeps tiles that were measured to be the fastest on the user's own device. They take the place of the built-in choice.
//
// They stand in one small JSON file in the user's configuration directory, which `vkattn tune` writes. An entry holds for one device and
// driver, kernel, storage type, head dimensions, causal or not, class of query length, and what kind of cache keys are read from. A plan
// says that it follows an entry, and an entry that no longer fits is left aside with the reason.
package tuned

import (
	"encoding/hex"
	"fmt"
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Key says what an entry of the user's tuning file is for.
type Key struct {
	Device   string `json:"device"`    // flash.DeviceInfo.Name
	Driver   string `json:"driver"`    // flash.DeviceInfo.Driver
	Build    string `json:"build"`     // pipelineCacheUUID: changes with anything that changes compiled code
	Kernel   string `json:"kernel"`    // its name without a tile
	DType    string `json:"dtype"`     // flash.DType.String
	HeadDim  int    `json:"head_dim"`  // D
	ValueDim int    `json:"value_dim"` // Dv
	Causal   bool   `json:"causal"`    // either causal mask, or a window
	Window   bool   `json:"window,omitempty"`
	Queries  string `json:"queries"` // class of query lengths: few (up to 16), some (up to 511), many
	// Class of key lengths, "up to" a power of two, for few queries: their tile cuts the keys into parts. "" for more.
	Keys string `json:"keys,omitempty"`
	// Where keys and values lie and how: rows of a page, 0 of tensors; types, "" for DType; sequences one behind the other.
	Page      int    `json:"page,omitempty"`
	KeyType   string `json:"key_type,omitempty"`
	ValueType string `json:"value_type,omitempty"`
	Packed    bool   `json:"packed,omitempty"`
}

// Entry is a tile that measured fastest.
type Entry struct {
	Key
	Tuning  map[string]int `json:"tuning"`  // parameters by name, as flash.WithTuning takes them
	Tile    string         `json:"tile"`    // for people
	Gain    float64        `json:"gain"`    // time of the built-in choice over time of this one
	TFLOPS  float64        `json:"tflops"`  // 10¹² operations a second, at the problem measured
	Problem string         `json:"problem"` // that was measured, as flash.Problem.String
}

// Bounds of the classes of query lengths.
const (
	mostFewQueries  = 16
	mostSomeQueries = 511
)

// queryClass puts query lengths together that want the same tile: decoding, a prompt's few, training's many.
func queryClass(n int) string {
	switch {
	case n <= mostFewQueries:
		return "few"
	case n <= mostSomeQueries:
		return "some"
	}
	return "many"
}

const (
	keyClassText  = "up to %d"
	leastKeyClass = 1024
)

// keyClass puts key lengths together that want the same number of parts.
func keyClass(queries, keys int) string {
	if queryClass(queries) != "few" {
		return ""
	}
	return fmt.Sprintf(keyClassText, max(leastKeyClass, 1<<bits.Len(uint(keys-1))))
}

// Device is a device as entries know it.
type Device struct {
	Caps   *kernel.Capabilities
	Driver string // name and version of the driver
}

// Key is the key of a problem with a kernel on the device.
func (d Device) Key(kernel string, p *attn.Problem) Key {
	f := d.Caps.Facts
	return Key{Device: f.Name, Driver: d.Driver, Build: hex.EncodeToString(f.PipelineCacheUUID[:]), Kernel: kernel,
		DType: p.DType.String(), HeadDim: p.HeadDim, ValueDim: p.ValueDim, Causal: p.Masked(), Window: p.Local(),
		Queries: queryClass(p.QueryLen),
		Keys:    keyClass(p.QueryLen, p.KeyLen), Page: p.Pages.Size, KeyType: p.KeyType.InCache(), ValueType: p.ValueType.InCache(),
		Packed: !p.Packed.None()}
}
