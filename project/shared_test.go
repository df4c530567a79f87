package project

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A clusterQuota is the quota of one server of a cluster.
type clusterQuota struct {
	*Quota
	shares  *countedShares
	running atomic.Int64
}

// countedShares counts the transactions of a server, and fails if it is to.
type countedShares struct {
	store.Shares
	draws atomic.Int64
	err   atomic.Pointer[error]
}

func (c *countedShares) Draw(ctx context.Context, server string, p berth.ProjectID, wants ...store.Want) ([]store.Share,
	error) {
	c.draws.Add(1)
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	return c.Shares.Draw(ctx, server, p, wants...)
}

// memoryShares divides limits in memory, by the clock of a bubble. storetest holds the stores to
// the same rules.
type memoryShares struct {
	mu    sync.Mutex
	held  map[heldKey]int64
	rates map[heldKey]*sharedRate // without a server
}

type heldKey struct {
	project berth.ProjectID
	kind    store.ShareKind
	server  string
}

type sharedRate struct {
	left float64
	at   time.Time
}

func (m *memoryShares) Draw(_ context.Context, server string, p berth.ProjectID,
	wants ...store.Want) (shares []store.Share, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range wants {
		if w.Kind.IsRate() {
			shares = append(shares, m.drawRate(heldKey{p, w.Kind, ""}, w))
		} else {
			shares = append(shares, m.drawNumber(heldKey{p, w.Kind, server}, w))
		}
	}
	return shares, nil
}

func (m *memoryShares) drawNumber(key heldKey, w store.Want) store.Share {
	left := w.Limit - w.Used
	for k, n := range m.held {
		if k.project == key.project && k.kind == key.kind && k.server != key.server {
			left -= n
		}
	}
	got := grant(w, left)
	m.held[key] = w.Used + got
	return store.Share{Got: w.Used + got, Left: float64(left - got)}
}

func (m *memoryShares) drawRate(key heldKey, w store.Want) store.Share {
	r := m.rates[key]
	if r == nil {
		r = &sharedRate{left: float64(w.Limit)}
		m.rates[key] = r
	} else {
		r.left = min(r.left+time.Since(r.at).Minutes()*float64(w.Limit), float64(w.Limit))
	}
	r.at = time.Now()
	r.left = min(r.left-float64(w.Used), float64(w.Limit))
	got := grant(w, int64(math.Floor(r.left)))
	r.left -= float64(got)
	return store.Share{Got: got, Left: r.left}
}

func grant(w store.Want, left int64) int64 {
	if got := min(w.Ask, left); got >= max(w.Need, 1) {
		return got
	}
	return 0
}

func (m *memoryShares) ForgetShares(_ context.Context, server string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.held, func(k heldKey, _ int64) bool { return k.server == server })
	return nil
}

// cluster returns the quotas of servers that share limits in memory.
func cluster(t *testing.T, servers int, limits berth.Limits) []*clusterQuota {
	t.Helper()
	shared := &memoryShares{held: map[heldKey]int64{}, rates: map[heldKey]*sharedRate{}}
	return clusterOn(t, shared, servers, limits)
}

func clusterOn(t *testing.T, shared store.Shares, servers int, limits berth.Limits) (all []*clusterQuota) {
	t.Helper()
	for i := range servers {
		id := string(rune('a' + i))
		q := &clusterQuota{Quota: NewQuota(QuotaOptions{Objects: &records{},
			Limits: map[berth.ProjectID]berth.Limits{"": limits}}), shares: &countedShares{Shares: shared}}
		if err := q.Share(t.Context(), q.shares, id, func(berth.ProjectID) int {
			return int(q.running.Load())
		}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		all = append(all, q)
	}
	return all
}

// limited reports whether a request was refused for a limit. It fails for any other error.
func limited(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Fatal(err)
	}
	return err != nil
}

// eventually repeats a request until it is not refused, which takes at most some rounds of settling.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for range 1000 {
		if !limited(t, try()) {
			return
		}
		time.Sleep(settleInterval / 10)
	}
	t.Fatalf("%s is refused for ever", what)
}

// TestSharedResponses has three servers start more responses at the same time than a project may have.
func TestSharedResponses(t *testing.T) {
	for _, limit := range []int64{1, 7, 200} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testSharedResponses(t, cluster(t, 3, berth.Limits{Responses: number(limit)}), limit)
			})
		})
	}
}

// TestSharedSpare ends the only response of one server, which has drawn some more. Another server gets them all.
func TestSharedSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 200
		servers := cluster(t, 2, berth.Limits{Responses: number(limit)})
		end, err := servers[0].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		end(0)
		for range limit {
			eventually(t, "a response", func() error {
				_, err := servers[1].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
				return err
			})
		}
	})
}

// TestSharedByPostgres is TestSharedResponses with a database.
func TestSharedByPostgres(t *testing.T) {
	db, err := postgres.Open(t.Context(), pgtest.URL(t), &postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []string{"a", "b", "c"} {
		if err := db.JoinMember(t.Context(), store.Member{ID: id, Address: "x:1"}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	testSharedResponses(t, clusterOn(t, db, 3, berth.Limits{Responses: number(7)}), 7)
}

func testSharedResponses(t *testing.T, servers []*clusterQuota, limit int64) {
	t.Helper()
	var mu sync.Mutex
	var ends []func(int)
	refused := 0
	var all sync.WaitGroup
	for i := range 3 * limit {
		all.Go(func() {
			end, err := servers[i%3].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
			mu.Lock()
			defer mu.Unlock()
			if limited(t, err) {
				refused++
				return
			}
			ends = append(ends, end)
		})
	}
	all.Wait()
	if n := int64(len(ends)); n > limit || n < limit-2*(limit/sharesPerLimit+1) && limit > 64 || limit < 64 &&
		n != limit {
		t.Errorf("three servers started %d responses of %d; %d were refused", n, limit, refused)
	}
	for _, end := range ends {
		end(0)
	}
	// What has ended anywhere can be started on one server, all of it.
	for range limit {
		eventually(t, "a response after others have ended", func() error {
			_, err := servers[1].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
			return err
		})
	}
	if _, err := servers[1].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1); !limited(t, err) {
		t.Errorf("one server started more than %d responses", limit)
	}
}

// TestSharedRates spends the requests and tokens of a project on three servers.
func TestSharedRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := cluster(t, 3, berth.Limits{RequestsPerMinute: number(30), TokensPerMinute: number(6000)})
		started := 0
		for i := range 90 {
			end, err := servers[i%3].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 10)
			if limited(t, err) {
				e, _ := errors.AsType[*berth.Error](err)
				if !strings.Contains(e.Message, "requests per min (RPM): Limit 30") || e.RetryAfter <= 0 ||
					e.RetryAfter > 4*time.Second {
					t.Fatalf("refused with %v, after %v", err, e.RetryAfter)
				}
				continue
			}
			end(10)
			started++
		}
		if started < 30 || started > 40 { // the rate refills by one in 2 s
			t.Errorf("three servers started %d of 30 requests in a minute", started)
		}
		for i := range 90 { // another counter
			if limited(t, servers[i%3].Write(t.Context(), "proj_a")) && i < 30 {
				t.Errorf("write %d was refused", i)
			}
		}
		// One server uses more tokens than it was estimated to; the others know it soon.
		end, err := servers[0].Begin(t.Context(), berth.Caller{Project: "proj_b"}, 10)
		if err != nil {
			t.Fatal(err)
		}
		end(20_000)
		time.Sleep(2 * settleInterval)
		if _, err := servers[1].Begin(t.Context(), berth.Caller{Project: "proj_b"}, 10); !limited(t, err) ||
			!strings.Contains(err.Error(), "tokens per min (TPM)") {
			t.Fatalf("another server does not know the tokens that were used: %v", err)
		}
		if _, tokens := servers[1].Rates("proj_b"); tokens == nil || tokens.Remaining != 0 ||
			tokens.Reset < time.Minute {
			t.Errorf("another server reports %+v", tokens)
		}
	})
}

// TestSharedForward forwards a request to another server, which counts it alone.
func TestSharedForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// one may be on its way back
		servers := cluster(t, 2, berth.Limits{RequestsPerMinute: number(11), Responses: number(1)})
		for i := range 10 {
			end, err := servers[0].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			end(-1)
			if end, err = servers[1].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1); err != nil {
				t.Fatalf("forwarded request %d: %v", i, err)
			}
			end(0)
		}
	})
}

// TestSharedBlocks draws a high rate in parts: few requests write to the database, and projects
// without a limit never do.
func TestSharedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := cluster(t, 1, berth.Limits{RequestsPerMinute: number(60_000), Responses: number(1280)})[0]
		for range 1000 {
			end, err := q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
			if err != nil {
				t.Fatal(err)
			}
			end(1)
		}
		if n := q.shares.draws.Load(); n > 20 {
			t.Errorf("1000 requests drew %d times", n)
		}
		free := cluster(t, 1, berth.Limits{})[0]
		for range 100 {
			end, err := free.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
			if err != nil {
				t.Fatal(err)
			}
			end(1)
			if err := free.Write(t.Context(), "proj_a"); err != nil {
				t.Fatal(err)
			}
		}
		if n := free.shares.draws.Load(); n != 0 {
			t.Errorf("a project without limits drew %d times", n)
		}
	})
}

// TestSharedOutage refuses requests of limited projects while the database fails, and forgets
// nothing.
func TestSharedOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := cluster(t, 2, berth.Limits{Responses: number(2)})
		end, err := servers[0].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		outage := store.ErrUnavailable
		servers[0].shares.err.Store(&outage)
		if _, err := servers[0].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1); !errors.Is(err,
			store.ErrUnavailable) {
			t.Errorf("without a database: %v", err)
		}
		end(1) // cannot be reported now
		servers[0].shares.err.Store(nil)
		for range 2 {
			eventually(t, "what ended in an outage", func() error {
				_, err := servers[1].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
				return err
			})
		}
		// What others removed is drawn again, also beyond the limit.
		servers[1].ForgetShares()
		if _, err := servers[0].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1); !limited(t, err) {
			t.Error("a server started a third response of two")
		}
		servers[0].Resume("proj_a")
		eventually(t, "the count", func() error {
			got, err := servers[0].shares.Draw(t.Context(), "x", "proj_a", store.Want{Kind: store.ShareResponses,
				Limit: 2})
			if err == nil && got[0].Left != -1 {
				err = &berth.Error{Code: berth.CodeRateLimited}
			}
			return err
		})
	})
}

// TestSharedContainers starts containers of a project on two servers.
func TestSharedContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := cluster(t, 2, berth.Limits{Containers: number(3)})
		create := func(q *clusterQuota) error {
			return q.AdmitContainer(t.Context(), "proj_a", func(most int) error {
				if int(q.running.Add(1)) > most {
					t.Errorf("container %d of at most %d is admitted", q.running.Load(), most)
				}
				return nil
			})
		}
		for i := range 3 {
			if err := create(servers[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		for _, q := range servers {
			if err := create(q); !limited(t, err) || !strings.Contains(err.Error(), "Limit 3, Used 3, Requested 1") {
				t.Errorf("a fourth container: %v", err)
			}
		}
		servers[0].running.Add(-1)
		servers[0].ContainersChanged("proj_a")
		eventually(t, "a container after another server's has ended", func() error { return create(servers[1]) })
		if !limited(t, create(servers[0])) {
			t.Error("a fourth container is admitted")
		}
	})
}

// TestSharedTurns has one client send one request after the other to three servers, one at a time
// as the project may: none is refused.
func TestSharedTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := cluster(t, 3, berth.Limits{Responses: number(1), RequestsPerMinute: number(120)})
		for i := range 100 {
			end, err := servers[i%3].Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			end(1)
		}
	})
}
