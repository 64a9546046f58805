# A newcomer needs only the first two targets: `make run`, `make test`. Each names what it installs,
# and installs what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
FUZZ_SECONDS ?= 5
FAULTS_SECONDS ?= 180
MUSL := $(shell uname -m)-unknown-linux-musl
# The source in the output of `bytepath --version`: commit, date, and whether it was changed.
COMMIT = $(shell commit=$$(git log -1 --abbrev=12 --format='%h of %cs' 2>/dev/null) && { git diff --quiet HEAD && echo "$$commit" || echo "$$commit, changed"; })
# Programs that tests start; tools/need has their Debian packages.
TEST_PROGRAMS := chromium ip iperf3 jq libc6-dbg python3 qemu-system-x86_64 runc strace
# Servers: they are installed only on request, not by `make test`, which then
# skips the tests that start them.
FLEET_PROGRAMS := munged sbatch slurmctld slurmd ssh sshd

.PHONY: run test test-drivers test-fleet build install static dist package unit timing fuzz faults truth bench bench-rr bench-servers bench-packets lint lint-benches deny clean tools-build tools-bench tools-tests tools-fleet tools-observe observe-examples vm-kernel vm-nic vm-qemu

## run: build in release and compare every path on this machine (at most 90 seconds after the build)
run: build
	@./target/release/bytepath run

## build: the release binary, target/release/bytepath
build: tools-build
	@BYTEPATH_COMMIT="$(COMMIT)" cargo build --release --locked

## install: the release binary for this user, in ~/.cargo/bin
install: tools-build
	BYTEPATH_COMMIT="$(COMMIT)" cargo install --locked --path .

## static: a binary that runs on every distribution of this architecture (musl): target/MUSL/release/bytepath
static: tools-build
	@command -v rustup >/dev/null || { echo "make static needs rustup, which has the library of $(MUSL)" >&2; exit 1; }
	rustup target add $(MUSL)
	BYTEPATH_COMMIT="$(COMMIT)" cargo build --release --locked --bin bytepath --target $(MUSL)
	@echo target/$(MUSL)/release/bytepath

## dist: target/dist: a tar archive and a Debian package of the static binary, tried in a bare Debian
dist: static
	@tools/need strip dpkg-deb mmdebstrap
	tools/dist $(MUSL)
	tools/dist-test

## package: the crates as a registry gets them, built from what is packed
package: tools-build
	cargo package --locked --workspace --exclude bytepath-testing

## test: everything that needs no special hardware; ends with "N passed, N failed, N skipped"
test: tools-tests
	@# The readers are needed when all is built.
	@tools/readers & tools/unit --lint; code=$$?; wait; exit $$code

## test-fleet: hosts by ssh, pairs of hosts, and a fleet on a Slurm of two nodes that the test starts (as root)
test-fleet: tools-build tools-fleet
	cargo test --locked --test lab -- --nocapture ssh:: slurm:: pairs:: hosts:: lost:: given::

## test-drivers: what each driver of an emulated NIC does with each feature; DRIVER=igb, FEATURE=XDP: those alone
test-drivers: tools-tests
	cargo test --locked --test guests -- drivers:: links:: unplugged:: --include-ignored --nocapture --test-threads=1

## lint: format, clippy and documentation of all but the benchmarks; `make test` does the first two
lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --lib --bins --tests --examples -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

## lint-benches: clippy of the benchmarks and the fault campaign
lint-benches:
	cargo clippy --locked --workspace --benches -- -D warnings

## deny: licences, known vulnerabilities and sources of what is used; needs the network
deny:
	@tools/need cargo-deny
	cargo deny --locked check

## unit: the tests without lint; `tools/unit lab` runs one group of unit, it, lab, guests and doc
unit:
	@tools/unit

## timing: tests that a busy machine fails; for an otherwise idle one
timing: tools-build
	cargo test --locked --test it --test lab --test guests -- --ignored timing:: --test-threads=1 --nocapture

## fuzz: every fuzz target for FUZZ_SECONDS; `make test` replays their seeds
fuzz: tools-build
	@tools/need c++
	fuzz/run $(FUZZ_SECONDS)

## faults: the fault campaign for FAULTS_SECONDS (as root); FAULTS_SEED=N repeats a round
faults: tools-build
	FAULTS_SECONDS=$(FAULTS_SECONDS) cargo bench --locked --bench faults

## truth: studies whose true result is known, for BENCH_MINUTES (60) minutes
truth: tools-build
	cargo bench --locked --bench truth

## bench: bytepath against iperf3 and neper, each at its best, as ratios
bench: build tools-bench
	cargo bench --locked --bench peers

tools-build:
	@tools/need cargo cc

## bench-rr: the workload rr against sockperf and qperf, interleaved, as ratios
bench-rr: build tools-bench
	cargo bench --locked --bench rr

## bench-servers: event loops against neper, netperf, and wrk with nginx, interleaved, as ratios
bench-servers: build tools-bench
	@tools/need nginx wrk
	cargo bench --locked --bench servers

## bench-packets: the workload packets against DPDK's testpmd and plain loops, interleaved, as ratios
bench-packets: build tools-bench
	@tools/need dpdk-testpmd
	cargo bench --locked --bench packets

tools-bench:
	@tools/need iperf3 nsenter taskset sysctl sockperf qperf

## observe-examples: iperf3, nginx, redis and ten others, observed by bytepath (as root)
observe-examples: build tools-observe
	examples/observe-iperf3.sh
	examples/observe-nginx.sh
	examples/observe-redis.sh
	examples/observe-programs.py

tools-observe:
	@tools/need iperf3 nginx wrk redis-server redis-benchmark redis-cli ss strace perf \
		python3 curl go haproxy javac node psql rsync ssh sshd setpriv

# Lists what will be installed, then installs it. Without TEST_PROGRAMS, readers or kernels the
# tests that need them are skipped.
tools-tests:
	@tools/need --list cargo cc $(TEST_PROGRAMS)
	@tools/readers --list
	@echo "make test keeps three Debian kernels for guests, a compiler for one of them and, where this machine's is older than 8.0, a QEMU in the user's cache, not installed"
	@tools/need cargo cc
	@tools/need $(TEST_PROGRAMS) || true
	@tools/vm-kernel
	@tools/vm-nic
	@tools/vm-qemu

## tools-fleet: installs OpenSSH's server and Slurm, for tests that start their own; their services may be off
tools-fleet:
	@tools/need ip $(FLEET_PROGRAMS)

## vm-kernel: two Debian kernels of known series, and one with drivers of NICs, for guests; nothing is installed
vm-kernel:
	@tools/vm-kernel

## vm-nic: the software NIC of modules/zcnic for the newest of them; nothing is installed
vm-nic:
	@tools/vm-nic

## vm-qemu: a QEMU that emulates the NIC igb, where this machine's does not; nothing is installed
vm-qemu:
	@tools/vm-qemu

clean:
	cargo clean
	rm -rf fuzz/target
