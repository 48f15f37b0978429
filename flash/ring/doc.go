// Package ring is exact attention over several devices, or larger than one: each rank keeps its queries, keys and values go from rank to
// rank, and what a rank's queries get from each block of keys is put together by its log-sum-exp. Where heads divide, ranks can have all
// tokens of some heads instead, with one exchange of all with all before and one after ([Heads]), or the ranks of a host can, inside a ring
// over hosts ([Both]).
//
// Sources: Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023; Brandon et al., "Striped
// Attention", 2023, for the imbalance of causal masks, with the zigzag order of github.com/zhuzilin/ring-flash-attention; Jacobs et al.,
// "DeepSpeed Ulysses", 2023, for heads over devices.
package ring
