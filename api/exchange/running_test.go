package exchange

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
)

// mutableKeys is a keyring that changes while requests run.
type mutableKeys struct {
	keyring
	mu sync.Mutex
}

func (k *mutableKeys) set(err error, keys ...*berth.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.err = keys, err
}

func (k *mutableKeys) ListKeys(ctx context.Context) ([]*berth.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keyring.ListKeys(ctx)
}

func (k *mutableKeys) KeyOf(ctx context.Context, c berth.Caller) (*berth.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keyring.KeyOf(ctx, c)
}

// A request that runs ends within seconds after its key, and no other request does.
func TestRequestEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(id berth.KeyID, p berth.ProjectID, expires int64) *berth.Key {
			return &berth.Key{ID: id, Project: p, ExpiresAt: expires}
		}
		soon := time.Now().Unix() + 60
		var keys mutableKeys
		all := []*berth.Key{key("key_a", "proj_a", 0), key("key_b", "proj_a", 0), key("key_c", "proj_a", soon)}
		keys.set(nil, all...)
		s := New(Options{Keys: &keys, Log: slog.New(slog.DiscardHandler)})
		ended := make(chan berth.KeyID, 4)
		var stop []context.CancelFunc
		begin := func(id berth.KeyID) {
			ctx, cancel := context.WithCancel(t.Context())
			stop = append(stop, cancel)
			r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			x := s.start(httptest.NewRecorder(), r)
			go func() {
				r, release := x.WhileValid(r, berth.Caller{Project: "proj_a", Key: id,
					Permissions: berth.AllPermissions("proj_a")})
				defer release()
				<-r.Context().Done()
				if errors.Is(context.Cause(r.Context()), errKeyEnded) {
					ended <- id
				}
			}()
		}
		for _, id := range []berth.KeyID{"", "key_a", "key_b", "key_c"} {
			begin(id)
		}
		after := func(d time.Duration, want ...berth.KeyID) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			for _, id := range want {
				select {
				case got := <-ended:
					if got != id {
						t.Errorf("the request of %q ended, want %q", got, id)
					}
				default:
					t.Errorf("the request of %q has not ended", id)
				}
			}
			if len(ended) > 0 {
				t.Errorf("the request of %q ended", <-ended)
			}
		}
		after(10 * time.Second)
		keys.set(errors.New("the database is away"))
		after(10 * time.Second)
		keys.set(nil, all[1:]...)
		after(4*time.Second, "key_a")
		after(time.Minute, "key_c")
		keys.set(nil, key("key_b", "proj_b", 0))
		after(4*time.Second, "key_b")
		for _, f := range stop {
			f()
		}
		synctest.Wait()
		time.Sleep(10 * time.Second) // the checks end
		s.running.mu.Lock()
		defer s.running.mu.Unlock()
		if s.running.timer != nil || len(s.running.open) > 0 {
			t.Errorf("%d requests are still checked", len(s.running.open))
		}
	})
}

// A request that has not answered yet says why it ends.
func TestRequestThatEndsWithItsKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys mutableKeys
		keys.add("sk-1", "proj_a")
		h := handleWith(Options{Keys: &keys, Log: slog.New(slog.DiscardHandler)}, func(_ *Exchange, r *http.Request,
			_ berth.Caller) error {
			keys.set(nil, &berth.Key{ID: "key_2"})
			<-r.Context().Done()
			return r.Context().Err()
		})
		if got := ask(h, "127.0.0.1:1", "localhost", "Authorization",
			"Bearer sk-1"); got.Code != http.StatusUnauthorized {
			t.Errorf("got %d %s", got.Code, got.Body)
		}
		time.Sleep(10 * time.Second)
	})
}
