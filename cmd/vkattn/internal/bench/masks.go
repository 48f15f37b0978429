package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// masks are what a case's passes take of the blocks of its scores: a block mask, or the classes that its mask function makes of them.
type masks struct {
	blocks  *flash.BlockMask
	classes *flash.MaskBlocks
}

// masks puts those of a case into device memory; nil where it has none.
func (d *Device) masks(ctx context.Context, c Case) (m masks, err error) {
	p, err := c.Problem()
	if err != nil {
		return m, err
	}
	if b := c.blockMask(); b != nil {
		m.blocks, err = d.dev.NewBlockMask(ctx, p, b.Data)
	}
	if err == nil && p.MaskBlocks != (flash.Blocks{}) {
		m.classes, err = d.dev.NewMaskBlocks(ctx, p)
	}
	return m, err
}

// Close frees them.
func (m masks) Close() error { return errors.Join(m.blocks.Close(), m.classes.Close()) }

// shares are those of blocks of each class, "empty 88.0%, full 10.9%, partial 1.1%"; "" without classes.
func (m masks) shares(ctx context.Context) (string, error) {
	if m.classes == nil {
		return "", nil
	}
	empty, full, partial, err := m.classes.Count(ctx)
	percent := func(n int) float64 { return 100 * float64(n) / float64(empty+full+partial) }
	return fmt.Sprintf("empty %.1f%%, full %.1f%%, partial %.1f%%", percent(empty), percent(full), percent(partial)), err
}
