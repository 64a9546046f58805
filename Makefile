# The first two targets are all a newcomer needs: `make run`, `make test`.
# Each installs what is missing and says so.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
FUZZ_SECONDS ?= 5

.PHONY: run test build check unit fuzz bench lint clean tools-build tools-bench tools-reports tools-tests tools-observe observe-examples vm-kernel

## run: build in release and compare every path on this machine (about 4 minutes after the build)
run: build
	./target/release/bytepath run

## build: the release binary, target/release/bytepath
build: tools-build
	cargo build --release --locked

## test: everything that needs no special hardware
test: tools-build lint unit fuzz
	@echo "all tests passed"

lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

unit: tools-tests
	tools/unit

## fuzz: every fuzz target for FUZZ_SECONDS
fuzz: tools-build
	fuzz/run $(FUZZ_SECONDS)

## bench: bytepath against iperf3, interleaved, as ratios
bench: build tools-bench
	cargo bench --locked --bench against_iperf3

tools-build:
	@tools/need cargo cc c++

tools-bench:
	@tools/need iperf3 nsenter taskset

## observe-examples: iperf3, nginx and redis, watched by bytepath (as root)
observe-examples: build tools-observe
	examples/observe-iperf3.sh
	examples/observe-nginx.sh
	examples/observe-redis.sh

tools-observe:
	@tools/need iperf3 nginx wrk redis-server redis-benchmark redis-cli ss strace perf

# Programs that tests lay beside bytepath; without them those tests are skipped.
tools-tests: tools-reports vm-kernel
	@tools/need iperf3 strace qemu-system-x86_64 || true

## vm-kernel: the newest Debian kernel and an older one, for guests; nothing is installed
vm-kernel:
	@tools/vm-kernel

# Readers of the reports; without them the tests that need them are skipped.
tools-reports:
	@tools/readers

clean:
	cargo clean
	rm -rf fuzz/target
