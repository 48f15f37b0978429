package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// Constants are the specialization constants of a pipeline by the names that its shader declares.
type Constants map[string]int

// And joins constants. One that is set twice stands under a name that no module declares, so that building the pipeline fails.
func (c Constants) And(more ...Constants) Constants {
	n := len(c)
	for _, m := range more {
		n += len(m)
	}
	out := make(Constants, n)
	maps.Copy(out, c)
	for _, m := range more {
		for name, v := range m {
			if _, twice := out[name]; twice {
				name += ", set twice,"
			}
			out[name] = v
		}
	}
	return out
}

// String lists them by name: what a verdict on a pipeline is remembered under.
func (c Constants) String() string {
	names := slices.AppendSeq(make([]string, 0, len(c)), maps.Keys(c))
	slices.Sort(names)
	b := make([]byte, 0, 20*len(names))
	for _, name := range names {
		b = append(append(append(b, ' '), name...), '=')
		b = strconv.AppendInt(b, int64(c[name]), 10)
	}
	return string(b)
}

// Number gives each constant the number that the module declares for its name. Every constant of the module must be set, and nothing
// else: a default left in place is a wrong tile on some device, and a name that the module lost is a setting without effect.
func (c Constants) Number(module string, in *shaders.Interface) ([]vk.SpecConstant, error) {
	out := make([]vk.SpecConstant, 0, len(in.Constants))
	for name, value := range c {
		id, ok := in.Constants[name]
		if !ok {
			return nil, fmt.Errorf("flash: %s declares no constant %s; it declares %s", module, least(c, in.Constants),
				strings.Join(slices.Sorted(maps.Keys(in.Constants)), ", "))
		}
		out = append(out, vk.SpecConstant{ID: id, Value: uint32(value)})
	}
	if len(out) < len(in.Constants) {
		unset := maps.Clone(in.Constants)
		maps.DeleteFunc(unset, func(name string, _ uint32) bool { _, set := c[name]; return set })
		return nil, fmt.Errorf("flash: constants of %s are not set: %s", module, strings.Join(slices.Sorted(maps.Keys(unset)), ", "))
	}
	// In the order of numbers: the validation layer (1.4.309) takes a matrix's dimensions from the map by position.
	slices.SortFunc(out, func(a, b vk.SpecConstant) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// least is the first name, in alphabetical order, of a constant that is not declared.
func least(c Constants, declared map[string]uint32) string {
	undeclared := maps.Clone(c)
	maps.DeleteFunc(undeclared, func(name string, _ int) bool { _, ok := declared[name]; return ok })
	return slices.Min(slices.Collect(maps.Keys(undeclared)))
}

// Build makes the pipeline of a module, with functions in place of its hooks. info says what else it is made with; bindings and push
// constants are as the module declares; captured tensors follow. A module that the driver refuses is a *Declined error.
func (e *Env) Build(module string, c Constants, info pipeline.KernelInfo, functions score.Code) (*pipeline.Kernel, error) {
	declared, err := e.shaders(module).Describe(module)
	if err != nil {
		return nil, err
	}
	code, err := e.named(module, c, functions)
	if err != nil {
		return nil, err
	}
	in := &declared.Interface
	if err := CheckLayout(module, in.Push); err != nil {
		return nil, err
	}
	if err := checkMore(module, in); err != nil {
		return nil, err
	}
	if info.Spec, err = c.Number(module, in); err != nil {
		return nil, err
	}
	info.Name, info.Identity, info.Load, info.PushBytes, info.Constants = module, code.identity, code.load, in.PushBytes(), c
	info.Bindings, info.Buffers = in.BindingCount()+code.captured, in.Bindings
	if why := e.Caps.LacksBuffers(info.Bindings); why != "" {
		return nil, &Declined{Why: module + ": " + why}
	}
	k, err := e.Ctx.Kernel(info)
	if err == nil {
		code.hashed(k.CodeHash())
	}
	return k, refusedByDriver(module, err)
}

// refusedByDriver makes a driver's refusal to compile a module, or to be done in a minute, the reason why its kernel is not taken. That
// memory is short, or the device lost, is nothing of the kernel's.
func refusedByDriver(module string, err error) error {
	if errors.Is(err, pipeline.ErrCompiling) {
		return &Declined{Why: err.Error()}
	}
	var call *vk.CallError
	if !errors.As(err, &call) || call.Call != "vkCreateComputePipelines" {
		return err
	}
	switch call.Result {
	case vk.ErrUnknown, vk.ErrInitializationFailed, vk.ErrInvalidShader, vk.ErrFeatureNotPresent:
		return &Declined{Why: fmt.Sprintf("the driver refuses to compile %s: %v", module, err)}
	}
	return err
}

// TakesFunctions says whether a pipeline of these constants has the functions of a problem in it.
func (c Constants) TakesFunctions() bool { return c["SCORE_FUNCTIONS"]+c["MASK_FUNCTIONS"] > 0 }

func BoolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ForwardConstants are what every fused forward kernel is told of the problem and of its tensors.
func ForwardConstants(p *attn.Problem, v Variant) Constants {
	return Constants{"D": p.HeadDim, "DV": p.ValueDim, "ALIGNED": BoolInt(v.Aligned),
		"WRITE_LSE": BoolInt(v.LSE)}.And(MaskConstants(p), ScoreConstants(p), SinkConstants(p), CacheConstants(p))
}

// PartsOrBlocks are the constants of the builds for keys in parts, or of the block mask, which the others can do with, and of lengths.
func PartsOrBlocks(p *attn.Problem, parts int) Constants {
	if parts > 1 {
		return Constants{"PARTS": parts}.And(LengthConstants(p))
	}
	return BlockConstants(p.Blocks).And(LengthConstants(p))
}
