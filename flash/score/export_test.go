package score

// SpliceEach puts the n-th function's value and slope in place of the hook 100 + n of testdata/many.comp; a mask's value where there is a
// mask.
func SpliceEach(module []uint32, firstBinding int, functions []Function, masks []MaskFunction) ([]uint32, []Tensor, error) {
	var list []*tensor
	var fragments []*fragment
	for _, f := range functions {
		fragments = append(fragments, (&Code{Score: f}).fragment(HookSlope))
	}
	for _, m := range masks {
		fragments = append(fragments, (&Code{Mask: m}).fragment(HookMask))
	}
	for _, f := range fragments {
		for _, t := range f.tensors {
			if _, err := slotOf(&list, t); err != nil {
				return nil, nil, err
			}
		}
	}
	out, err := splice(module, firstBinding, list, func(h *hookSite) (*fragment, error) {
		f := fragments[int(h.eta-100)%len(fragments)]
		return f, f.bind(list)
	})
	return out, describe(list), err
}
