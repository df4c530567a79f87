// Command bench measures Berth as its users meet it: the built binary, over HTTP,
// with real sandboxes. Beside each figure is the alternative,
// measured in the same run, because machines differ and are busy.
//
// It needs root, bin/berth and a base template, which `make bench` provides. It
// never fails for being slow, only if something did not work. What it makes it
// removes, when it is interrupted as well; what a killed run has left, the next one
// removes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A bench is one run of this program.
type bench struct {
	n      int    // repetitions of quick operations; concurrent sandboxes
	size   int64  // of a large file, in bytes
	rows   int    // responses that are stored for the subject million
	docs   int    // documents that are indexed for the subject search
	state  string // directory for everything that is made
	images string // where the base template is
	bin    string // where the programs are
	out    io.Writer
	saved  io.Writer // results for benchstat; may be nil
	failed int

	profiles string   // directory of the profiles
	locked   *os.File // held open, which holds the lock

	interrupted func() bool
}

// A subject is the topic of one or more tables.
type subject struct {
	name, what string
	measure    func(context.Context, *bench) error
	named      bool // measured only when it is named
}

// subjects are all there are, in the order in which they are measured.
var subjects = []subject{
	{name: "create", what: "from the request for a container to the end of its first command", measure: measureCreate},
	{name: "e2b", what: "sandboxes of E2B's API from the pool, beside containers", measure: measureE2B},
	{name: "exec", what: "commands in a container that runs", measure: measureExec},
	{name: "files", what: "files into a container and out of it", measure: measureFiles},
	{name: "egress", what: "a container's way out", measure: measureEgress},
	{name: "ports", what: "what a container serves", measure: measurePorts},
	{name: "life", what: "pause, resume, snapshot, restore, fork", measure: measureLife},
	{name: "idle", what: "what idle containers cost", measure: measureIdle},
	{name: "desktop", what: "the computer tool in a container; needs the template desktop", measure: measureDesktop,
		named: true},
	{name: "overhead", what: "what Berth adds to a model that answers at once, beside a reverse proxy",
		measure: measureOverhead},
	{name: "chain", what: "turns of a chain of stored responses, beside the model alone", measure: measureChain},
	{name: "scale", what: "1, 2 and 3 servers on one PostgreSQL, beside one with SQLite; containers as Pods",
		measure: measureScale, named: true},
	{name: "million", what: "a new response when 1,000,000 are stored, and the space that deletions return",
		measure: measureMillion, named: true},
	{name: "peers", what: "the same work through OGX, LiteLLM and agentic-api", measure: measurePeers, named: true},
	{name: "search", what: "how well vector stores find 1,200 documents of Debian, with a real embedding model",
		measure: measureSearch, named: true},
	{name: "profile", what: "profiles of the server under the load of overhead and of a long chain, into -profiles",
		measure: measureProfile, named: true},
	{name: "stream", what: "what many streams at once cost", measure: measureStream},
	{name: "parts", what: "Go benchmarks of the engine, a model's adapter and the store", measure: measureParts},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	b := &bench{out: os.Stdout}
	only := flag.String("only", os.Getenv("BENCH"),
		"subjects to measure, with commas between them; default all but those measured only if named")
	flag.IntVar(&b.n, "n", 100, "how often what is quick is done, and how many containers there are at once")
	megabytes := flag.Int64("mb", 1000, "size of the large file, in MB")
	flag.IntVar(&b.rows, "rows", 1_000_000, "how many responses are stored for the subject million")
	flag.IntVar(&b.docs, "docs", 1200, "how many documents are indexed for the subject search")
	flag.StringVar(&b.bin, "bin", "bin", "directory of the built programs")
	flag.StringVar(&b.profiles, "profiles", "", "directory for profiles")
	flag.StringVar(&b.images, "images", "", "directory with the base template; default that of the tests")
	save := flag.String("save", "", "file for the results, in the format of Go benchmarks")
	pods := flag.String("pods", "", "only measure Pods, with state in this directory, and print JSON")
	upstream := flag.String("proxy", "", "only serve a reverse proxy before this URL, until standard input ends")
	flag.Usage = usage
	flag.Parse()
	if *upstream != "" {
		return runProxy(*upstream)
	}
	if *pods != "" {
		podBench{b}.run(*pods)
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("gVisor sandboxes need root here")
	}
	if b.n < 1 || *megabytes < 1 || b.rows < 1 || b.docs < 1 {
		return errors.New("-n, -mb, -rows and -docs are at least 1")
	}
	b.size = *megabytes * 1e6
	if err := b.prepare(); err != nil {
		return err
	}
	if *save != "" {
		f, err := os.Create(*save)
		if err != nil {
			return err
		}
		defer f.Close()
		b.saved = f
		fmt.Fprintf(f, "# %s, %d cores, %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(),
			load())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	b.interrupted = func() bool { return ctx.Err() != nil }
	err = b.measure(ctx, chosen)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err := errors.Join(err, b.cleanUp()); err != nil {
		return err
	}
	if b.failed > 0 {
		return fmt.Errorf("%d operations failed", b.failed)
	}
	return nil
}

func usage() {
	fmt.Fprintln(os.Stderr, "bench measures Berth and prints tables. Subjects:")
	for _, s := range subjects {
		what := s.what
		if s.named {
			what += "; only if it is named"
		}
		fmt.Fprintf(os.Stderr, "  %-8s %s\n", s.name, what)
	}
	flag.PrintDefaults()
}

// choose returns the subjects of a list of names, all for an empty one.
func choose(names string) ([]subject, error) {
	if strings.Trim(names, ". ") == "" {
		return slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return s.named }), nil
	}
	var chosen []subject
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == strings.TrimSpace(name) })
		if i < 0 {
			usage()
			return nil, fmt.Errorf("there is no subject %q", name)
		}
		chosen = append(chosen, subjects[i])
	}
	return chosen, nil
}

// measure measures one subject after the other. An error in one does not prevent the
// measurement of the others.
func (b *bench) measure(ctx context.Context, chosen []subject) error {
	began := time.Now()
	fmt.Fprintf(b.out, "%s, %d cores, %s\n", began.UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), load())
	var errs []error
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(os.Stderr, "[%4.0fs] %s: %s\n", time.Since(began).Seconds(), s.name, s.what)
		if err := s.measure(ctx, b); err != nil && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	fmt.Fprintf(b.out, "\n%.0f s, %s\n", time.Since(began).Seconds(), load())
	return errors.Join(errs...)
}

// load describes the load of the machine.
func load() string {
	raw, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(raw), " ")
	return "load " + one
}

// prepare finds the programs and makes an empty state directory. It is not in the
// system's directory for temporary files, which may be memory.
func (b *bench) prepare() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	tests := filepath.Join(cache, "berth-test", "state")
	if dir := os.Getenv("BERTH_TEST_STATE"); dir != "" {
		tests = dir
	}
	if b.images == "" {
		b.images = filepath.Join(tests, "images")
	}
	for _, path := range []*string{&b.images, &b.bin} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	for _, path := range []string{filepath.Join(b.bin, "berth"), filepath.Join(b.images, "names", "base")} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run make bench, which builds it", err)
		}
	}
	if err := b.lock(filepath.Join(cache, "berth-bench.lock")); err != nil {
		return err
	}
	b.state = filepath.Join(cache, "berth-bench")
	if err := b.cleanUp(); err != nil {
		return fmt.Errorf("remove the remains of a former run: %w", err)
	}
	return os.MkdirAll(b.state, 0o700)
}

// lock refuses a second run at the same time: it would remove what the first has made. The lock
// ends with the process.
func (b *bench) lock(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another run of make bench holds %s: wait until it has ended", path), f.Close())
	}
	b.locked = f
	return nil
}
