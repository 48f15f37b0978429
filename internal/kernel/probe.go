package kernel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Layout gives the layout of fragments on this device, probing it when it is not known yet.
func (e *Env) Layout(t attn.DType, s Fragment) (FragmentLayout, error) {
	if e.Ctx.CompileOnly() {
		return e.Caps.publishedLayout(s), nil
	}
	key, err := e.ProbeKey(t, s)
	if err != nil {
		return FragmentLayout{}, err
	}
	if l, ok := e.decoded(key, s); ok {
		return l, nil
	}
	defer Known.enter(e.Identity() + " " + key)() // the probe runs once, whoever asks
	if l, ok := e.decoded(key, s); ok {
		return l, nil
	}
	if 8*s.M*s.N+4*s.M*s.K > int(e.Caps.Facts.Limits.MaxSharedMemory) {
		return FragmentLayout{Form: FormShared, Why: "fragments are too large to be probed"}, nil
	}
	words, err := e.probe(t, s)
	if err != nil {
		return FragmentLayout{}, fmt.Errorf("probing the layout of %v %v matrices: %w", s, t, err)
	}
	acc, a, err := ReadHeld(words, s)
	if err != nil {
		return FragmentLayout{Form: FormShared, Why: err.Error()}, nil
	}
	if text, err := json.Marshal([2]HeldElements{acc, a}); err == nil {
		e.Remember(key, string(text))
	}
	return DecodeLayout(s, acc, a), nil
}

// decodedLayout is a layout, and what was remembered of the probe that it follows from.
type decodedLayout struct {
	held   string
	layout FragmentLayout
}

// decoded gives the layout that is remembered under a key, if one is: it is decoded once.
func (e *Env) decoded(key string, s Fragment) (l FragmentLayout, ok bool) {
	held := e.Recall(key)
	if last, ok := e.layouts.Load(key); ok && last.(*decodedLayout).held == held {
		return last.(*decodedLayout).layout, true
	}
	acc, a, err := ParseHeld(held, s)
	if err != nil {
		return l, false
	}
	l = DecodeLayout(s, acc, a)
	e.layouts.Store(key, &decodedLayout{held, l})
	return l, true
}

// ProbeKey names everything that a layout may depend on besides the device and its driver.
func (e *Env) ProbeKey(t attn.DType, s Fragment) (string, error) {
	hash, err := e.ModuleHash("matrix_probe." + t.Suffix())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("layout %s %v subgroup %d module %.16s", t.Suffix(), s, s.Lanes, hash), nil
}

// MarshalJSON makes [row, col].
func (e Element) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{e.Row, e.Col}) }

// UnmarshalJSON reads [row, col].
func (e *Element) UnmarshalJSON(b []byte) error {
	var pair [2]int
	err := json.Unmarshal(b, &pair)
	e.Row, e.Col = pair[0], pair[1]
	return err
}

// ParseHeld reads what Layout remembered.
func ParseHeld(text string, s Fragment) (acc, a HeldElements, err error) {
	if text == "" {
		return nil, nil, errors.New("nothing is known")
	}
	var both [2]HeldElements
	if err := json.Unmarshal([]byte(text), &both); err != nil {
		return nil, nil, err
	}
	for _, held := range both {
		if len(held) != s.Lanes {
			return nil, nil, fmt.Errorf("%d lanes, and the subgroup has %d", len(held), s.Lanes)
		}
	}
	return both[0], both[1], nil
}

// ProbeSlots is SLOTS of shaders/tools/matrix_probe.comp.
const ProbeSlots = 64

func ProbeConstants(s Fragment) Constants {
	return Constants{"WG": s.Lanes, "M": s.M, "N": s.N, "K": s.K}
}

// probe runs matrix_probe and gives its output.
func (e *Env) probe(t attn.DType, s Fragment) ([]uint32, error) {
	name := "matrix_probe." + t.Suffix()
	k, err := e.Build(name, ProbeConstants(s), s.Subgroups(), score.Code{})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 4*(4+s.Lanes*2*ProbeSlots))
	for i := range data {
		data[i] = 0xff
	}
	out, err := e.Ctx.Alloc("probe", uint64(len(data)), vk.DeviceLocal)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx := context.Background()
	if err := e.Ctx.Upload(ctx, out.All(), data); err != nil {
		return nil, err
	}
	err = e.Once(func(rec *pipeline.Recording) error {
		return rec.Dispatch(k, []pipeline.Access{{Binding: out.All(), Mode: pipeline.Write}}, nil, [3]uint32{1, 1, 1}, name)
	}, 1)
	if err != nil {
		return nil, err
	}
	if err := e.Ctx.Download(ctx, out.All(), data); err != nil {
		return nil, err
	}
	words := make([]uint32, len(data)/4)
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(data[4*i:])
	}
	return words, nil
}

// Once records, submits and waits.
func (e *Env) Once(record func(*pipeline.Recording) error, dispatches int) error {
	rec, err := e.Ctx.NewRecording(RecordingInfo(dispatches, false))
	if err != nil {
		return err
	}
	defer rec.Close()
	if err := record(rec); err != nil {
		return err
	}
	pending, err := e.Ctx.Submit(rec)
	if err != nil {
		return err
	}
	return pending.Wait(context.Background())
}

// ReadHeld reads the output of matrix_probe.
func ReadHeld(words []uint32, s Fragment) (acc, a HeldElements, err error) {
	if size := words[2]; int(size) != s.Lanes {
		return nil, nil, fmt.Errorf("the driver ran the probe in subgroups of %d, not %d", size, s.Lanes)
	}
	for i, held := range [2]*HeldElements{&acc, &a} {
		n := words[i]
		if n == 0 || n > ProbeSlots {
			return nil, nil, fmt.Errorf("invocations hold %d components, and the probe takes from 1 to %d", n, ProbeSlots)
		}
		for lane := range s.Lanes {
			at := 4 + (2*lane+i)*ProbeSlots
			comps := make([]Element, n)
			for e := range comps {
				w := words[at+e]
				comps[e] = Element{int(w >> 16), int(w & 0xffff)}
			}
			*held = append(*held, comps)
		}
	}
	return acc, a, nil
}
