package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/freeport"
)

// A scarcity is what the server lacks while it is killed again and again.
type scarcity struct {
	name  string
	state func(t *testing.T) string     // makes the state directory; nil is a temporary one
	setup func(t *testing.T, s *server) // before the first start
	spell func(t *testing.T, s *server) // between two kills, in some of the rounds
	share int                           // of the kills, of 10
}

// TestChaos kills the server at random moments under a mixed load and starts it again.
// Nothing may be lost, doubled or out of order: each client says what it was answered,
// and checks it.
//
// BERTH_CHAOS_KILLS is how often (default 50, and only the first scarcity, which is
// none); BERTH_CHAOS_SEED repeats the times of an earlier run; BERTH_CHAOS_ONLY names
// one scarcity.
func TestChaos(t *testing.T) {
	kills, only := 50, "none"
	if n := os.Getenv("BERTH_CHAOS_KILLS"); n != "" {
		var err error
		if kills, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		only = os.Getenv("BERTH_CHAOS_ONLY")
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("BERTH_CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for _, sc := range []scarcity{
		{name: "none", share: 4},
		{name: "processor", share: 2, setup: busyMachine},
		{name: "descriptors", share: 1, setup: fewDescriptors, spell: takeDescriptors},
		{name: "memory", share: 1, spell: takeMemory},
		{name: "disk", share: 2, state: smallVolume, spell: fillVolume},
	} {
		t.Run(sc.name, func(t *testing.T) {
			switch only {
			case sc.name:
				sc.share = 10
			case "":
			default:
				t.Skipf("skipped: only %q is asked for; make chaos runs all", only)
			}
			t.Logf("BERTH_CHAOS_SEED=%d", seed)
			runChaos(t, sc, max(1, kills*sc.share/10), rand.New(rand.NewPCG(seed, uint64(len(sc.name)))))
		})
	}
}

func runChaos(t *testing.T, sc scarcity, kills int, random *rand.Rand) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	state := ""
	if sc.state != nil {
		state = sc.state(t)
	} else {
		state = t.TempDir()
	}
	s := prepareServer(t, state, "containers: {pool: 1, disk: 200m}\n")
	s.addr = freeport.Addr(t)
	if sc.setup != nil {
		sc.setup(t, s)
	}
	s.start()
	t.Cleanup(func() {
		s.log.drop("msg=request ") // there are too many to be read
		s.close()
	})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := newPersistent(ctx, s.url)
	stop := make(chan struct{})
	done := &tally{counts: map[string]int{}}
	var work sync.WaitGroup
	for i, do := range []func(*worker) error{(*worker).chain, (*worker).chain, (*worker).begin, (*worker).begin,
		(*worker).files, (*worker).copies, (*worker).talk, (*worker).messages,
		(*worker).commands} {
		w := &worker{persistent: client, name: fmt.Sprintf("w%d", i), stop: stop, done: done,
			rand: rand.New(rand.NewPCG(random.Uint64(), uint64(i)))}
		work.Go(func() {
			if err := do(w); err != nil {
				t.Errorf("%s: %v", w.name, err)
				cancel() // the others need not go on
			}
		})
	}
	killed := 0
	start := time.Duration(0) // that the last start took: a starved server must have time for some work beside it
	for ; killed < kills && ctx.Err() == nil; killed++ {
		pause(ctx, random, max(1500*time.Millisecond, start))
		if sc.spell != nil && random.IntN(4) == 0 {
			sc.spell(t, s)
		}
		s.kill()
		killedAt := time.Now()
		s.launch()
		for random.IntN(5) == 0 && killed < kills { // while it starts
			pause(ctx, random, 400*time.Millisecond)
			s.kill()
			killed++
			s.launch()
		}
		s.waitUntil("the server answers again", func() bool { return s.healthy() || ctx.Err() != nil })
		start = time.Since(killedAt)
		if killed%10 == 0 {
			t.Logf("%d kills; %v", killed, done)
		}
	}
	close(stop)
	work.Wait()
	t.Logf("%d kills; %v; %d requests repeated, %d of them as asked for", killed, done, client.repeats.Load(),
		client.refused.Load())
	for _, kind := range []string{"responses in chains", "containers begun", "files uploaded", "copies of containers",
		"messages in conversations", "messages", "commands by MCP"} {
		if done.counts[kind] == 0 && !t.Failed() {
			t.Errorf("no %s: the load did not get anywhere", kind)
		}
	}
	if t.Failed() {
		return
	}
	s.wantEmpty()
}

// pause waits for a random time: the moment of the kill must not depend on what
// the test can see of the server.
func pause(ctx context.Context, random *rand.Rand, most time.Duration) {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// wantEmpty deletes what containers are left and checks that nothing of them is: no
// process, no mount, no group, no directory. The record of all that must verify.
func (s *server) wantEmpty() {
	s.t.Helper()
	s.waitUntil("all containers are deleted", func() bool {
		var page struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
		}
		c := s.client()
		if err := c.Get(s.t.Context(), "containers?limit=100", nil, &page); err != nil {
			return false
		}
		for _, d := range page.Data {
			_ = c.Containers.Delete(s.t.Context(), d.ID)
		}
		return len(page.Data) == 0
	})
	if _, errs, err := s.berth("audit", "verify", "--state", s.state); err != nil {
		s.t.Errorf("the audit record does not verify: %v: %s", err, errs)
	}
	// Pooled sandboxes are the server's own, and no container's.
	s.waitUntil("only pooled sandboxes are left", func() bool { return len(s.sandboxes()) <= 1 })
}

// sandboxes returns the directories of the sandboxes that there are.
func (s *server) sandboxes() []string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.state, "gvisor", "sandboxes", "*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// busyMachine runs the server with the lowest priority beside programs that want all
// processors. Theirs is nine steps higher, so the server gets about an eighth: with less,
// most kills would only hit a start.
func busyMachine(t *testing.T, s *server) {
	s.wrap = []string{"nice", "-n", "19"}
	for range runtime.NumCPU() {
		cmd := exec.Command("nice", "-n", "10", "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// fewDescriptors lets the server open 512 files.
func fewDescriptors(_ *testing.T, s *server) {
	s.wrap = []string{"prlimit", "--nofile=512:512"}
}

// takeDescriptors opens connections, with half a request each, until no more are taken,
// and drops them after a moment.
func takeDescriptors(t *testing.T, s *server) {
	conns := halfRequests(t, s.addr, 700)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	time.Sleep(700 * time.Millisecond) // a spell, in which the load continues
}

// takeMemory sends large bodies of many small values immediately.
func takeMemory(t *testing.T, s *server) {
	body := `{"model":"scripted","input":"` + strings.Repeat("x ", 8<<20) + `","metadata":[` + strings.Repeat("1,",
		500_000) + `1]}`
	var sends sync.WaitGroup
	for range 6 {
		sends.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/responses", strings.NewReader(body))
			if err != nil {
				return
			}
			req.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	sends.Wait()
}

// smallVolume returns a state directory on a file system of its own with 1,200 MB.
func smallVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "state")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", "1200M", image},
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop", image, mount},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("skipped: %s: %v: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mount
}

// fillVolume takes all free space of the state's volume, and gives it back after a
// moment.
func fillVolume(t *testing.T, s *server) {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.state, &fs); err != nil {
		t.Error(err)
		return
	}
	path := filepath.Join(s.state, "filler")
	f, err := os.Create(path)
	if err != nil {
		return // it is full already
	}
	defer os.Remove(path)
	defer f.Close()
	for size := int64(fs.Bavail) * fs.Bsize; size > 1<<12; {
		if unix.Fallocate(int(f.Fd()), 0, 0, size) == nil {
			break
		}
		size -= max(size/50, 1<<12)
	}
	time.Sleep(1500 * time.Millisecond) // a spell, in which the load continues
	_ = f.Sync()
}

// halfRequests opens connections to an address, each with the first half of a request,
// and returns those that were taken.
func halfRequests(t *testing.T, addr string, n int) (conns []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			break // no more are taken
		}
		_, _ = io.WriteString(c, "POST /v1/responses HTTP/1.1\r\nHost: ")
		conns = append(conns, c)
	}
	return conns
}
