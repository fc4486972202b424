# The front door: each target hands over to one script in scripts/ or to cargo.

CARGO ?= cargo
PREFIX ?= $(HOME)/.local
CRATES = -p azekura -p azekura-lab -p azekura-preload -p azekura-recorder -p azekura-capi -p azekura-daos

.PHONY: help run stop build test check fuzz install uninstall clean

help:
	@echo "make run     build, start a pool of 4 targets, mount it at ./mnt, and put it to work"
	@echo "make stop    unmount ./mnt and stop that pool; its files stay in ./.azekura"
	@echo "make test    install what the tests need and run all of them"
	@echo "make check   the quick checks only: format, lints, layers, licences"
	@echo "make fuzz    run every fuzz target for FUZZ_SECONDS (default 600) in all"
	@echo "make build   build the programs and the libraries in target/release"
	@echo "make install PREFIX=DIR    build, and install below DIR (default ~/.local)"
	@echo "make uninstall PREFIX=DIR  remove what was installed there"
	@echo "make clean   make stop, then remove that pool's files"

run:
	@scripts/demo.sh

stop:
	@scripts/demo_stop.sh

build:
	@scripts/install.sh build
	$(CARGO) build --release --locked $(CRATES)

test:
	@scripts/install.sh test
	@python3 scripts/test.py

check:
	@scripts/install.sh test
	@python3 scripts/test.py --only format,lints,tidy,layers,licences,shell,python

fuzz:
	@scripts/install.sh build
	@python3 scripts/fuzz.py --seconds $${FUZZ_SECONDS:-600}

install: build
	@scripts/place.sh install "$(PREFIX)"

uninstall:
	@scripts/place.sh uninstall "$(PREFIX)"

clean:
	@scripts/demo_stop.sh --destroy
