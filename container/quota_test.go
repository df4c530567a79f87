package container

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A project runs at most as many containers as its quota allows, also with concurrent requests.
// Other projects are not affected.
func TestQuota(t *testing.T) {
	h := newHarness(t)
	var refusal error
	h.k.opts.Quota = func(_ context.Context, p berth.ProjectID) (int, error) {
		if p == mine {
			return 3, refusal
		}
		return -1, nil
	}
	var made, refused atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := h.k.Create(t.Context(), byMe, CreateRequest{})
			switch e, _ := errors.AsType[*berth.Error](err); {
			case err == nil:
				made.Add(1)
			case e != nil && e.Code == berth.CodeRateLimited && e.RetryAfter > 0:
				refused.Add(1)
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 3 || refused.Load() != 5 {
		t.Errorf("got %d containers and %d refusals, want 3 and 5", made.Load(), refused.Load())
	}
	if _, err := h.k.Create(t.Context(), berth.Caller{Project: theirs}, CreateRequest{}); err != nil {
		t.Errorf("another project: %v", err)
	}
	list, _, err := h.store.ListContainers(t.Context(), mine, "", store.Page{Limit: 100})
	if err != nil || len(list) != 3 {
		t.Fatalf("got %d rows, %v", len(list), err)
	}
	if err := h.k.Delete(t.Context(), mine, list[0].Body.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.k.Create(t.Context(), byMe, CreateRequest{}); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	refusal = berth.Errorf(berth.CodeRateLimited, "no minutes are left")
	if _, err := h.k.provider.Provide(t.Context(), byMe, berth.ShellToolEnvironment{Type: berth.EnvironmentAuto},
		""); !errors.Is(err, refusal) {
		t.Errorf("got %v, want the quota's error", err)
	}
}
