package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// used returns the usage around now, one line for each row.
func used(t *testing.T, s store.Store, p berth.ProjectID, kind store.UsageKind) []string {
	t.Helper()
	// One interval spans all of history, so that no boundary falls into the test.
	list, err := s.Usage(t.Context(), store.UsageQuery{Project: p, Kind: kind, From: time.Unix(0, 0),
		To: time.Now().Add(time.Hour), Width: 1 << 26 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, u := range list {
		if u.Kind != kind || u.Start != 0 {
			t.Errorf("got kind %s from %d", u.Kind, u.Start)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %d, tokens %d (%d) %d (%d), %d s", u.Project, u.Key, u.Name,
			u.Count, u.InputTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens, u.Seconds))
	}
	return lines
}

func wantUsed(t *testing.T, s store.Store, p berth.ProjectID, kind store.UsageKind, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, used(t, s, p, kind)); diff != "" {
		t.Errorf("usage of %q (-want +got):\n%s", p, diff)
	}
}

// responseUsage: responses are counted once, with their last event or with their
// deletion before that.
func responseUsage(t *testing.T, s store.Store) {
	ctx := t.Context()
	usage := &berth.Usage{InputTokens: 7, InputTokenDetails: berth.InputTokenDetails{CachedTokens: 3},
		OutputTokens: 5, OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 2}, TotalTokens: 12}
	start := func(key berth.KeyID, model string) *store.Response {
		r := response("")
		r.Key, r.Body.Model = key, model
		return create(t, s, r)
	}
	end := func(r *store.Response, status berth.Status) error {
		body := *r.Body
		body.Status, body.Usage = status, usage
		return s.AppendEvents(ctx, mine, body.ID, "me", []store.Event{event(1)}, &body)
	}
	wantUsed(t, s, "", store.UsageResponse)
	for _, r := range []*store.Response{start("key_1", "small"), start("key_1", "small"), start("key_1", "large"),
		start("key_2", "small")} {
		if err := end(r, berth.StatusCompleted); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a second end", end(r, berth.StatusCompleted), store.ErrConflict)
		if err := s.DeleteResponse(ctx, mine, r.Body.ID); err != nil {
			t.Fatal(err)
		}
	}
	failed := start("", "small")
	if err := end(failed, berth.StatusFailed); err != nil {
		t.Fatal(err)
	}
	// A response that is deleted before its end counts its usage so far.
	left := start("key_2", "large")
	body := *left.Body
	body.Usage = usage
	if err := s.AppendEvents(ctx, mine, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, s, mine, store.UsageResponse,
		"proj_mine  small: 1, tokens 7 (3) 5 (2), 0 s",
		"proj_mine key_1 large: 1, tokens 7 (3) 5 (2), 0 s",
		"proj_mine key_1 small: 2, tokens 14 (6) 10 (4), 0 s",
		"proj_mine key_2 small: 1, tokens 7 (3) 5 (2), 0 s")
	if err := s.DeleteResponse(ctx, mine, left.Body.ID); err != nil {
		t.Fatal(err)
	}
	other := response("")
	other.Project = theirs
	create(t, s, other)
	if err := s.DeleteResponse(ctx, theirs, other.Body.ID); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, s, theirs, store.UsageResponse, "proj_theirs  m: 1, tokens 0 (0) 0 (0), 0 s")
	wantUsed(t, s, "", store.UsageResponse,
		"proj_mine  small: 1, tokens 7 (3) 5 (2), 0 s",
		"proj_mine key_1 large: 1, tokens 7 (3) 5 (2), 0 s",
		"proj_mine key_1 small: 2, tokens 14 (6) 10 (4), 0 s",
		"proj_mine key_2 large: 1, tokens 7 (3) 5 (2), 0 s",
		"proj_mine key_2 small: 1, tokens 7 (3) 5 (2), 0 s",
		"proj_theirs  m: 1, tokens 0 (0) 0 (0), 0 s")

	// Intervals have the requested width, and usage outside the range is omitted.
	now := time.Now()
	minute := now.Truncate(time.Minute)
	list, err := s.Usage(ctx, store.UsageQuery{Project: mine, Kind: store.UsageResponse, From: minute.Add(-time.Hour),
		To: minute.Add(time.Hour), Width: time.Minute})
	if err != nil || len(list) < 5 {
		t.Fatalf("got %d rows, %v", len(list), err)
	}
	for _, u := range list {
		if u.Start%60 != 0 || u.Start > minute.Unix()+60 || u.Start < minute.Unix()-600 {
			t.Errorf("got an interval that starts at %d, now is %d", u.Start, now.Unix())
		}
	}
	for _, q := range []store.UsageQuery{
		{Project: mine, Kind: store.UsageResponse, From: minute.Add(-time.Hour), To: minute.Add(-30 * time.Minute),
			Width: time.Minute},
		{Project: mine, Kind: store.UsageResponse, From: minute.Add(time.Hour), To: minute.Add(2 * time.Hour),
			Width: time.Minute},
		{Project: "proj_none", Kind: store.UsageResponse, From: minute.Add(-time.Hour), To: minute.Add(time.Hour),
			Width: time.Minute},
		{Project: mine, Kind: store.UsageContainer, From: minute.Add(-time.Hour), To: minute.Add(time.Hour),
			Width: time.Minute},
	} {
		if list, err := s.Usage(ctx, q); err != nil || len(list) != 0 {
			t.Errorf("%+v: got %d rows, %v, want 0", q, len(list), err)
		}
	}
}

// toolUsage: the calls of a response's tools are counted with it, also if it is deleted before its end.
func toolUsage(t *testing.T, s store.Store) {
	ctx := t.Context()
	items := func(types ...berth.ItemType) (all []berth.Item) {
		for _, of := range types {
			all = append(all, berth.NewItem(map[string]any{"type": of, "id": berth.NewID("item_")}))
		}
		return all
	}
	begin := func(key berth.KeyID, output []berth.Item, status berth.Status) berth.ResponseID {
		r := response("")
		r.Key = key
		create(t, s, r)
		body := *r.Body
		body.Status, body.Output = status, output
		if err := s.AppendEvents(ctx, mine, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
			t.Fatal(err)
		}
		return body.ID
	}
	begin("key_1", items(berth.ItemReasoning, berth.ItemShellCall, berth.ItemShellCallOutput, berth.ItemMCPListTools,
		berth.ItemMCPCall, berth.ItemShellCall, berth.ItemApprovalRequest, "unheard_of_call", berth.ItemMessage),
		berth.StatusCompleted)
	begin("key_1", items(berth.ItemShellCall, berth.ItemFunctionCall), berth.StatusFailed)
	begin("key_2", items(berth.ItemMessage), berth.StatusCompleted)
	left := begin("key_2", items(berth.ItemCodeInterpreterCall), berth.StatusInProgress)
	wantUsed(t, s, mine, store.UsageTool, "proj_mine key_1 function: 1, tokens 0 (0) 0 (0), 0 s",
		"proj_mine key_1 mcp: 1, tokens 0 (0) 0 (0), 0 s", "proj_mine key_1 shell: 3, tokens 0 (0) 0 (0), 0 s")
	if err := s.DeleteResponse(ctx, mine, left); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, s, "", store.UsageTool, "proj_mine key_1 function: 1, tokens 0 (0) 0 (0), 0 s",
		"proj_mine key_1 mcp: 1, tokens 0 (0) 0 (0), 0 s", "proj_mine key_1 shell: 3, tokens 0 (0) 0 (0), 0 s",
		"proj_mine key_2 code_interpreter: 1, tokens 0 (0) 0 (0), 0 s")
	wantUsed(t, s, theirs, store.UsageTool)
}

// upstreamUsage: usage and costs of a response's upstreams are counted with it.
func upstreamUsage(t *testing.T, s store.Store) {
	turn := func(upstream string, turns int, cost *berth.Cost) berth.UpstreamUsage {
		return berth.UpstreamUsage{Upstream: upstream, Model: "vendor/m-1", Turns: turns,
			Usage: berth.Usage{InputTokens: 7, OutputTokens: 5, TotalTokens: 12}, Cost: cost}
	}
	for range 2 {
		r := create(t, s, response(""))
		body := *r.Body
		body.Status, body.Usage = berth.StatusCompleted, &berth.Usage{InputTokens: 14, OutputTokens: 10,
			TotalTokens: 24}
		body.Berth = body.Berth.AddTurn(turn("b", 1, nil)).AddTurn(turn("a", 2, &berth.Cost{Value: 5, Currency: "usd"}))
		if err := s.AppendEvents(t.Context(), mine, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
			t.Fatal(err)
		}
	}
	wantUsed(t, s, mine, store.UsageResponse, "proj_mine  m: 2, tokens 28 (0) 20 (0), 0 s")
	wantUsed(t, s, mine, store.UsageUpstream, "proj_mine  a/vendor/m-1: 4, tokens 14 (0) 10 (0), 0 s",
		"proj_mine  b/vendor/m-1: 2, tokens 14 (0) 10 (0), 0 s")
	for kind, want := range map[store.UsageKind][]berth.Amount{store.UsageResponse: {10},
		store.UsageUpstream: {10, 0}} {
		for _, p := range []berth.ProjectID{mine, ""} {
			list, err := s.Usage(t.Context(), store.UsageQuery{Project: p, Kind: kind, From: time.Unix(0, 0),
				To: time.Now().Add(time.Hour), Width: 1 << 26 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var got []berth.Amount
			for _, u := range list {
				got = append(got, u.Cost)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("costs of kind %s (-want +got):\n%s", kind, diff)
			}
		}
	}
}

// spending: what a usage costs is added to its month with it, once for its project and key.
func spending(t *testing.T, s store.Store) {
	ctx := t.Context()
	before, _ := store.Month(time.Now())
	end := func(p berth.ProjectID, key berth.KeyID, cost berth.Amount) {
		r := response("")
		r.Project, r.Key = p, key
		create(t, s, r)
		body := *r.Body
		body.Status = berth.StatusCompleted
		body.Berth = body.Berth.AddTurn(berth.UpstreamUsage{Upstream: "a", Model: "m", Turns: 1,
			Cost: &berth.Cost{Value: cost, Currency: "usd"}})
		if err := s.AppendEvents(ctx, p, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
			t.Fatal(err)
		}
	}
	end(mine, "key_1", 5)
	end(mine, "key_1", 7)
	end(mine, "key_2", 100)
	end(mine, "", 1)
	end(mine, "key_free", 0)
	end(theirs, "key_1", 1000)
	for _, u := range []store.Usage{{Project: mine, Kind: store.UsageEmbedding, Key: "key_2", Name: "e", Cost: 20},
		{Project: mine, Kind: store.UsageUpstream, Key: "key_2", Name: "a/e", Cost: 20}} {
		if err := s.AddUsage(ctx, &u); err != nil {
			t.Fatal(err)
		}
	}
	month, next := store.Month(time.Now())
	if month != before {
		t.Skip("the month has changed during the test")
	}
	for _, tt := range []struct {
		project   berth.ProjectID
		key       berth.KeyID
		month     time.Time
		all, ofIt berth.Amount
	}{{mine, "key_1", month, 133, 12}, {mine, "key_2", month, 133, 120}, {mine, "", month, 133, 1},
		{mine, "key_none", month, 133, 0},
		{theirs, "key_1", month, 1000, 1000}, {theirs, "key_2", month, 1000, 0}, {"proj_none", "key_1", month, 0, 0},
		{mine, "key_1", next, 0, 0}} {
		if all, ofIt, err := s.Spent(ctx, tt.project, tt.key, tt.month); err != nil || all != tt.all ||
			ofIt != tt.ofIt {
			t.Errorf("%+v: got %d and %d, %v", tt, all, ofIt, err)
		}
	}
	own := []*store.Spending{{Project: mine, Cost: 1}, {Project: mine, Key: "key_1", Cost: 12},
		{Project: mine, Key: "key_2", Cost: 120}}
	for p, want := range map[berth.ProjectID][]*store.Spending{mine: own,
		"": append(own, &store.Spending{Project: theirs, Key: "key_1", Cost: 1000}), "proj_none": nil} {
		got, err := s.Spending(ctx, p, month)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spending of %q (-want +got):\n%s", p, diff)
		}
	}
}

// containerUsage: containers are counted when created; their seconds are counted while
// they run and when they end.
func containerUsage(t *testing.T, s store.Store) {
	ctx := t.Context()
	const hour = 3600
	began := time.Now().Unix() - hour
	for i, key := range []berth.KeyID{"key_1", "key_1", "key_2", "key_2"} {
		c := container(i)
		c.Key, c.Body.CreatedAt = key, began
		if i == 3 {
			c.Body.MemoryLimit = "4g"
		}
		if err := s.CreateContainer(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	wantUsed(t, s, mine, store.UsageContainer, "proj_mine key_1 1g: 2, tokens 0 (0) 0 (0), 0 s",
		"proj_mine key_2 1g: 1, tokens 0 (0) 0 (0), 0 s", "proj_mine key_2 4g: 1, tokens 0 (0) 0 (0), 0 s")
	seconds := func(kind string) int64 {
		var n int64
		list, err := s.Usage(ctx, store.UsageQuery{Project: mine, Kind: store.UsageContainer, From: time.Unix(0, 0),
			To: time.Now().Add(time.Hour), Width: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list {
			if u.Name == kind {
				n += u.Seconds
			}
		}
		return n
	}
	want := func(when, kind string, want int64) {
		t.Helper()
		// A count may be a few seconds late on a busy machine.
		if got := seconds(kind); got < want || got > want+120 {
			t.Errorf("%s: got %d s of %s, want %d", when, got, kind, want)
		}
	}
	// The container that ends immediately is counted with its whole life at its end.
	expire := func(c *berth.Container) error { c.Status = berth.ContainerExpired; return nil }
	if _, err := s.UpdateContainer(ctx, mine, "cntr_3", expire); err != nil {
		t.Fatal(err)
	}
	want("after the end of one", "4g", hour)
	for range 2 { // an end is counted once, whatever follows
		if _, err := s.UpdateContainer(ctx, mine, "cntr_3", expire); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteContainer(ctx, mine, "cntr_3"); err != nil {
		t.Fatal(err)
	}
	want("after its deletion", "4g", hour)
	// An update that leaves it running counts nothing.
	if _, err := s.UpdateContainer(ctx, mine, "cntr_0", func(c *berth.Container) error {
		c.LastActiveAt = 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want("before a count", "1g", 0)
	for range 2 {
		if err := s.CountContainers(ctx); err != nil {
			t.Fatal(err)
		}
		want("after a count of three", "1g", 3*hour)
	}
	if err := s.DeleteContainer(ctx, mine, "cntr_0"); err != nil {
		t.Fatal(err)
	}
	want("after a deletion", "1g", 3*hour)
	want("and of the others nothing more", "4g", hour)
}
