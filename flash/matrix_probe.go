package flash

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// layout gives the layout of fragments on this device, probing it when it is not known yet.
func (e *environment) layout(t DType, s matrixShape) (matrixLayout, error) {
	key, err := e.probeKey(t, s)
	if err != nil {
		return matrixLayout{}, err
	}
	defer known.enter(e.identity() + " " + key)() // the probe runs once, whoever asks
	if acc, a, err := parseHeld(e.recall(key), s); err == nil {
		return decodeLayout(s, acc, a), nil
	}
	if 8*s.M*s.N+4*s.M*s.K > int(e.caps.facts.Limits.MaxSharedMemory) {
		return matrixLayout{Form: formShared, Why: "fragments are too large to be probed"}, nil
	}
	words, err := e.probe(t, s)
	if err != nil {
		return matrixLayout{}, fmt.Errorf("probing the layout of %v %v matrices: %w", s, t, err)
	}
	acc, a, err := readHeld(words, s)
	if err != nil {
		return matrixLayout{Form: formShared, Why: err.Error()}, nil
	}
	if text, err := json.Marshal([2]heldElements{acc, a}); err == nil {
		e.remember(key, string(text))
	}
	return decodeLayout(s, acc, a), nil
}

// probeKey names everything that a layout may depend on besides the device and its driver.
func (e *environment) probeKey(t DType, s matrixShape) (string, error) {
	hash, err := e.moduleHash("matrix_probe." + t.suffix())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("layout %s %v subgroup %d module %.16s", t.suffix(), s, s.Lanes, hash), nil
}

// MarshalJSON makes [row, col].
func (e element) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{e.row, e.col}) }

// UnmarshalJSON reads [row, col].
func (e *element) UnmarshalJSON(b []byte) error {
	var pair [2]int
	err := json.Unmarshal(b, &pair)
	e.row, e.col = pair[0], pair[1]
	return err
}

// parseHeld reads what layout remembered.
func parseHeld(text string, s matrixShape) (acc, a heldElements, err error) {
	if text == "" {
		return nil, nil, errors.New("nothing is known")
	}
	var both [2]heldElements
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

// probeSlots is SLOTS of shaders/tools/matrix_probe.comp.
const probeSlots = 64

func probeConstants(s matrixShape) constants {
	return constants{"WG": s.Lanes, "M": s.M, "N": s.N, "K": s.K}
}

// probe runs matrix_probe and gives its output.
func (e *environment) probe(t DType, s matrixShape) ([]uint32, error) {
	name := "matrix_probe." + t.suffix()
	k, err := e.build(name, probeConstants(s),
		pipeline.KernelInfo{SubgroupSize: uint32(s.Lanes), FullSubgroups: true})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 4*(4+s.Lanes*2*probeSlots))
	for i := range data {
		data[i] = 0xff
	}
	out, err := e.ctx.Alloc("probe", uint64(len(data)), vk.DeviceLocal)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx := context.Background()
	if err := e.ctx.Upload(ctx, out.All(), data); err != nil {
		return nil, err
	}
	err = e.once(func(rec *pipeline.Recording) error {
		return rec.Dispatch(k, []pipeline.Access{{Binding: out.All(), Mode: pipeline.Write}}, nil, [3]uint32{1, 1, 1}, name)
	}, 1)
	if err != nil {
		return nil, err
	}
	if err := e.ctx.Download(ctx, out.All(), data); err != nil {
		return nil, err
	}
	words := make([]uint32, len(data)/4)
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(data[4*i:])
	}
	return words, nil
}

// once records, submits and waits.
func (e *environment) once(record func(*pipeline.Recording) error, dispatches int) error {
	rec, err := e.ctx.NewRecording(pipeline.RecordingInfo{MaxDispatches: dispatches, MaxBindings: dispatches * len(recorder{}.access)})
	if err != nil {
		return err
	}
	defer rec.Close()
	if err := record(rec); err != nil {
		return err
	}
	pending, err := e.ctx.Submit(rec)
	if err != nil {
		return err
	}
	return pending.Wait(context.Background())
}

// readHeld reads the output of matrix_probe.
func readHeld(words []uint32, s matrixShape) (acc, a heldElements, err error) {
	if size := words[2]; int(size) != s.Lanes {
		return nil, nil, fmt.Errorf("the driver ran the probe in subgroups of %d, not %d", size, s.Lanes)
	}
	for i, held := range [2]*heldElements{&acc, &a} {
		n := words[i]
		if n == 0 || n > probeSlots {
			return nil, nil, fmt.Errorf("invocations hold %d components, and the probe takes from 1 to %d", n, probeSlots)
		}
		for lane := range s.Lanes {
			at := 4 + (2*lane+i)*probeSlots
			comps := make([]element, n)
			for e := range comps {
				w := words[at+e]
				comps[e] = element{int(w >> 16), int(w & 0xffff)}
			}
			*held = append(*held, comps)
		}
	}
	return acc, a, nil
}
