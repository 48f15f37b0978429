package standard

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// TestStandardTileFitsAnyDevice is the same for standard attention.
func TestStandardTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		p := kerneltest.Problem(attn.Problem{Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"),
			KeyLen:  rapid.IntRange(1, 70000).Draw(t, "nk"),
			HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
			DType: attn.DType(rapid.IntRange(0, 2).Draw(t, "dtype"))})
		tile, err := ChooseScalarTile(c, p, kernel.NewTuning(nil))
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if why := tile.Check(p, &c.Facts.Limits); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		if k := tile.RowKeep; k != 0 && 4*tile.RowThreads*k < p.KeyLen {
			t.Fatalf("%+v does not keep a row of %d", tile, p.KeyLen)
		}
	})
}
