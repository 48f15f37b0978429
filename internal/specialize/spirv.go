package specialize

// SPIR-V's numbers (SPIR-V specification, sections 3.20 and 3.49).
const (
	specIDDeco = 1
	loopUnroll = 1 // of loop control

	opNop               = 0
	opUndef             = 1
	opName              = 5
	opLine              = 8
	opTypeBool          = 20
	opTypeInt           = 21
	opTypeFloat         = 22
	opConstantTrue      = 41
	opConstantFalse     = 42
	opConstant          = 43
	opConstantComposite = 44
	opConstantSampler   = 45
	opConstantNull      = 46
	opSpecTrue          = 48
	opSpecFalse         = 49
	opSpecConstant      = 50
	opSpecComposite     = 51
	opSpecOp            = 52
	opFunction          = 54
	opFunctionEnd       = 56
	opVariable          = 59
	opStore             = 62
	opCopyMemory        = 63
	opDecorate          = 71
	opDecorationGroup   = 73
	opGroupDecorate     = 74
	opGroupMember       = 75
	opCopyObject        = 83
	opBitcast           = 124
	opSNegate           = 126
	opIAdd              = 128
	opISub              = 130
	opIMul              = 132
	opUDiv              = 134
	opSDiv              = 135
	opUMod              = 137
	opSRem              = 138
	opSMod              = 139
	opLogicalEqual      = 164
	opLogicalNotEqual   = 165
	opLogicalOr         = 166
	opLogicalAnd        = 167
	opLogicalNot        = 168
	opSelect            = 169
	opIEqual            = 170
	opINotEqual         = 171
	opUGreaterThan      = 172
	opSGreaterThan      = 173
	opUGreaterThanEqual = 174
	opSGreaterThanEqual = 175
	opULessThan         = 176
	opSLessThan         = 177
	opULessThanEqual    = 178
	opSLessThanEqual    = 179
	opShiftRight        = 194
	opShiftRightSigned  = 195
	opShiftLeft         = 196
	opBitwiseOr         = 197
	opBitwiseXor        = 198
	opBitwiseAnd        = 199
	opNot               = 200
	opControlBarrier    = 224
	opMemoryBarrier     = 225
	opAtomicStore       = 228
	opPhi               = 245
	opLoopMerge         = 246
	opSelectionMerge    = 247
	opLabel             = 248
	opBranch            = 249
	opBranchConditional = 250
	opSwitch            = 251
	opKill              = 252
	opReturn            = 253
	opReturnValue       = 254
	opUnreachable       = 255
	opNoLine            = 317
	opDecorateID        = 332
	opMatrixStore       = 4458 // OpCooperativeMatrixStoreKHR
	opTerminate         = 4416 // OpTerminateInvocation
	opReplicated        = 4461 // OpConstantCompositeReplicateEXT
	opSpecReplicated    = 4462 // OpSpecConstantCompositeReplicateEXT
	opDecorateString    = 5632
)

// result is the identifier that an instruction in a function makes; 0 for those that make none. Of an instruction that is not known it may
// be an operand instead.
func result(op uint32, a []uint32) uint32 {
	switch op {
	case opNop, opLine, opNoLine, opStore, opCopyMemory, opControlBarrier, opMemoryBarrier, opAtomicStore, opLoopMerge,
		opSelectionMerge, opBranch,
		opBranchConditional, opSwitch, opKill, opReturn, opReturnValue, opUnreachable, opMatrixStore, opTerminate:
		return 0
	case opLabel:
		return a[0]
	}
	if len(a) < 2 {
		return 0
	}
	return a[1]
}

// terminates says whether an instruction ends a block.
func terminates(op uint32) bool {
	return op >= opBranch && op <= opUnreachable || op == opTerminate
}
