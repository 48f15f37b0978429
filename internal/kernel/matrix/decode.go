package matrix

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/vk"
)

// Decode is FlashAttention-2 on cooperative matrices for few queries, keys in parts: shaders/matrix/matrix_decode.comp. Keys and values go
// from memory into the registers of fragments, so that what bounds it is memory and not arithmetic.
var Decode = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           DecodeKernel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can: attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked | attn.WithPages | attn.WithQuantised |
			attn.WithMaxLogit,
		MostRows: LeastDecodeRows,
		Parameters: kernel.GroupBound.And(kernel.SideRanges, kernel.IndirectRange, kernel.RowRanges(DecodeKernel).Only("w", "keys"),
			kernel.Parameters{
				kernel.DecodeParameter: kernel.OnOff, "rows": kernel.Between(1, DecodeRows), "parts": kernel.PartsRange,
			}),
		Yields:      true,
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: decodeUnsupported,
	},
	Plan:       planDecode,
	Candidates: decodeCandidates,
}

// DecodeRows is the most rows of a key head, queries of all query heads that read it, that matrix_decode takes: with 16 of them
// matrix_forward, which stages keys for many rows, is as fast, and with 32 faster.
const DecodeRows = 16

// QuantisedDecodeRows is the same of keys and values in blocks, where matrix_forward makes numbers of them on the way into shared memory:
// here rows are cut into blocks, of which each makes them anew in registers. LeastDecodeRows is that of keys that have a least number
// besides, which matrix_forward stages as two elements (docs/notes/decode.md).
const (
	QuantisedDecodeRows = 32
	LeastDecodeRows     = 64
)

// mostDecodeRows is the most rows of a key head for the types of keys and values.
func mostDecodeRows(p *attn.Problem) int {
	switch {
	case p.KeyType.Block() == 1 || p.ValueType.Block() == 1:
		return DecodeRows
	case attn.HasLeast(p.KeyType):
		return LeastDecodeRows
	}
	return QuantisedDecodeRows
}

// DecodeKernel is the kernel's name, and the label of its dispatches.
const DecodeKernel = "matrix_decode"

// decodeUnsupported says what the device or the problem lacks.
func decodeUnsupported(c *kernel.Capabilities, p *attn.Problem) string {
	if rows, most := p.QueryLen*p.Group(), mostDecodeRows(p); rows > most {
		return fmt.Sprintf("%d rows for each key head: it takes up to %d of %v keys and %v values", rows, most, p.KeyType, p.ValueType)
	}
	for _, of := range []struct {
		t       attn.DType
		columns int
	}{{p.KeyType, p.HeadDim}, {p.ValueType, p.ValueDim}} {
		if of.t.Float8() && of.columns%8 != 0 {
			return fmt.Sprintf("rows of %d numbers of %v: it takes them in eights", of.columns, of.t)
		}
	}
	if p.DType == attn.BF16 && (p.KeyType.Quantised() || p.ValueType.Quantised()) {
		return "quantised numbers would be rounded to the eight bits of bf16"
	}
	return c.LacksMatrix(p.DType)
}

// asksForDecode says whether the caller names this kernel, or what only it has.
func asksForDecode(t *kernel.Tuning) bool {
	_, rows := t.Given["rows"]
	_, keys := t.Given["keys"]
	return rows || keys || t.Given[kernel.DecodeParameter] == 1
}

func planDecode(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	if e.Caps.Facts.Type == vk.DeviceCPU && !asksForDecode(t) {
		return nil, &kernel.Declined{Why: "a driver on a CPU compiles it for seconds, and gains nothing; the parameter decode asks for it"}
	}
	fragment, layout, err := decodeFragment(e, p, t)
	if err != nil {
		return nil, err
	}
	tile, err := ChooseDecodeTile(&e.Caps, p, fragment, &layout, t)
	if err != nil {
		return nil, err
	}
	return tile.fused(p, &layout).Forward(e, p, t)
}

// fused is the kernel with this tile.
func (t DecodeTile) fused(p *attn.Problem, l *kernel.FragmentLayout) *pass.Fused {
	return &pass.Fused{Label: DecodeKernel, Module: kernel.CacheModule(DecodeKernel, p) + "." + p.DType.Suffix(), Tile: t.String(),
		Parts: t.Parts, Groups: t.Groups, Rows: t.blocks, FLOPs: p.ForwardFLOPs(), Pace: kernel.MatrixPace,
		Moves: traffic.QueriesOutside{Label: DecodeKernel, Rows: t.Rows, Keys: 1, Batch: t.Keys, Packed: true, NoneUnseen: true,
			Parts: t.Parts, Combine: kernel.CombineLabel(t.Parts)},
		Buffers: pass.Views, Made: t.Fragment.Subgroups(),
		Constants: func(p *attn.Problem, v kernel.Variant) kernel.Constants { return t.Constants(p, l, v) },
		SelfCheck: func(p *attn.Problem) attn.Problem { return pass.SelfCheckOfFew(p, t.W*t.Keys, t.Parts) }}
}

// decodeFragment takes the fragment of the fewest rows beyond those there are, of those whose layout lets lanes load their own elements; of
// several the largest, which takes the fewest instructions.
func decodeFragment(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Fragment, kernel.FragmentLayout, error) {
	all := slices.Clone(e.Caps.Fragments(p.DType))
	rows := p.QueryLen * p.Group()
	padded := func(s kernel.Fragment) int { return attn.CeilDiv(rows, s.N) * s.N }
	slices.SortStableFunc(all, func(a, b kernel.Fragment) int {
		if d := padded(a) - padded(b); d != 0 {
			return d
		}
		return b.M*b.N*b.K - a.M*a.N*a.K
	})
	return firstFragment(e, p.DType, all, t, decodeLacks)
}

// firstFragment takes the first of some fragments, as they are asked for, whose layout lacks nothing.
func firstFragment(e *kernel.Env, dtype attn.DType, all []kernel.Fragment, t *kernel.Tuning,
	lacks func(*kernel.FragmentLayout) string) (kernel.Fragment, kernel.FragmentLayout, error) {
	why := "the device has no fragments as they are asked for"
	for _, s := range all {
		if asked := (kernel.Fragment{M: t.Get("fm", s.M), N: t.Get("fn", s.N), K: t.Get("fk", s.K), Lanes: s.Lanes}); asked != s {
			continue
		}
		layout, err := e.Layout(dtype, s)
		if err != nil {
			return s, layout, err
		}
		if why = lacks(&layout); why == "" {
			return s, layout, nil
		}
	}
	return kernel.Fragment{}, kernel.FragmentLayout{}, &kernel.Declined{Why: why}
}

// decodeLacks says why lanes cannot load the elements of fragments with this layout themselves, "" where they can.
func decodeLacks(l *kernel.FragmentLayout) string {
	if l.Form != kernel.FormRegisters {
		return "lanes do not hold the elements of an operand as they do those of an accumulator: " + l.Why
	}
	// A piece of eight numbers is dealt to whole fragments.
	if held := len(l.AOfComp) / len(l.RowOfSlot); 8%len(l.RowOfSlot) != 0 || 8%held != 0 {
		return fmt.Sprintf("lanes hold %d rows and %d columns of an operand, which must divide 8", len(l.RowOfSlot), held)
	}
	return ""
}

// Constants are the specialization constants of matrix_decode.
func (t *DecodeTile) Constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant) kernel.Constants {
	f := &t.Fragment
	c := kernel.Constants{"WG": t.Threads(), "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "RN": t.fragments(), "MEET": t.Meet}
	if p.Cached() {
		c["PATCH"] = max(t.patch(p), 1)
		c["K_BYTES"], c["K_WIDE"] = stagedRow(p.KeyType, p.HeadDim, v.Aligned)
		c["V_BYTES"], c["V_WIDE"] = stagedRow(p.ValueType, p.ValueDim, v.Aligned)
	}
	return c.And(decodeFields.Constants(t), columnConstants(l, f), l.Constants(), kernel.ForwardConstants(p, v), kernel.LengthConstants(p),
		kernel.MaxLogitConstants(p))
}

// stagedRow is the bytes of a row of a quantised tensor, and the words that are loaded at a time: attn.Layout.Aligned says where rows
// begin. What is not quantised has one.
func stagedRow(t attn.DType, columns int, aligned bool) (bytes, wide int) {
	if !t.Quantised() {
		return 1, 1
	}
	switch bytes = t.Bytes(columns); {
	case aligned && t.Block() > 1 && bytes%8 == 0:
		return bytes, 2
	case aligned && bytes%4 == 0:
		return bytes, 1
	}
	return bytes, 0
}

// columnConstants number the columns of operand A that a lane holds: which of them a component is, and where it lies.
func columnConstants(l *kernel.FragmentLayout, f *kernel.Fragment) kernel.Constants {
	own := slices.Clone(l.ColOfComp) // of an accumulator, several of which side by side are as wide as the operand
	slices.Sort(own)
	own = slices.Compact(own)
	var columns, number []int
	for n := range f.K / f.N {
		for _, c := range own {
			columns = append(columns, n*f.N+c)
		}
		for _, c := range l.ColOfComp {
			number = append(number, n*len(own)+slices.Index(own, c))
		}
	}
	c := kernel.Constants{}
	c["J_OF_COMP_LO"], c["J_OF_COMP_HI"] = kernel.Nibbles(number)
	c["COL_OF_J_LO"], c["COL_OF_J_HI"] = kernel.Nibbles(columns)
	return c
}

// decodeCandidates are neighbours of what is chosen.
func decodeCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	all := c.Fragments(p.DType)
	if len(all) == 0 {
		return nil
	}
	row := c.First(p, all[0], DecodeKernel)
	var out []map[string]int
	for _, w := range []int{2, 4, 8} {
		for _, keys := range []int{16, 32} {
			for _, beside := range []int{1, 2, 3, 4} {
				m := map[string]int{"w": w, "keys": keys, "parts": kernel.PartsBeside(p, row, beside*4/w*c.Prediction().Count,
					uint64(p.Batch*p.KeyHeads), kernel.DecodeMostBytes)}
				if !slices.ContainsFunc(out, func(o map[string]int) bool { return maps.Equal(o, m) }) {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// DecodeTile is the shape of matrix_decode's work; the shader says what each number means.
type DecodeTile struct {
	Fragment kernel.Fragment
	Rows     int // of a workgroup
	W        int // subgroups of a workgroup
	Keys     int // of a batch
	Parts    int // of the keys
	Meet     int // rows that subgroups add up at the same time
}

// decodeFields are the numbers of a DecodeTile; rows of tables name all but rows and parts.
var decodeFields = kernel.Fields[DecodeTile]{
	{Name: "w", Of: func(t *DecodeTile) any { return &t.W }},
	{Name: "keys", Constant: "KEYS", Of: func(t *DecodeTile) any { return &t.Keys }},
	{Name: "rows", Constant: "ROWS", Of: func(t *DecodeTile) any { return &t.Rows }},
	{Name: "parts", Constant: "PARTS", Of: func(t *DecodeTile) any { return &t.Parts }},
}

func (t *DecodeTile) Threads() int { return t.W * t.Fragment.Lanes }

// fragments is the number of fragments that hold the rows.
func (t *DecodeTile) fragments() int { return attn.CeilDiv(t.Rows, t.Fragment.N) }

// String is rows of a workgroup x keys of a batch, and the fragment.
func (t *DecodeTile) String() string {
	return fmt.Sprintf("%dx%d %v%s", t.Rows, t.Keys, t.Fragment, kernel.PartsSuffix(t.Parts))
}

// Groups is the number of workgroups for one part.
func (t *DecodeTile) Groups(p *attn.Problem) uint64 {
	return t.blocks(p).Most(p) * uint64(p.KeyHeads)
}

// blocks is how queries, of all query heads of a key head, are cut.
func (t *DecodeTile) blocks(p *attn.Problem) kernel.RowBlocks {
	return kernel.RowBlocks{Rows: t.Rows, Columns: t.Keys, Members: p.Group()}
}

// registers is the number of words that a lane holds of Q and O.
func (t *DecodeTile) registers(p *attn.Problem) int {
	rows := t.fragments() * t.Fragment.N
	return rows * (p.HeadDim/2 + p.ValueDim) / t.Fragment.Lanes
}

// patch is the words through which a subgroup's batch of quantised rows passes, 0 where there are none.
func (t *DecodeTile) patch(p *attn.Problem) int {
	words := 0
	for _, x := range []struct {
		t       attn.DType
		columns int
	}{{p.KeyType, p.HeadDim}, {p.ValueType, p.ValueDim}} {
		if x.t.Quantised() {
			words = max(words, attn.CeilDiv(x.t.Bytes(x.columns), 8)*2)
		}
	}
	return t.Keys * words
}

// shared is the shared memory of a workgroup in bytes: Q, weights, sums of subgroups with their m and l, patches, and pairs of iq4_nl's
// table.
func (t *DecodeTile) shared(p *attn.Problem) int {
	rows := t.fragments() * t.Fragment.N
	columns := attn.CeilDiv(p.HeadDim, 8*t.Fragment.K)*8*t.Fragment.K + 8
	values := attn.CeilDiv(p.ValueDim, 8*t.Fragment.M) * 8 * t.Fragment.M
	table := 0
	if p.KeyType == attn.IQ4_NL || p.ValueType == attn.IQ4_NL {
		table = 4 * 256
	}
	return 2*rows*columns + 2*t.W*t.Keys*(rows+8) + 4*t.W*t.Meet*values + 8*t.W*t.Rows + 4*t.W*t.patch(p) + table
}

// complete chooses what depends on other choices: rows of sums in shared memory.
func (t *DecodeTile) complete(p *attn.Problem, most int) {
	for t.Meet = max(t.Rows, 1); t.Meet > 1 && t.shared(p) > most; {
		t.Meet--
	}
}

// Check gives the rule that a tile breaks on a device, and the parameter that does, "" when it breaks none.
func (t *DecodeTile) Check(p *attn.Problem, c *kernel.Capabilities) (name, why string) {
	all := p.QueryLen * p.Group()
	switch f := &t.Fragment; {
	case t.Rows < 1 || t.Rows > all:
		return "rows", fmt.Sprintf("must be from 1 to the %d rows of a key head", all)
	case t.Keys < 1 || t.Keys%f.M != 0 || t.Keys%f.K != 0:
		return "keys", fmt.Sprintf("must be a multiple of the fragment's M = %d and K = %d", f.M, f.K)
	}
	if !p.Pages.None() && t.Keys > mostNotedKeys {
		return "keys", fmt.Sprintf("must be at most %d of keys in pages", mostNotedKeys)
	}
	return "w", kernel.CheckSubgroups(t.W, t.Fragment.Lanes, t.shared(p), c)
}

// mostNotedKeys is the keys that fit into the word in which a lane notes whose pages there are not, whatever the fragments: a lane has all
// of them at the most.
const mostNotedKeys = 32

// ChooseDecodeTile takes the first row, cuts rows into blocks of at most DecodeRows, so that Q and O fit the registers that it names, and
// keys into parts until the device is full. Overrides from t replace single numbers.
func ChooseDecodeTile(c *kernel.Capabilities, p *attn.Problem, s kernel.Fragment, l *kernel.FragmentLayout,
	t *kernel.Tuning) (DecodeTile, error) {
	row := c.First(p, s, DecodeKernel)
	tile := DecodeTile{Fragment: s}
	decodeFields.Read(&tile, row)
	all, registers, side := p.QueryLen*p.Group(), row.Get("registers"), max(s.M, s.K)
	tile.Rows, tile.Keys = all, attn.CeilDiv(tile.Keys, side)*side
	for blocks := 2; (tile.registers(p) > registers || tile.Rows > DecodeRows) && tile.Rows > s.N; blocks++ {
		tile.Rows = attn.CeilDiv(all, blocks)
	}
	decodeFields.Take(&tile, t, "", "rows", "w", "keys")
	tile.Parts = kernel.PartsBeside(p, row, row.Get("beside")*c.Prediction().Count, tile.Groups(p), kernel.DecodeMostBytes)
	decodeFields.Take(&tile, t, "", "parts")
	tile.complete(p, min(row.Get("shared_kib")<<10, int(c.Facts.Limits.MaxSharedMemory)))
	if name, why := tile.Check(p, c); why != "" {
		return DecodeTile{}, t.BadTile(name, why)
	}
	t.Took(row)
	return tile, nil
}
