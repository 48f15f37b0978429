package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
)

// MostCaptured is the largest number of tensors that the functions of a problem capture.
const MostCaptured = 8

// Scores are the tensors that go with scores: what shaders/include/score.glsl and sinks.glsl read.
type Scores struct {
	Of       [len(attn.ScoreOperands)]Operand // in the order of attn.ScoreOperands
	Cache                                     // what pages.glsl and quantised.glsl read
	Captured [MostCaptured]pipeline.Binding   // in the order of attn.Problem.Code's captures
}

// Bias is one of the tensors that are added to scores: its place among attn.ScoreOperands, and what it is there.
type Bias struct {
	At int
	*attn.Operand
}

// Biases are all of them.
var Biases = biases()

func biases() (all []Bias) {
	for i := range attn.ScoreOperands {
		if o := &attn.ScoreOperands[i]; o.Added {
			all = append(all, Bias{i, o})
		}
	}
	return all
}

// TableBytes is a table as kernels read it.
func TableBytes(t score.Tensor) []byte {
	out := make([]byte, 0, 4*t.Elements())
	for _, v := range t.Floats {
		out = binary.NativeEndian.AppendUint32(out, math.Float32bits(v))
	}
	for _, v := range t.Ints {
		out = binary.NativeEndian.AppendUint32(out, uint32(v))
	}
	return out
}

// ScoreConstants are the specialization constants of score.glsl: of a tensor by score, as SCORE_BIAS, 1 or, where it is a bias of fp32 or a
// mask of bits, 2.
func ScoreConstants(p *attn.Problem) Constants {
	all := Constants{"SCORE_FUNCTIONS": BoolInt(!p.Score.Identity()), "MASK_FUNCTIONS": BoolInt(!p.Sees.Everything())}
	for i := range attn.ScoreOperands {
		if o := &attn.ScoreOperands[i]; o.PerScore != nil {
			of := o.PerScore(p)
			all["SCORE_"+strings.ToUpper(o.Name)] = BoolInt(of.In) * (1 + BoolInt(of.DType == attn.F32 || of.DType == attn.Bit))
		}
	}
	return all
}

// SlopeConstants are those of score.glsl in a kernel that asks score functions for their derivatives, and for nothing else.
func SlopeConstants(p *attn.Problem) Constants {
	alone := attn.Problem{}
	if p.Features()&attn.WithSlopes != 0 {
		alone.Score = p.Score
	}
	return ScoreConstants(&alone)
}

// WithinConstants is that of dropout.glsl, in kernels that can do with parts of longer problems.
func WithinConstants(p *attn.Problem) Constants { return Constants{"WITHIN": BoolInt(p.DrawsWithin())} }

// SinkConstants is that of sinks.glsl.
func SinkConstants(p *attn.Problem) Constants { return Constants{"SINKS": BoolInt(p.Sinks)} }

// LengthConstants are the specialization constants of lengths.glsl and rows.glsl. Packed sequences have lengths of their own in any case.
func LengthConstants(p *attn.Problem) Constants {
	packed := !p.Packed.None()
	return Constants{"KEY_LENGTHS": BoolInt(p.KeyLengths || packed), "QUERY_LENGTHS": BoolInt(p.QueryLengths || packed),
		"TOP_LEFT":       BoolInt(p.Padded() && p.Causal == attn.CausalTopLeft),
		"PACKED_QUERIES": BoolInt(p.Packed.Queries > 0), "PACKED_KEYS": BoolInt(p.Packed.Keys > 0)}
}

// ListConstants is that of lists.glsl, in modules that read lists; nothing of problems without.
func ListConstants(p *attn.Problem) Constants {
	if p.Lists.None() {
		return nil
	}
	return Constants{"LISTS_PER_HEAD": BoolInt(p.Lists.PerHead)}
}

// MaxLogitConstants is that of max_logit.glsl.
func MaxLogitConstants(p *attn.Problem) Constants { return Constants{"MAX_LOGIT": BoolInt(p.MaxLogit)} }

// NeedsMore says whether kernels of a problem read further arguments.
func NeedsMore(p *attn.Problem) bool {
	return p.ByScore != attn.ByScore{} || p.Padded() || p.Cached() || p.DrawsWithin() || p.MaxLogit ||
		!p.Lists.None()
}

// MoreBytes is the size of the buffer of further arguments.
const MoreBytes = 256

// placesAt is the word at which dropout.glsl has the places of a part of a longer problem.
const placesAt = 28

// MaxLogitLabel is the module that makes the largest scores -inf before a pass, and the label of its dispatch.
const MaxLogitLabel = "max_logit"

// MaxLogitClears are its specialization constants.
func MaxLogitClears() Constants {
	const threads = 128 // every device allows it
	return Constants{"WG": threads, "MAX_LOGIT": 1}
}

// listEntriesAt is the word at which lists.glsl has the entries of a list, behind where its tensor begins.
const listEntriesAt = 26

// maxLogitAt is the word at which max_logit.glsl has where its tensor begins.
const maxLogitAt = 27

// moreNames are the further arguments as the host writes them.
var moreNames = []string{"bias_off", "bias_sb", "bias_sh", "bias_sn", "bias_sk", "mask_off", "mask_sb", "mask_sh", "mask_sn", "mask_sk",
	"sinks_off", "batch",
	"key_lengths_off", "query_lengths_off",
	"query_starts_off", "key_starts_off", "packed_queries", "packed_keys"}

// cacheNames are those of builds for caches, behind the others.
var cacheNames = []string{"page_table_off", "page_row", "page_count", "page_starts_off", "last_pages_off", "key_scales_off",
	"value_scales_off"}

// checkMore says what is wrong with the further arguments that a module declares.
func checkMore(module string, in *shaders.Interface) error {
	if all := slices.Concat(moreNames, cacheNames); in.More != nil && !slices.Equal(in.More, moreNames) && !slices.Equal(in.More, all) {
		return fmt.Errorf("flash: %s declares further arguments %q, must be %q, or without the last %d", module, in.More, all,
			len(cacheNames))
	}
	return nil
}

// WriteMaxLogit writes where the largest scores begin, behind the further arguments.
func (r *Recorder) WriteMaxLogit(o *Operand) error {
	return r.More.Write(func(raw []byte) { binary.NativeEndian.PutUint32(raw[4*maxLogitAt:], o.Offset) })
}

// WriteMore writes the further arguments. All dispatches of a pass have the same.
func (r *Recorder) WriteMore(p *attn.Problem, s *Scores) error {
	return r.More.Write(func(raw []byte) { s.write(raw, p) })
}

func (s *Scores) write(raw []byte, p *attn.Problem) {
	put := func(i int, v uint32) { binary.NativeEndian.PutUint32(raw[4*i:], v) }
	for i := range s.Of {
		o, of := &s.Of[i], &attn.ScoreOperands[i]
		put(of.More, o.Offset)
		if of.PerScore == nil {
			continue
		}
		for j, stride := range o.Strides {
			put(of.More+1+j, stride)
		}
		put(of.More+4, o.KeyStride)
	}
	put(11, uint32(p.Batch))
	put(16, uint32(p.Packed.Queries))
	put(17, uint32(p.Packed.Keys))
	if p.DrawsWithin() {
		for i, v := range places(p) {
			put(placesAt+i, v)
		}
	}
	if !p.Lists.None() {
		put(listEntriesAt, uint32(p.Lists.Keys))
	}
	if p.Cached() || !p.Lists.None() {
		for i, v := range s.Cache.arguments(p) {
			put(len(moreNames)+i, v)
		}
	}
}

// places are what dropout.glsl is told of a part: queries before it, the draws before its first key, query heads of the whole before its
// own first, batch included, and all heads of an entry.
func places(p *attn.Problem) [4]uint32 {
	w := &p.Within
	return [4]uint32{uint32(w.Query), uint32(4 * (w.Key / attn.DrawKeys)), uint32(w.Batch*w.AllHeads(p.Heads) + w.Head),
		uint32(w.AllHeads(p.Heads))}
}

// ScoreStrides makes an operand's strides those of elements by score: 0 where it has one element for all.
func (o *Operand) ScoreStrides(shape [4]int) {
	for i := range o.Strides {
		if shape[i] == 1 {
			o.Strides[i] = 0
		}
	}
	o.KeyStride = uint32(BoolInt(shape[3] > 1))
}
