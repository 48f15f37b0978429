package rows

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// bytesTensor is a tensor somewhere in a buffer of noise, every byte of which is known.
type bytesTensor struct {
	whole, tensor *flash.Tensor
	dtype         attn.DType
	offset        int // bytes
	shape         [4]int
	strides       [4]int
	bytes         []byte
}

// newBytes lays a tensor out without gaps, as [B, H, N, D] or [B, N, H, D] in memory, or with gaps, rows of types of a byte anywhere, or
// with gaps that leave rows of 64s of columns aligned to 16 bytes and to blocks that begin at words; oddBlocks the same with an odd number
// of blocks from row to row.
func newBytes(t *testing.T, d *flash.Device, r *rand.Rand, dtype flash.DType, shape [4]int, layout int) *bytesTensor {
	t.Helper()
	x := &bytesTensor{dtype: attn.DType(dtype), shape: shape}
	unit := x.dtype.Block()
	align := map[flash.DType]int{flash.F32: 4, flash.F8E4M3: 1, flash.F8E5M2: 1}[dtype]
	if align == 0 {
		align = 2
	}
	switch layout % 4 {
	case 0:
		x.strides = attn.Contiguous(shape)
	case 1:
		x.strides, x.offset = attn.ContiguousBNHD(shape), 3*align
	case inUnits:
		row := shape[3] + 128 // [H, N, B, D]
		if layout == oddBlocks {
			row = shape[3] + 32
		}
		x.strides, x.offset = [4]int{row, shape[2]*shape[0]*row + 128, shape[0] * row, 1}, 16
	default:
		row := shape[3] + unit
		x.strides, x.offset = [4]int{shape[1]*(shape[2]*row+3*unit) + unit, shape[2]*row + 3*unit, row, 1}, 5*align
	}
	end := x.row(shape[0]-1, shape[1]-1, shape[2]-1) + x.dtype.Bytes(shape[3])
	x.bytes = make([]byte, (end+19)/4*4)
	for i := range x.bytes {
		x.bytes[i] = byte(r.Uint32())
	}
	var err error
	x.whole, err = d.NewTensor(flash.Int32, 1, 1, 1, len(x.bytes)/4)
	require.NoError(t, err)
	require.NoError(t, x.whole.UploadBytes(t.Context(), x.bytes))
	x.tensor, err = x.whole.View(uint64(x.offset), dtype, shape, x.strides)
	require.NoError(t, err)
	return x
}

// row is where a row begins in the buffer.
func (x *bytesTensor) row(b, h, i int) int {
	return x.offset + x.dtype.Bytes(b*x.strides[0]+h*x.strides[1]+i*x.strides[2])
}

func (x *bytesTensor) put(b, h, i int, values []float32) {
	attn.Encode(x.dtype, x.bytes[x.row(b, h, i):], values)
}

// expect compares the buffer with what should be in it, byte by byte.
func (x *bytesTensor) expect(t *testing.T, name string) {
	t.Helper()
	got := make([]byte, len(x.bytes))
	require.NoError(t, x.whole.DownloadBytes(t.Context(), got))
	for i := range got {
		if got[i] != x.bytes[i] {
			t.Fatalf("byte %d of %s of %v is %#x and should be %#x", i, name, x.dtype, got[i], x.bytes[i])
		}
	}
}

// integers is a tensor of them, guarded by others.
func integers(t *testing.T, d *flash.Device, shape [4]int, values []int) *flash.Tensor {
	t.Helper()
	const before = 3
	raw := make([]byte, 0, 4*(len(values)+2*before))
	for i := range len(values) + 2*before {
		v := 1<<20 + i
		if at := i - before; at >= 0 && at < len(values) {
			v = values[at]
		}
		raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
	}
	whole, err := d.NewTensor(flash.Int32, 1, 1, 1, len(raw)/4)
	require.NoError(t, err)
	require.NoError(t, whole.UploadBytes(t.Context(), raw))
	x, err := whole.View(4*before, flash.Int32, shape, [4]int{})
	require.NoError(t, err)
	return x
}

// appendCase is an append as a test has it: the problem, and in At and Counts the numbers of each entry, or in Entries and At those of each
// token.
type appendCase struct {
	AppendProblem
	at, counts, entries []int
	positions           []int // of each row where Rotary.Positions says so
	table               [][]int
	layout              int
	aligned             bool // rows of all tensors lie so that many columns can be moved at once
	odd                 bool // the same, but those of caches and queries begin an odd number of blocks apart
	inPlace             bool // of queries
}

// laid is the layout of the case's tensor number i, of so many layouts.
func (c *appendCase) laid(i, of int) int {
	switch {
	case c.odd:
		return oddBlocks
	case c.aligned:
		return inUnits
	}
	return (c.layout + i) % of
}

// token is a row as the host model has it: where it comes from, the entry it goes to (none: −1), its place and its position.
type token struct{ b, i, entry, place, position int }

func (c *appendCase) tokens() (out []token) {
	for t := range c.Tokens {
		entry := c.entries[t]
		if entry < 0 || entry >= c.Batch {
			entry = -1
		}
		out = append(out, token{0, t, entry, c.at[t], c.at[t]})
	}
	if c.Tokens > 0 {
		return out
	}
	for b := range c.Batch {
		for i := range c.Rows {
			x := token{b, i, b, c.at[b] + i, c.at[b] + i}
			if c.positions != nil {
				x.position = c.positions[b*c.Rows+i]
			}
			if c.Counts && i >= c.counts[b] {
				x.entry = -1
			}
			out = append(out, x)
		}
	}
	return out
}

// place is where a token's row lies in the cache.
func (c *appendCase) place(x token) (b, row int, ok bool) {
	switch {
	case x.entry < 0:
		return 0, 0, false
	case c.Pages != flash.Pages{}:
		return ref.InPages(c.table[x.entry], c.Pages.Count, c.Pages.Size, x.place)
	case c.Circular:
		return x.entry, (x.place%c.CacheRows + c.CacheRows) % c.CacheRows, true
	}
	return x.entry, x.place, x.place >= 0 && x.place < c.CacheRows
}

// tableTensors are the table of pages of the case's form; lists shorter than a dense table's rows end in −1.
func (c *appendCase) tableTensors(t *testing.T, d *flash.Device, f *Append) {
	if c.Pages.PerSequence > 0 {
		var all []int
		for _, list := range c.table {
			for i := range c.Pages.PerSequence {
				page := -1
				if i < len(list) {
					page = list[i]
				}
				all = append(all, page)
			}
		}
		f.PageTable = integers(t, d, [4]int{1, 1, c.Batch, c.Pages.PerSequence}, all)
		return
	}
	starts, all := []int{0}, []int{}
	for _, list := range c.table {
		all = append(all, list...)
		starts = append(starts, len(all))
	}
	for len(all) < c.Pages.Indices {
		all = append(all, 0) // of no entry
	}
	f.PageTable, f.PageStarts = integers(t, d, [4]int{1, 1, 1, c.Pages.Indices}, all), integers(t, d, [4]int{1, 1, 1, c.Batch + 1}, starts)
}

// turnedBy is rows in fp32 after the turn of the case, by the kernel for rotations, which is compared with the oracle on the way.
func (c *appendCase) turnedBy(t *testing.T, d *flash.Device, x ref.Tensor, f *Append,
	angle func(x token, j int) (cos, sin float64)) ref.Tensor {
	t.Helper()
	if c.Rotary == nil {
		return x
	}
	turn, err := c.Rotary.check(x.D)
	require.NoError(t, err)
	turn.Positions = !turn.PerToken
	given := turn
	if turn.Table == 0 && !turn.PerToken {
		given.Base, given.Scale = 0, 0
	} else {
		given.Frequencies = nil
	}
	p := RotateProblem{Batch: x.B, Heads: x.H, Rows: x.N, HeadDim: x.D, DType: flash.F32, Rotary: given}
	plan, err := PlanRotate(d, p)
	require.NoError(t, err)
	defer plan.Close()
	from, to := plainly(t, d)(flash.F32, [4]int{x.B, x.H, x.N, x.D}), plainly(t, d)(flash.F32, [4]int{x.B, x.H, x.N, x.D})
	require.NoError(t, from.Upload(t.Context(), x.Data))
	rotation := Rotation{X: from, Y: to, Cos: f.Cos, Sin: f.Sin}
	all := c.tokens()
	if turn.Positions {
		positions := make([]int, len(all))
		for i, x := range all {
			positions[i] = x.position
		}
		rotation.Positions = integers(t, d, [4]int{1, 1, x.B, x.N}, positions)
	}
	require.NoError(t, plan.Rotate(t.Context(), rotation))
	y := ref.NewTensor(x.B, x.H, x.N, x.D)
	require.NoError(t, to.Download(t.Context(), y.Data))
	right := turned(t, x, turn, false, func(b, i, j int) (float64, float64) { return angle(all[b*x.N+i], j) })
	for i, v := range right.Data {
		require.InDelta(t, v, y.Data[i], 4e-6*max(1, math.Abs(v)), "element %d", i)
	}
	return y
}

// run appends, and compares every byte of caches and queries with the host's.
func (c *appendCase) run(t *testing.T, seed uint64) {
	t.Helper()
	d, r := testDevice(t), rand.New(rand.NewPCG(seed, 14))
	plan, err := PlanAppend(d, c.AppendProblem)
	require.NoError(t, err)
	defer plan.Close()
	all := c.tokens()
	b, n := c.Batch, c.Rows
	if c.Tokens > 0 {
		b, n = 1, c.Tokens
	}
	stored := func(q flash.DType) flash.DType {
		if attn.DType(q).Quantised() {
			return q
		}
		return c.DType
	}
	room := [2]int{c.Batch, c.CacheRows}
	var f Append
	if (c.Pages != flash.Pages{}) {
		room = [2]int{c.Pages.Count, c.Pages.Size}
		c.tableTensors(t, d, &f)
	}
	each := [4]int{1, 1, 1, c.Batch}
	if c.Tokens > 0 {
		f.TokenBatch, f.Positions = integers(t, d, [4]int{1, 1, 1, n}, c.entries), integers(t, d, [4]int{1, 1, 1, n}, c.at)
	} else {
		f.At = integers(t, d, each, c.at)
	}
	if c.Counts {
		f.Counts = integers(t, d, each, c.counts)
	}
	if c.positions != nil {
		f.Positions = integers(t, d, [4]int{1, 1, b, n}, c.positions)
	}
	var angle func(x token, j int) (float64, float64)
	if c.Rotary != nil {
		turn, err := c.Rotary.check(c.HeadDim)
		require.NoError(t, err)
		angle = func(x token, j int) (float64, float64) {
			a := float64(x.position) * turn.Frequencies[j]
			return math.Cos(a), math.Sin(a)
		}
		if turn.Table > 0 || turn.PerToken {
			shape := [4]int{1, 1, turn.Table, turn.Columns / 2}
			if turn.PerToken {
				shape = [4]int{b, 1, n, turn.Columns / 2}
			}
			cos, sin := newGuarded(t, d, r, flash.F32, shape, c.layout%3), newGuarded(t, d, r, flash.F32, shape, (c.layout+1)%3)
			f.Cos, f.Sin = cos.tensor, sin.tensor
			angle = func(x token, j int) (float64, float64) {
				at := [2]int{x.b, x.i}
				if !turn.PerToken {
					at = [2]int{0, min(max(x.position, 0), turn.Table-1)}
				}
				return float64(cos.values[cos.row(at[0], 0, at[1])+j]), float64(sin.values[sin.row(at[0], 0, at[1])+j])
			}
		}
	}

	put := func(cache *bytesTensor, rows ref.Tensor, scales []float32) {
		for _, x := range all {
			page, row, ok := c.place(x)
			if !ok {
				continue
			}
			for h := range c.KeyHeads {
				values := append([]float32(nil), rows.Row(x.b, h, x.i)...)
				for i := range values {
					if scales != nil {
						values[i] /= scales[x.entry*c.KeyHeads+h]
					}
				}
				cache.put(page, h, row, values)
			}
		}
	}
	scales := func(q flash.DType) (*flash.Tensor, []float32) {
		if !attn.DType(q).Float8() {
			return nil, nil
		}
		s := make([]float32, c.Batch*c.KeyHeads)
		for i := range s {
			s[i] = float32(math.Exp(r.NormFloat64()*3) / 100)
		}
		x := plainly(t, d)(flash.F32, [4]int{1, 1, c.Batch, c.KeyHeads})
		require.NoError(t, x.Upload(t.Context(), s))
		return x, s
	}
	keys := newGuarded(t, d, r, c.DType, [4]int{b, c.KeyHeads, n, c.HeadDim}, c.laid(0, 4))
	keyCache := newBytes(t, d, r, stored(c.KeyType), [4]int{room[0], c.KeyHeads, room[1], c.HeadDim}, c.laid(1, 4))
	f.K, f.KeyCache = keys.tensor, keyCache.tensor
	var s []float32
	f.KeyScales, s = scales(c.KeyType)
	put(keyCache, c.turnedBy(t, d, keys.elements(), &f, angle), s)
	var valueCache, queries *bytesTensor
	if !c.KeysOnly {
		dim := c.ValueDim
		if dim == 0 {
			dim = c.HeadDim
		}
		values := newGuarded(t, d, r, c.DType, [4]int{b, c.KeyHeads, n, dim}, c.laid(1, 4))
		valueCache = newBytes(t, d, r, stored(c.ValueType), [4]int{room[0], c.KeyHeads, room[1], dim}, c.laid(2, 4))
		f.V, f.ValueCache = values.tensor, valueCache.tensor
		f.ValueScales, s = scales(c.ValueType)
		put(valueCache, values.elements(), s)
	}
	if c.Heads > 0 {
		shape := [4]int{b, c.Heads, n, c.HeadDim}
		q := newGuarded(t, d, r, c.DType, shape, c.laid(2, 3))
		f.Q, queries = q.tensor, newBytes(t, d, r, c.DType, shape, c.laid(0, 4))
		if c.inPlace {
			raw := make([]byte, q.whole.Bytes())
			attn.Encode(attn.DType(c.DType), raw, q.values)
			queries = &bytesTensor{whole: q.whole, dtype: attn.DType(c.DType), offset: q.offset * c.DType.Size(), shape: q.shape,
				strides: q.strides, bytes: raw}
		} else {
			f.RotatedQ = queries.tensor
		}
		rows := c.turnedBy(t, d, q.elements(), &f, angle)
		for _, x := range all {
			for h := range c.Heads {
				if x.entry >= 0 {
					queries.put(x.b, h, x.i, rows.Row(x.b, h, x.i))
				}
			}
		}
	}
	require.NoError(t, plan.Append(t.Context(), f))
	keyCache.expect(t, "the keys")
	if valueCache != nil {
		valueCache.expect(t, "the values")
	}
	if queries != nil {
		queries.expect(t, "the queries")
	}
	keys.expect(t, wide(keys.values), nil)
}

// cacheTypes are all types of caches: that of the rows, which is 0, and those that they are quantised to.
func cacheTypes() []flash.DType {
	types := []flash.DType{0}
	for _, t := range attn.QuantisedTypes() {
		types = append(types, flash.DType(t))
	}
	return types
}

// shuffledPages is tables of pages for entries of these lengths, no page twice but the first `shared` of all, in a pool of more pages than
// that.
func shuffledPages(r *rand.Rand, size, shared int, lengths ...int) (table [][]int, pages int) {
	pages = shared + 2
	for _, n := range lengths {
		pages += attn.CeilDiv(n, size)
	}
	free := r.Perm(pages)
	common := free[:shared]
	free = free[shared:]
	for _, n := range lengths {
		list := append([]int(nil), common...)
		for len(list)*size < n {
			list, free = append(list, free[0]), free[1:]
		}
		table = append(table, list)
	}
	return table, pages
}

func (c *appendCase) String() string {
	text := fmt.Sprintf("%v keys %v values %v, %d of %d and %d heads of %d and %d", c.DType, attn.DType(c.KeyType), attn.DType(c.ValueType),
		c.Batch, c.KeyHeads, c.Heads,
		c.HeadDim, c.ValueDim)
	if (c.Pages != flash.Pages{}) {
		text += fmt.Sprint(", ", c.Pages)
	}
	return text
}
