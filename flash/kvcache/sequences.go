package kvcache

// Add makes a sequence without tokens; it takes no page. The error matches [ErrTooManySequences].
func (c *Cache) Add() (Sequence, error) {
	if err := c.lock(); err != nil {
		return Sequence{}, err
	}
	defer c.mu.Unlock()
	return c.pages.Add()
}

// Fork makes a sequence with the tokens of another. It takes no page: the two share all of them. The first to write into a shared page that
// is partly filled gets a copy of it, which the device makes in that sequence's next step. The error matches [ErrUnknownSequence] or
// [ErrTooManySequences].
func (c *Cache) Fork(s Sequence) (Sequence, error) {
	if err := c.lock(); err != nil {
		return Sequence{}, err
	}
	defer c.mu.Unlock()
	return c.pages.Fork(s)
}

// Truncate takes back the tokens of a sequence from position length on, for instance those of a draft that was not accepted, and pages that
// hold no others. With a window, what Drop gave back stays lost: truncate no further than to where all that the next query sees is still
// there. The error matches [ErrUnknownSequence], or is an [*flash.ArgumentError] for a length beyond the sequence's or before what Drop
// left.
func (c *Cache) Truncate(s Sequence, length int) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	return within.Public(c.pages.Truncate(s, length))
}

// Drop gives back the pages of a sequence whose tokens all stand before a position, for instance before the window of all queries to come.
// Other tokens keep their positions. Kernels take what was dropped for zeros, so that only queries whose window leaves it out see what they
// would have. before ≤ 0 drops nothing. The error matches [ErrUnknownSequence], or is an [*flash.ArgumentError] for a position beyond the
// sequence's length.
func (c *Cache) Drop(s Sequence, before int) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	_, err := c.pages.Drop(s, before)
	return within.Public(err)
}

// Free ends a sequence and gives back its pages but for those that others share. Freeing it again gives an error that matches
// [ErrFreedSequence]; other errors match [ErrUnknownSequence].
func (c *Cache) Free(s Sequence) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	return c.pages.Free(s)
}

// Length is the number of tokens of a sequence, dropped ones among them. The error matches [ErrUnknownSequence].
func (c *Cache) Length(s Sequence) (int, error) {
	if err := c.lock(); err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	return c.pages.Length(s)
}

// FreePages is the number of pages that no sequence has; 0 of a closed cache.
func (c *Cache) FreePages() int {
	if c.lock() != nil {
		return 0
	}
	defer c.mu.Unlock()
	return c.pages.FreePages()
}

// Sequences is the number of sequences that there are; 0 of a closed cache.
func (c *Cache) Sequences() int {
	if c.lock() != nil {
		return 0
	}
	defer c.mu.Unlock()
	return c.pages.Sequences()
}
