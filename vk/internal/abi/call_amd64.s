//go:build !windows

#include "textflag.h"

GLOBL ·runAddress(SB), NOPTR|RODATA, $8
DATA ·runAddress(SB)/8, $run<>(SB)

// run makes the calls of the batch at DI. It is called, and calls, as the System V ABI has it: six arguments in registers, the others on
// the stack, which is aligned to 16 bytes.
TEXT run<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BP
	MOVQ  SP, BP
	PUSHQ BX
	PUSHQ R12
	SUBQ  $32, SP
	MOVQ  0(DI), BX  // batch.next
	MOVQ  8(DI), R12 // batch.end

next:
	CMPQ BX, R12
	JCC  done
	MOVQ 56(BX), AX // call.args[6] and on
	MOVQ AX, 0(SP)
	MOVQ 64(BX), AX
	MOVQ AX, 8(SP)
	MOVQ 72(BX), AX
	MOVQ AX, 16(SP)
	MOVQ 80(BX), AX
	MOVQ AX, 24(SP)
	MOVQ 8(BX), DI  // call.args[0] and on
	MOVQ 16(BX), SI
	MOVQ 24(BX), DX
	MOVQ 32(BX), CX
	MOVQ 40(BX), R8
	MOVQ 48(BX), R9
	MOVQ 0(BX), AX  // call.function
	CALL AX
	MOVQ AX, 88(BX) // call.result
	ADDQ $96, BX
	JMP  next

done:
	ADDQ $32, SP
	POPQ R12
	POPQ BX
	POPQ BP
	XORL AX, AX
	RET
