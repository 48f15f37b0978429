# make bench    set up what is missing, then measure attention on this machine
# make test     set up what is missing, then test every kernel and form, and every option once, some twelve minutes on two CPU cores (TESTFLAGS: more flags of go test)
# make test-all the same with the whole suite, a quarter to three quarters of an hour where a CPU is the device
# make race     tests of what goroutines share, under the race detector
# make build    bin/vkattn
# make lib      bin/libvkattn.so and bin/vkattn.h, the C interface (docs/c.md)
# make test-view  tests of windows, on displays of their own (sets up X11's headers, Xvfb, xdotool and twm on Debian and Ubuntu)
# make test-lib   the C interface: builds it, and programs in C and Python that call it, and runs these, within a minute
# make test-mpi   tests of ranks that are processes, joined by MPI (sets up Open MPI on Debian and Ubuntu)
# make test-swiftshader  every option of the fp32 kernels on SwiftShader, a second CPU driver, a minute and a half (Debian only)
# make view     bin/vkattn with its window, and bin/viewer: `tools/run.sh bin/vkattn view` (sets up X11's headers on Debian and Ubuntu)
# make shaders  compile the GLSL again (fetches a shader compiler where there is none new enough)
# make lint     gofmt and go vet
# make windows  go vet for Windows, and bin/vkattn.exe; no C compiler is needed
# make test-nocgo  without cgo: package vk, recordings, faults and steady states of kernels, what the command says of devices; a minute
# make cross    go build and go vet without cgo for Windows, macOS and Linux on other processors
# make clean    remove what make built here (not the cache in ~/.cache/vkattn)

.PHONY: build lib view bench test test-all test-lib test-view test-mpi test-swiftshader test-nocgo cross race shaders lint windows clean

build:
	go build -o bin/vkattn ./cmd/vkattn

lib:
	go build -buildmode=c-shared -o bin/libvkattn.so ./cmd/libvkattn
	@rm -f bin/libvkattn.h # cgo's, which has no comments
	cp cmd/libvkattn/vkattn.h bin/vkattn.h

view:
	@tools/setup.sh --window
	go build -tags view -o bin/vkattn ./cmd/vkattn
	go build -tags view -o bin/viewer ./examples/viewer

bench:
	@tools/setup.sh
	go build -o bin/vkattn ./cmd/vkattn
	@tools/run.sh bin/vkattn bench --suite quick

test:
	@tools/setup.sh
	@tools/test.sh -short $(TESTFLAGS)

test-all:
	@tools/setup.sh
	@tools/test.sh $(TESTFLAGS)

test-lib: lib
	@tools/setup.sh
	@tools/test.sh -short $(TESTFLAGS) ./cmd/libvkattn

test-view:
	@tools/setup.sh --display
	go vet -tags view ./cmd/vkattn/internal/view/... ./examples/viewer ./cmd/vkattn
	@tools/test.sh -short -tags view $(TESTFLAGS) ./cmd/vkattn/internal/view/window ./examples/viewer
	@tools/test.sh -short -tags view -run View $(TESTFLAGS) ./cmd/vkattn

test-mpi:
	@tools/setup.sh --mpi
	go vet -tags mpi ./flash/ring/mpi ./cmd/vkattn
	@tools/test.sh -short -tags mpi $(TESTFLAGS) ./flash/ring/mpi
	@tools/test.sh -short -tags mpi -run MPI $(TESTFLAGS) ./cmd/vkattn

# On a second driver that computes, with subgroups of 4: the cover of TestConformance (each option of each scalar kernel, both passes,
# caches, maps), ONNX's cases, sizes of one and scores far from zero, with the validation layers; then head dimensions up to 576, and golden
# vectors. Other tests ask for what it does not have, 16-bit tensors above all, nor has it matrices, whatever CI requires of other drivers.
SWIFTSHADER := ^Test(Conformance|EveryTierIsThere|ScoresFarFromZero|Folder|SizesOfOne|KeysInParts|Operators|RigNoticesMistakes)$$

test-swiftshader: export VKATTN_DRIVER := swiftshader
test-swiftshader: export VKATTN_REQUIRE_DEVICE := 1
test-swiftshader: export VKATTN_REQUIRE_VALIDATION := 1
test-swiftshader: export VKATTN_REQUIRE_MATRIX :=
test-swiftshader:
	@tools/setup.sh
	go build -o bin/vkattn ./cmd/vkattn
	@tools/run.sh bin/vkattn doctor --device SwiftShader --limit 1s --quiet
	@tools/test.sh -short -run '$(SWIFTSHADER)' $(TESTFLAGS) ./cmd/vkattn/internal/conformance
	@tools/run.sh bin/vkattn verify --device SwiftShader --tier scalar --run '^(dim|few/d|wide)' --no-skipped --quiet
	@tools/run.sh bin/vkattn verify --device SwiftShader --impl flash,standard --vectors testdata/vectors --run f32 --no-skipped --quiet

# What differs without cgo is how Vulkan is called, how libraries are opened, and who makes instances; kernels are the same.
NOCGO := Fault|SteadyState|AllocatesNothing|^TestSDPA|BesideUse|Attach

test-nocgo: export CGO_ENABLED := 0
test-nocgo:
	@tools/setup.sh
	go vet ./vk/... ./pipeline ./examples/...
	@tools/test.sh -short $(TESTFLAGS) ./vk/... ./pipeline
	@tools/test.sh -short -run '$(NOCGO)' $(TESTFLAGS) ./flash
	@tools/test.sh -short -run '^TestInfo|WithoutWindow|MPIWithout' $(TESTFLAGS) ./cmd/vkattn

cross: export CGO_ENABLED := 0
cross:
	GOOS=windows GOARCH=amd64 go vet ./...
	GOOS=windows GOARCH=amd64 go build ./...
	GOOS=darwin GOARCH=arm64 go build ./...
	GOOS=linux GOARCH=arm64 go build ./...

# Kernels on matrices are left out: the driver compiles them for minutes, and shares nothing of ours.
race:
	@tools/setup.sh
	@tools/test.sh -race -short $(TESTFLAGS) ./vk ./pipeline
	@tools/test.sh -race -short -run 'BesideUse|EndsWaits|UseAfterClose|Verdicts|Transfers|TestZeroValues|KnownFile' $(TESTFLAGS) ./flash
	@tools/test.sh -race -short -run 'Goroutines|StepInFlight|Moves|Misuse' $(TESTFLAGS) ./flash/kvcache ./flash/hostmem
	@tools/test.sh -race -short -run TestThreads $(TESTFLAGS) ./cmd/libvkattn/internal/door

shaders:
	tools/glslc.sh

lint:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go vet -tags vkattn_novulkango ./vk # instances as macOS makes them

windows: export GOOS := windows
windows: export GOARCH := amd64
windows: export CGO_ENABLED := 0
windows:
	go vet ./...
	go build -o bin/vkattn.exe ./cmd/vkattn

clean:
	rm -rf bin
