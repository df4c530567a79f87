# Targets with a ## comment are listed by `make`.
VERSION := $(shell cat VERSION)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
STATIC  := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w'
# The guest's segments begin at multiples of 2 MB: gVisor copies what is written to in
# such pieces, and one that lies across two of them costs each sandbox 4 MB.
GUEST   := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -R 0x200000'
GVISOR  := $(shell awk '$$1 == "gvisor.dev/gvisor" {print $$2}' cmd/berth-runsc/go.mod)
PREFIX  := /usr/local
PACKED  := server/embedded/files

.DEFAULT_GOAL := help
.PHONY: help build install uninstall release image site demo recording test test-race test-system test-clients test-cluster test-remote test-long chaos bench screenshots profile check generate fmt clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build everything that runs into bin/
	@mkdir -p bin
	@scripts/compile berth-guest . ./cmd/berth-guest env $(GUEST) -o bin/berth-guest ./cmd/berth-guest
	@scripts/compile berth-runsc cmd/berth-runsc . env $(STATIC) -o ../../bin/berth-runsc .
	@CGO_ENABLED=0 go run -trimpath ./server/embedded/pack $(PACKED) bin/berth-guest bin/berth-runsc
	@scripts/compile berth . ./cmd/berth env CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.gVisor=$(GVISOR)' -o bin/berth ./cmd/berth

install: ## Install bin/berth into $(DESTDIR)$(PREFIX)/bin, with manual pages and shell completions
	install -D -m 0755 bin/berth $(DESTDIR)$(PREFIX)/bin/berth
	@mkdir -p $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	bin/berth completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/berth
	bin/berth completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_berth
	bin/berth completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/berth.fish
	bin/berth man $(DESTDIR)$(PREFIX)/share/man/man1

uninstall: ## Remove what make install has installed; the state directory stays
	rm -f $(DESTDIR)$(PREFIX)/bin/berth $(DESTDIR)$(PREFIX)/share/bash-completion/completions/berth \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_berth $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/berth.fish \
		$(DESTDIR)$(PREFIX)/share/man/man1/berth.1 $(DESTDIR)$(PREFIX)/share/man/man1/berth-*.1

release: ## Build all files of a release of this commit into dist/: tarballs, packages, repositories, image, template, chart
	@scripts/release

image: build ## Build an image for amd64 and arm64 into dist/berth-oci.tar, without Docker; IMAGE_ARCHS=amd64 for one, IMAGE_PUSH=registry.example.com/berth:1 to push it
	@scripts/image

site: ## Write the documentation as web pages into dist/site; SITE=DIRECTORY for another directory, which may have other versions
	@go run ./site/publish -version $$(scripts/version) -out $(or $(SITE),dist/site)

demo: ## Analyse a data set with the shell and the code interpreter, and search files, into ./demo-out
	@scripts/demo

recording: ## Record docs/recording.svg anew with bin/berth
	@scripts/record

test: ## Check a change: lint, unit tests, the core of the drivers' suites, a smoke of end-to-end tests
	@scripts/test

test-race: ## Run the packages with goroutines of their own with the race detector
	@scripts/test race

test-system: ## Run the whole suites of the drivers and all end-to-end tests, as root and alone on the machine
	@scripts/test system

test-clients: ## Check that all clients work: SDKs and agent frameworks from PyPI, npm and Go
	@scripts/test clients

test-cluster: ## Check containers as Pods with a real cluster, which is built once in 15 minutes
	@scripts/test-cluster

test-remote: build ## Run the end-to-end tests with state in PostgreSQL and a bucket
	@scripts/test-remote

test-long: ## Run test and test-system with what takes long
	@scripts/test long

chaos: ## Kill the server N times under load, also where the machine lacks something
	@scripts/chaos $(or $(N),1000)

check: ## Check format, lint and known vulnerabilities; needs no root
	@scripts/check

bench: ## Measure, and print tables; BENCH=create,exec for some, COMPARE=old.txt beside a former run
	@scripts/bench

screenshots: build ## Write pictures of the console's pages into ./screenshots
	@scripts/screenshots

profile: ## Write profiles of the server under load into ./profiles
	@BENCH=profile scripts/bench

generate: ## Make generated code anew
	@scripts/generate

fmt: ## Format the code
	gofmt -w $$(git ls-files '*.go')

clean: ## Remove what was built
	rm -rf bin dist demo-out profiles screenshots $(PACKED)/*.zst $(PACKED)/*.sha256
