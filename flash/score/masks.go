package score

// PrefixLM lets every query see the first n keys, and all up to its own position:
//
//	j < n  or  j ≤ i + Nk − Nq
//
// (Raffel et al., JMLR 2020, section 3.2.1, "prefix LM".)
func PrefixLM(n int) MaskFunction {
	return madeMask(Key().Less(ConstInt(n)).Or(Key().LessEqual(Position())))
}

// Documents keeps attention within documents: ids [Nk] or [B, Nk] says which document each token is of, and
//
//	ids[b, i + Nk − Nq] = ids[b, j]
//
// (As packed training has it: Krell et al., "Efficient Sequence Packing without Cross-contamination", 2021.)
func Documents(ids IntTensor) MaskFunction { return documents(ids, Position(), ids) }

// DocumentsOf is Documents with ids for queries [Nq] or [B, Nq] and ids for keys [Nk] or [B, Nk]: queries[b, i] = keys[b, j].
func DocumentsOf(queries, keys IntTensor) MaskFunction { return documents(queries, Query(), keys) }

func documents(queries IntTensor, query Int, keys IntTensor) MaskFunction {
	return madeMask(perBatch(queries, query).Equal(perBatch(keys, Key())))
}

// perBatch is an element of a tensor [N] or [B, N].
func perBatch(t IntTensor, n Int) Int {
	if t.t != nil && len(t.t.Shape) == 2 {
		return t.At(Batch(), n)
	}
	return t.At(n)
}

// Dilated lets a query see the keys at multiples of step from its position p = i + Nk − Nq, up to reach of them to either side:
//
//	(p − j) mod step = 0  and  |p − j| ≤ step·reach
//
// step must be at least 1; reach less than 0 is no limit. (Beltagy, Peters and Cohan, "Longformer", 2020, section 3.1, "Dilated Sliding
// Window"; without a limit the strided pattern of Child et al., "Generating Long Sequences with Sparse Transformers", 2019, section 4.2.)
func Dilated(step, reach int) MaskFunction {
	if step < 1 {
		return madeMask(Bool{bad("Dilated: step is %d, must be at least 1", step)})
	}
	distance := Position().Sub(Key())
	allowed := distance.Mod(ConstInt(step)).Equal(ConstInt(0))
	if reach >= 0 {
		limit := ConstInt(reach)
		if reach <= 1<<31-1 && step <= 1<<31-1 {
			limit = ConstInt(min(step*reach, 1<<31-1))
		}
		allowed = allowed.And(distance.Abs().LessEqual(limit))
	}
	return madeMask(allowed)
}
