package flash

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
)

// Pages says that keys and values lie in pages of two pools, from which batch entries of all lengths take what they need (Kwon et al.,
// "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4). Forward.K and V are the pools then,
// of shape [Count, KeyHeads, Size, ·] with any strides: memory [Count, Size, KeyHeads, ·] (NHD) is a tensor of NewTensorBNHD, [Count,
// KeyHeads, Size, ·] (HND) one of NewTensor. Key j of batch entry b is row j mod Size of the page whose number stands in Forward.PageTable
// for b at j / Size:
//
//	dense        PerSequence > 0: PageTable is Int32 [1, 1, Batch, PerSequence]; lengths are those of Problem.KeyLengths, or all KeyLen
//	compressed   Indices > 0: PageTable is Int32 [1, 1, 1, Indices], that of b from PageStarts[b] up to PageStarts[b+1]
//	             (Int32 [1, 1, 1, Batch+1]), and LastPages[b] (Int32 [1, 1, 1, Batch]) is the number of rows of its last page,
//	             from 1 to Size, or anything, 0 say, of an entry without pages: FlashInfer's form
//
// Pages may be shared by entries and stand in any order; a cache of flash/kvcache keeps pools and tables. A number outside
// of the pool is never followed: such keys and values are zeros.
type Pages struct {
	Size        int // rows of a page, a power of two from 1 to 65536
	Count       int // pages of each pool
	PerSequence int // columns of a dense table; PerSequence·Size ≥ KeyLen
	Indices     int // page numbers of a compressed table
}

// String gives the pages, for example "1024 of 16 rows, 64 for each entry".
func (g Pages) String() string { return attn.Pages(g).String() }

// mostPage is the most rows of a page.
const mostPage = 1 << 16

// check checks the fields for themselves; name is that of the problem they are a field of.
func (g Pages) check(name string) error {
	for _, f := range []struct {
		name         string
		value, least int
	}{{"Count", g.Count, 1}, {"PerSequence", g.PerSequence, 0}, {"Indices", g.Indices, 0}} {
		if f.value < f.least || f.value > math.MaxInt32/2 {
			return badArgument(name+".Pages."+f.name, f.value, "must be from %d to %d", f.least, math.MaxInt32/2)
		}
	}
	switch {
	case g.Size < 1 || g.Size > mostPage || g.Size&(g.Size-1) != 0:
		return badArgument(name+".Pages.Size", g.Size, "must be a power of two from 1 to %d", mostPage)
	case (g.PerSequence > 0) == (g.Indices > 0):
		return badArgument(name+".Pages", g, "one of PerSequence, for a dense table, and Indices, for a compressed one, must be above 0")
	}
	return nil
}

// checkPages checks where keys and values lie.
func (p *Problem) checkPages() error {
	g := p.Pages
	if g == (Pages{}) {
		return nil
	}
	if err := g.check("Problem"); err != nil {
		return err
	}
	switch {
	case g.PerSequence > 0 && g.PerSequence < attn.CeilDiv(p.KeyLen, g.Size):
		return badArgument("Problem.Pages.PerSequence", g.PerSequence, "must be at least %d, the pages of KeyLen = %d keys",
			attn.CeilDiv(p.KeyLen, g.Size), p.KeyLen)
	case g.Indices > 0 && p.KeyLengths:
		return badArgument("Problem.KeyLengths", p.KeyLengths, "must be false with a compressed table of pages, whose LastPages give the "+
			"lengths")
	}
	return nil
}

// checkTypes checks the types of keys and values.
func (p *Problem) checkTypes() error {
	if err := checkStored("Problem.KeyType", p.KeyType, p.DType, "Problem.HeadDim", p.HeadDim); err != nil {
		return err
	}
	return checkStored("Problem.ValueType", p.ValueType, p.DType, "Problem.ValueDim", p.ValueDim)
}

// checkStored checks the type of keys or values of so many columns in a cache.
func checkStored(name string, t, dtype DType, dimName string, dim int) error {
	return public(attn.CheckStored(name, attn.DType(t), attn.DType(dtype), dimName, dim))
}
