//go:build mpi && cgo

package mpi

/*
#cgo pkg-config: ompi-c
#include <mpi.h>
#include <stdlib.h>

// An op is a request and the memory that MPI reads or writes until it is done.
typedef struct {
	MPI_Request request;
	int source;
	int *counts; // of every rank, and where its bytes begin: of gatherings only
	char *data;
	size_t size;
} op;

static int duplicate(MPI_Comm *to) {
	int e = MPI_Comm_dup(MPI_COMM_WORLD, to);
	return e != MPI_SUCCESS ? e : MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN);
}
static int begin(int *rank, int *size, int *host_rank, int *host_size) {
	// Its handlers of signals run on no stack of their own, which Go's need: a fault is Go's to tell.
	setenv("OMPI_MCA_opal_signal", "", 0);
	int e, provided;
	MPI_Comm host;
	if ((e = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided))) return e;
	if ((e = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN))) return e;
	if ((e = MPI_Comm_rank(MPI_COMM_WORLD, rank)) || (e = MPI_Comm_size(MPI_COMM_WORLD, size))) return e;
	if ((e = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host))) return e;
	if ((e = MPI_Comm_rank(host, host_rank)) || (e = MPI_Comm_size(host, host_size))) return e;
	return MPI_Comm_free(&host);
}
static int send_bytes(op *o, int to, int tag, MPI_Comm c) { return MPI_Isend(o->data, (int)o->size, MPI_BYTE, to, tag, c, &o->request); }
static int receive_bytes(op *o, int from, int tag, MPI_Comm c) {
	return MPI_Irecv(o->data, (int)o->size, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, tag, c, &o->request);
}
static int gather(op *o, int size, MPI_Comm c) { // the rank's own bytes lie where they belong
	return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, o->data, o->counts, o->counts + size, MPI_BYTE, c, &o->request);
}
static int barrier(op *o, MPI_Comm c) { return MPI_Ibarrier(c, &o->request); }
static int test(op *o, int *done) {
	MPI_Status s;
	s.MPI_SOURCE = -1;
	int e = MPI_Test(&o->request, done, &s);
	o->source = s.MPI_SOURCE;
	return e;
}
static void text(int code, char *out) {
	int n;
	if (MPI_Error_string(code, out, &n) != MPI_SUCCESS) out[0] = 0;
}
enum { text_size = MPI_MAX_ERROR_STRING + 1 };
*/
import "C"

import (
	"strings"
	"unsafe"
)

// Each of these runs on the thread that owns MPI, except for newOp and free.

// op is memory of C with the request that uses it.
type op struct{ c *C.op }

func newOp(size int) op {
	o := (*C.op)(C.calloc(1, C.sizeof_op))
	o.size = C.size_t(size)
	o.data = (*C.char)(C.malloc(C.size_t(max(size, 1))))
	return op{o}
}

func (o op) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(o.c.data)), int(o.c.size)) }
func (o op) source() int   { return int(o.c.source) }
func (o op) free() {
	C.free(unsafe.Pointer(o.c.counts))
	C.free(unsafe.Pointer(o.c.data))
	C.free(unsafe.Pointer(o.c))
}

// lay sets how many bytes each rank has in a gathering: they lie one behind the other.
func (o op) lay(counts []int) {
	o.c.counts = (*C.int)(C.malloc(C.size_t(2 * len(counts) * C.sizeof_int)))
	all := unsafe.Slice(o.c.counts, 2*len(counts))
	at := 0
	for i, n := range counts {
		all[i], all[len(counts)+i] = C.int(n), C.int(at)
		at += n
	}
}

// failed makes an error of what a call has returned.
func failed(call string, rank int, code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	text := (*C.char)(C.calloc(1, C.text_size))
	defer C.free(unsafe.Pointer(text))
	C.text(code, text)
	return &Error{Call: call, Rank: rank, Text: strings.TrimSpace(C.GoString(text))}
}

// library is what MPI has of this process: a communicator each for messages, for gatherings and for what ranks say of themselves.
type library struct {
	rank, size, hostRank, hostSize int
	data, gathers, control         C.MPI_Comm
}

func begin() (*library, error) {
	var l library
	var rank, size, hostRank, hostSize C.int
	if err := failed("MPI_Init_thread", -1, C.begin(&rank, &size, &hostRank, &hostSize)); err != nil {
		return nil, err
	}
	l.rank, l.size, l.hostRank, l.hostSize = int(rank), int(size), int(hostRank), int(hostSize)
	for _, to := range []*C.MPI_Comm{&l.data, &l.gathers, &l.control} {
		var c C.MPI_Comm
		if err := failed("MPI_Comm_dup", -1, C.duplicate(&c)); err != nil {
			return nil, err
		}
		*to = c
	}
	return &l, nil
}

func (l *library) send(o op, to, tag int) error {
	return failed("MPI_Isend", to, C.send_bytes(o.c, C.int(to), C.int(tag), l.data))
}
func (l *library) receive(o op, from, tag int) error {
	return failed("MPI_Irecv", from, C.receive_bytes(o.c, C.int(from), C.int(tag), l.data))
}
func (l *library) tell(o op, to int) error {
	return failed("MPI_Isend", to, C.send_bytes(o.c, C.int(to), 0, l.control))
}
func (l *library) listen(o op) error {
	return failed("MPI_Irecv", -1, C.receive_bytes(o.c, -1, 0, l.control))
}
func (l *library) gather(o op) error {
	return failed("MPI_Iallgatherv", -1, C.gather(o.c, C.int(l.size), l.gathers))
}
func (l *library) barrier(o op) error { return failed("MPI_Ibarrier", -1, C.barrier(o.c, l.gathers)) }

func (l *library) test(o op, rank int) (bool, error) {
	var done C.int
	code := C.test(o.c, &done)
	return done != 0, failed("MPI_Test", rank, code)
}

func (l *library) finalize() error { return failed("MPI_Finalize", -1, C.MPI_Finalize()) }
