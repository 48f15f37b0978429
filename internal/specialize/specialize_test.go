package specialize

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/shaders"
)

// TestPrograms: random programs store the same, whatever comes in, and are valid as before. Of what constants decide nothing but empty
// blocks is left.
func TestPrograms(t *testing.T) {
	var before, after int
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t)
		module := p.module()
		require.NoError(t, validate(module), "the generator's fault")
		was := slices.Clone(module)
		got, err := Module(module, p.given)
		require.NoError(t, err)
		require.Equal(t, was, module, "it was written to")
		require.NoError(t, validate(got))
		for range 4 {
			input := map[uint32]uint32{p.in[0]: p.small(), p.in[1]: p.small()}
			want, err := run(module, p.given, input)
			require.NoError(t, err)
			trace, err := run(got, nil, input)
			require.NoError(t, err)
			require.Equal(t, want, trace)
		}
		before, after = before+len(module), after+len(got)
	})
	t.Logf("%d words, %d are left", before, after)
	require.Less(t, after, before)
}

// TestDecides: what is left of one branch of each kind.
func TestDecides(t *testing.T) {
	count := func(words []uint32, op uint32) (n int) {
		for at := spirv.HeaderWords; at < len(words); at += int(words[at] >> 16) {
			if words[at]&0xffff == op {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		given  uint32
		stores int
	}{{0, 1}, {1, 2}} {
		b := newBuilder()
		flag, out := b.spec(opSpecFalse, 7, 0), b.variable()
		b.head = append(b.head, spirv.Instruction(opDecorate, 0, 42)...) // NoContraction, of what is made below
		decorated := len(b.head) - 2
		yes, merge := b.id(), b.id()
		b.label(b.id())
		b.emit(opSelectionMerge, merge, 0)
		b.emit(opBranchConditional, flag, yes, merge)
		b.label(yes)
		sum := b.op(b.int, opIAdd, b.constant(1), b.constant(2))
		b.head[decorated] = sum
		b.emit(opStore, out, sum)
		b.emit(opBranch, merge)
		b.label(merge)
		b.emit(opStore, out, b.constant(5))
		b.emit(opReturn)
		got, err := Module(b.module(), map[uint32]uint32{7: c.given})
		require.NoError(t, err)
		require.NoError(t, validate(got))
		require.Equal(t, c.stores, count(got, opStore))
		require.Equal(t, c.stores-1, count(got, opDecorate), "of the constant's number nothing is said any more, nor of what is gone")
		require.Zero(t, count(got, opSpecFalse))
		require.Equal(t, 1, count(got, opConstantFalse-c.given), "true is 41, false 42")
		require.Equal(t, 3, count(got, opLabel), "blocks that instructions name stay")
	}
}

// TestDeadSideThatLeaves: a side that returns leads nowhere, so nothing may come from it to where the other side's values are used.
func TestDeadSideThatLeaves(t *testing.T) {
	b := newBuilder()
	flag, in, out := b.spec(opSpecTrue, 0, 0), b.variable(), b.variable()
	yes, no, merge := b.id(), b.id(), b.id()
	b.label(b.id())
	b.emit(opSelectionMerge, merge, 0)
	b.emit(opBranchConditional, flag, yes, no)
	b.label(yes)
	v := b.op(b.int, opLoad, in)
	b.emit(opBranch, merge)
	b.label(no)
	b.emit(opReturn)
	b.label(merge)
	b.emit(opStore, out, v)
	b.emit(opReturn)
	require.NoError(t, validate(b.module()))
	got, err := Module(b.module(), nil)
	require.NoError(t, err)
	require.NoError(t, validate(got))
	trace, err := run(got, nil, map[uint32]uint32{in: 9})
	require.NoError(t, err)
	require.Equal(t, [][2]uint32{{out, 9}}, trace)
}

// TestUnrolledLoops: the last selection of a loop that is to be unrolled stays, with what it never does; of another loop it goes, and so do
// selections before the last.
func TestUnrolledLoops(t *testing.T) {
	for _, unroll := range []uint32{0, loopUnroll} {
		b := newBuilder()
		flag, out, in := b.spec(opSpecFalse, 0, 0), b.variable(), b.variable()
		entry, header, body, next, merge := b.id(), b.id(), b.id(), b.id(), b.id()
		b.label(entry)
		b.emit(opBranch, header)
		b.label(header)
		again := b.id()
		i := b.op(b.int, opPhi, b.constant(0), entry, again, next)
		more := b.op(b.boolean, opULessThan, i, b.constant(3))
		b.emit(opLoopMerge, merge, next, unroll)
		b.emit(opBranchConditional, more, body, merge)
		b.label(body)
		for range 2 { // selections of which neither is taken
			yes, end := b.id(), b.id()
			b.emit(opSelectionMerge, end, 0)
			b.emit(opBranchConditional, flag, yes, end)
			b.label(yes)
			b.emit(opStore, out, b.op(b.int, opLoad, in))
			b.emit(opBranch, end)
			b.label(end)
		}
		b.emit(opBranch, next)
		b.label(next)
		b.emit(opIAdd, b.int, again, i, b.constant(1))
		b.emit(opBranch, header)
		b.label(merge)
		b.emit(opReturn)
		require.NoError(t, validate(b.module()))
		got, err := Module(b.module(), nil)
		require.NoError(t, err)
		require.NoError(t, validate(got))
		loads := 0
		for at := spirv.HeaderWords; at < len(got); at += int(got[at] >> 16) {
			if got[at]&0xffff == opLoad {
				loads++
			}
		}
		require.Equal(t, int(unroll), loads)
		trace, err := run(got, nil, map[uint32]uint32{in: 9})
		require.NoError(t, err)
		require.Empty(t, trace)
	}
}

// TestWhatMeetsIsDecided: of values that meet, those that do not come count for nothing.
func TestWhatMeetsIsDecided(t *testing.T) {
	b := newBuilder()
	flag, out := b.spec(opSpecFalse, 0, 0), b.variable()
	first, yes, merge, never, end := b.id(), b.id(), b.id(), b.id(), b.id()
	b.label(first)
	b.emit(opSelectionMerge, merge, 0)
	b.emit(opBranchConditional, flag, yes, merge)
	b.label(yes)
	b.emit(opBranch, merge)
	b.label(merge)
	v := b.op(b.int, opPhi, b.constant(5), yes, b.constant(6), first)
	c := b.op(b.boolean, opIEqual, v, b.constant(5))
	b.emit(opSelectionMerge, end, 0)
	b.emit(opBranchConditional, c, never, end)
	b.label(never)
	b.emit(opStore, out, v)
	b.emit(opBranch, end)
	b.label(end)
	b.emit(opReturn)
	got, err := Module(b.module(), nil)
	require.NoError(t, err)
	require.NoError(t, validate(got))
	require.NotContains(t, got, uint32(3<<16|opStore))
}

// TestBitsOfComposites: of what a constant with several components is as an integer nothing is known: a branch on it keeps both sides, and
// so does one on what it meets with a constant.
func TestBitsOfComposites(t *testing.T) {
	const opTypeVector = 23
	for _, kind := range []uint32{opConstantComposite, opSpecComposite, opReplicated, opSpecReplicated} {
		for _, meets := range []bool{false, true} {
			b := newBuilder()
			small, pair, part, both := b.id(), b.id(), b.id(), b.id()
			b.global(opTypeInt, small, 16, 0)
			b.global(opTypeVector, pair, small, 2)
			b.global(opConstant, small, part, 3)
			if kind == opReplicated || kind == opSpecReplicated {
				b.global(kind, pair, both, part)
			} else {
				b.global(kind, pair, both, part, part)
			}
			in, out := b.variable(), b.variable()
			first, yes, merge, taken, end := b.id(), b.id(), b.id(), b.id(), b.id()
			b.label(first)
			v := b.op(b.int, opBitcast, both)
			if meets {
				loaded := b.op(b.int, opLoad, in)
				b.emit(opSelectionMerge, merge, 0)
				b.emit(opBranchConditional, b.op(b.boolean, opIEqual, loaded, b.constant(0)), yes, merge)
				b.label(yes)
				b.emit(opBranch, merge)
				b.label(merge)
				v = b.op(b.int, opPhi, b.constant(7), yes, v, first)
			}
			c := b.op(b.boolean, opIEqual, v, b.constant(7))
			b.emit(opSelectionMerge, end, 0)
			b.emit(opBranchConditional, c, end, taken)
			b.label(taken)
			b.emit(opStore, out, v)
			b.emit(opBranch, end)
			b.label(end)
			b.emit(opReturn)
			got, err := Module(b.module(), nil)
			require.NoError(t, err, "%d %v", kind, meets)
			require.Contains(t, got, uint32(3<<16|opStore), "%d %v", kind, meets)
			branches := 1
			if meets {
				branches++
			}
			for _, word := range got {
				if word == 4<<16|opBranchConditional {
					branches--
				}
			}
			require.Zero(t, branches, "%d %v", kind, meets)
		}
	}
}

// TestSelectionThatLeaves: a decided selection whose taken side leaves for what is around it is none any more, and no block that is never
// reached stays for its end: Mesa takes such a one for a way out of the function, and loads of a loop that it then does not unroll wait for
// each other.
func TestSelectionThatLeaves(t *testing.T) {
	b := newBuilder()
	flag, out := b.spec(opSpecTrue, 0, 1), b.variable()
	around, first, yes, no, end := b.id(), b.id(), b.id(), b.id(), b.id()
	b.label(around)
	b.emit(opSelectionMerge, end, 0)
	b.emit(opSwitch, b.constant(0), first)
	b.label(first)
	b.emit(opSelectionMerge, no, 0)
	b.emit(opBranchConditional, flag, yes, no)
	b.label(yes)
	b.emit(opStore, out, b.constant(1))
	b.emit(opBranch, end)
	b.label(no)
	b.emit(opStore, out, b.constant(2))
	b.emit(opBranch, end)
	b.label(end)
	v := b.op(b.int, opPhi, b.constant(5), yes, b.constant(6), no)
	b.emit(opStore, out, v)
	b.emit(opReturn)
	got, err := Module(b.module(), nil)
	require.NoError(t, err)
	require.NoError(t, validate(got))
	left := 0
	for _, word := range got {
		if word == 3<<16|opSelectionMerge {
			left++
		}
	}
	require.Equal(t, 1, left)
	require.NotContains(t, got, uint32(1<<16|opUnreachable))
}

// TestEvaluate: each operation, at the ends of its range, and where SPIR-V leaves the result undefined.
func TestEvaluate(t *testing.T) {
	const least, most, minus = 1 << 31, math.MaxInt32, math.MaxUint32
	for _, c := range []struct {
		op   uint32
		x    []uint32
		want uint32
	}{
		{opCopyObject, []uint32{7}, 7}, {opBitcast, []uint32{minus}, minus}, {opSNegate, []uint32{least}, least},
		{opSNegate, []uint32{3}, minus - 2},
		{opNot, []uint32{5}, minus - 5}, {opLogicalNot, []uint32{0}, 1}, {opLogicalNot, []uint32{1}, 0},
		{opIAdd, []uint32{minus, 3}, 2}, {opISub, []uint32{2, 5}, minus - 2}, {opIMul, []uint32{1 << 20, 1<<12 + 1}, 1 << 20},
		{opUDiv, []uint32{minus, 2}, most},
		{opSDiv, []uint32{minus - 6, 2}, minus - 2}, {opUMod, []uint32{minus, 16}, 15}, {opSRem, []uint32{minus - 6, 4}, minus - 2},
		{opSMod, []uint32{minus - 6, 4}, 1},
		{opSMod, []uint32{7, minus - 3}, minus}, {opSMod, []uint32{8, 4}, 0}, {opShiftRight, []uint32{least, 31}, 1},
		{opShiftRightSigned, []uint32{least, 31}, minus},
		{opShiftLeft, []uint32{3, 31}, least}, {opBitwiseOr, []uint32{5, 3}, 7}, {opBitwiseAnd, []uint32{5, 3}, 1},
		{opBitwiseXor, []uint32{5, 3}, 6},
		{opLogicalOr, []uint32{0, 1}, 1}, {opLogicalAnd, []uint32{0, 1}, 0}, {opLogicalEqual, []uint32{0, 0}, 1},
		{opLogicalEqual, []uint32{1, 0}, 0},
		{opLogicalNotEqual, []uint32{1, 0}, 1}, {opSelect, []uint32{1, 8, 9}, 8}, {opSelect, []uint32{0, 8, 9}, 9},
		{opIEqual, []uint32{4, 4}, 1}, {opINotEqual, []uint32{4, 4}, 0}, {opUGreaterThan, []uint32{minus, 1}, 1},
		{opSGreaterThan, []uint32{minus, 1}, 0},
		{opUGreaterThanEqual, []uint32{1, minus}, 0}, {opSGreaterThanEqual, []uint32{1, minus}, 1}, {opULessThan, []uint32{minus, 1}, 0},
		{opSLessThan, []uint32{minus, 1}, 1},
		{opULessThanEqual, []uint32{1, 1}, 1}, {opSLessThanEqual, []uint32{1, minus}, 0},
	} {
		v, ok := evaluate(c.op, c.x)
		require.True(t, ok, "%d of %v", c.op, c.x)
		require.Equal(t, c.want, v, "%d of %v", c.op, c.x)
	}
	for _, c := range [][]uint32{{opUDiv, 1, 0}, {opUMod, 1, 0}, {opSDiv, 1, 0}, {opSDiv, least, minus}, {opSRem, least, minus},
		{opSMod, 3, 0}, {opShiftLeft, 1, 32},
		{opShiftRight, 1, 32}, {opShiftRightSigned, 1, 40}, {opLoad, 1}, {opIAdd, 1}, {opSelect, 1, 1}, {opPhi, 1, 2, 3}} {
		_, ok := evaluate(c[0], c[1:])
		require.False(t, ok, "%v", c)
	}
}

// TestModules: every module that ships becomes smaller, with its own values, and nothing is left to specialize.
func TestModules(t *testing.T) {
	for _, name := range shaders.Names() {
		code, err := shaders.Module(name)
		require.NoError(t, err)
		got, err := Module(code, nil)
		require.NoError(t, err, name)
		require.Less(t, len(got), len(code)+1, name)
		for at := spirv.HeaderWords; at < len(got); at += int(got[at] >> 16) {
			op := got[at] & 0xffff
			require.False(t, op >= opSpecTrue && op <= opSpecComposite, "%s: %d", name, op)
			require.False(t, op == opDecorate && got[at+2] == specIDDeco, name)
		}
	}
}

// TestRevision: what is made of a module is what other processes that had this revision made, and keep on disk. Where this fails, that has
// changed, or newProgram has: a revision more, and give this test the hash that goes with it.
func TestRevision(t *testing.T) {
	h := sha256.New()
	add := func(words []uint32, given map[uint32]uint32) {
		made, err := Module(words, given)
		require.NoError(t, err)
		h.Write(spirv.Bytes(made))
	}
	programs := rapid.Custom(newProgram)
	for seed := range 40 {
		p := programs.Example(seed)
		add(p.module(), p.given)
	}
	for _, file := range []string{"../../pipeline/testdata/mix.spv", "../../flash/score/testdata/hooks.spv",
		"../../flash/score/testdata/branches.spv", "../../flash/score/testdata/many.spv"} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		words := make([]uint32, len(raw)/4)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
		add(words, map[uint32]uint32{0: 32, 1: 5})
	}
	want := map[int]string{4: "15efd1b5cbab7b91e3af7851723345cf8d110cc0b1494637db0932bb328d604a"}
	require.Equal(t, want[Revision], hex.EncodeToString(h.Sum(nil)))
}

// TestNotHandled: what it says of modules that are none, or have what it leaves alone.
func TestNotHandled(t *testing.T) {
	whole := func(f func(b *builder)) []uint32 {
		b := newBuilder()
		f(b)
		b.label(b.id())
		b.emit(opReturn)
		return b.module()
	}
	wide := whole(func(b *builder) { b.global(opTypeInt, b.id(), 64, 0) })
	at := slices.Index(wide, 1<<16|opReturn)
	wide = slices.Concat(wide[:at], spirv.Instruction(opSwitch, 1, wide[at-1]), wide[at+1:])
	for want, words := range map[string][]uint32{
		"not a SPIR-V module":           {1, 2, 3},
		"the bound of identifiers is 0": {spirv.Magic, 0x10300, 0, 0, 0},
		"reaches beyond the module":     append(whole(func(*builder) {}), 9<<16),
		"decorations by groups":         whole(func(b *builder) { b.head = spirv.Instruction(opDecorationGroup, b.id()) }),
		"switch on 64 bits":             wide,
		"has 1 operands, must have 3":   whole(func(b *builder) { b.global(opConstant, 3) }),
		"is not below the bound":        whole(func(b *builder) { b.global(opConstant, b.int, 1<<20, 0) }),
		"another type than bool, integer": whole(func(b *builder) {
			w := b.id()
			b.global(opTypeInt, w, 16,
				0)
			b.int = w
			b.spec(opSpecConstant, 0, 1)
		}),
		"is not in the function of block": whole(func(b *builder) { b.label(b.id()); b.emit(opBranch, 99) }),
		"a function without end":          whole(func(*builder) {})[:len(whole(func(*builder) {}))-1],
		"an instruction behind functions": append(whole(func(*builder) {}), 1<<16),
	} {
		_, err := Module(words, map[uint32]uint32{0: 5})
		require.ErrorContains(t, err, want)
	}
}

// TestDamage: of a module in which words are wrong there is a result or an error.
func TestDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t)
		words := p.module()
		for range rapid.IntRange(1, 4).Draw(t, "wrong") {
			at := rapid.IntRange(1, len(words)-1).Draw(t, "word")
			words[at] = rapid.OneOf(rapid.Uint32(), rapid.Uint32Max(300), rapid.Just(words[at]^1<<16),
				rapid.SampledFrom(words)).Draw(t, "is")
		}
		Module(words[:rapid.IntRange(0, len(words)).Draw(t, "words")], p.given)
		Module(words, p.given)
	})
}

// FuzzModule is the same for whatever words.
func FuzzModule(f *testing.F) {
	whole := rapid.Custom(func(t *rapid.T) []uint32 { return newProgram(t).module() })
	for i := range 20 {
		var raw []byte
		for _, w := range whole.Example(i) {
			raw = binary.LittleEndian.AppendUint32(raw, w)
		}
		f.Add(raw)
	}
	f.Fuzz(func(_ *testing.T, raw []byte) {
		words := make([]uint32, len(raw)/4)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
		Module(words, map[uint32]uint32{0: 1})
	})
}
