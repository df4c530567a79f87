package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const mine, theirs berth.ProjectID = "proj_mine", "proj_theirs"

// A house is a service on a real store with the server of a test endpoint.
type house struct {
	t   *testing.T
	db  *sqlite.DB
	svc *Service
	srv *httptest.Server

	mu       sync.Mutex
	received []message
	answer   func(n int, w http.ResponseWriter, r *http.Request) // to the n-th request; nil answers 200
	stop     func()                                              // ends Run
	came     chan struct{}                                       // gets a value for each request
}

type message struct {
	header http.Header
	body   string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, db: db, came: make(chan struct{}, 1000)}
	h.svc, h.stop = New(db, nil, slog.New(slog.NewTextHandler(t.Output(), nil))), func() {}
	h.srv = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(func() {
		h.stop()
		h.srv.Close()
		db.Close()
	})
	return h
}

// start makes deliveries until stop.
func (h *house) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { h.svc.Run(ctx) })
	h.stop = func() {
		cancel()
		run.Wait()
	}
}

func (h *house) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	h.received = append(h.received, message{r.Header.Clone(), string(body)})
	n, answer := len(h.received), h.answer
	h.mu.Unlock()
	if answer != nil {
		answer(n, w, r)
	}
	h.came <- struct{}{}
}

func (h *house) create(p berth.ProjectID, types ...berth.EventType) *berth.WebhookEndpoint {
	h.t.Helper()
	if types == nil {
		types = EventTypes
	}
	e, err := h.svc.Create(h.t.Context(), p, EndpointRequest{Name: ptr("test"), URL: ptr(h.srv.URL + "/hook"),
		EventTypes: types, Anywhere: true})
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

func ptr[T any](v T) *T { return &v }

// end ends a background response, as the journal does.
func (h *house) end(p berth.ProjectID, status berth.Status) berth.ResponseID {
	h.t.Helper()
	id := berth.ResponseID(berth.NewID(berth.PrefixResponse))
	r := &store.Response{Project: p, Body: berth.NewResponse(id, 1,
		&berth.ResponseRequest{Model: "m", Background: true}), Request: &berth.ResponseRequest{}}
	lease := store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}
	if err := h.db.CreateResponse(h.t.Context(), r, nil, lease); err != nil {
		h.t.Fatal(err)
	}
	final := *r.Body
	final.Status = status
	err := h.db.AppendEvents(h.t.Context(), p, id, "me",
		[]store.Event{{Type: berth.EventCompleted, Data: []byte("{}")}}, &final, h.svc.AtEnd(r, &final)...)
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// wait waits for n more requests to the endpoint. It returns all requests so far.
func (h *house) wait(n int) []message {
	h.t.Helper()
	timeout := time.After(20 * time.Second)
	for range n {
		select {
		case <-h.came:
		case <-timeout:
			h.t.Fatal("timeout: the endpoint got no request")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.received)
}

// log waits until ok is true for the deliveries to an endpoint, and returns them.
func (h *house) log(id berth.WebhookID, ok func([]*Delivery) bool) []*Delivery {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		list, _, err := h.svc.Log(h.t.Context(), mine, id, store.Page{Limit: 1000, Ascending: true})
		if err != nil {
			h.t.Fatal(err)
		}
		if ok(list) {
			return list
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("the log is %+v", list)
		}
	}
}

// OpenAI's client accepts deliveries, and an endpoint gets only the events of its types.
func TestDelivery(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine, berth.EventCompleted, berth.EventFailed)
	h.start()
	id := h.end(mine, berth.StatusCompleted)
	m := h.wait(1)[0]
	client := openai.NewClient(option.WithAPIKey("none"), option.WithWebhookSecret(e.SigningSecret))
	event, err := client.Webhooks.Unwrap([]byte(m.body), m.header)
	if err != nil {
		t.Fatalf("the client refuses the delivery: %v", err)
	}
	if event.Type != "response.completed" || event.AsResponseCompleted().Data.ID != string(id) {
		t.Errorf("got %s about %s", event.Type, event.AsResponseCompleted().Data.ID)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(m.body), &got); err != nil {
		t.Fatal(err)
	}
	if s, _ := got["id"].(string); !strings.HasPrefix(s, "evt_") {
		t.Errorf("got event id %v", got["id"])
	}
	delete(got, "id")
	delete(got, "created_at")
	if diff := cmp.Diff(map[string]any{"object": "event", "type": "response.completed",
		"data": map[string]any{"id": string(id)}}, got); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
	if m.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(m.header.Get("webhook-id"), "wh_") {
		t.Errorf("got headers %v", m.header)
	}
	other := openai.NewClient(option.WithAPIKey("none"), option.WithWebhookSecret(newSecret()))
	if _, err := other.Webhooks.Unwrap([]byte(m.body), m.header); err == nil {
		t.Error("the signature is valid with another secret")
	}
	list := h.log(e.ID, func(l []*Delivery) bool { return len(l) == 1 && l[0].Status == Delivered })
	if a := list[0].Attempts; len(a) != 1 || a[0].Status != 200 || a[0].Error != "" ||
		list[0].ID != m.header.Get("webhook-id") {
		t.Errorf("got log %+v", list[0])
	}

	// The endpoint does not get events of other types and projects.
	h.end(mine, berth.StatusCancelled)
	h.end(theirs, berth.StatusCompleted)
	h.end(mine, berth.StatusFailed)
	if got := h.wait(1); len(got) != 2 || !strings.Contains(got[1].body, "response.failed") {
		t.Errorf("got %d messages, the last %s", len(got), got[len(got)-1].body)
	}
}

// The end of a batch is delivered once, in OpenAI's form, also if it is reported twice.
func TestBatchDelivery(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine)
	other := h.create(mine, berth.EventCompleted)
	h.start()
	client := openai.NewClient(option.WithAPIKey("none"), option.WithWebhookSecret(e.SigningSecret))
	for n, status := range []berth.BatchStatus{berth.BatchCompleted, berth.BatchFailed, berth.BatchExpired,
		berth.BatchCancelled} {
		b := &berth.Batch{ID: berth.BatchID(berth.NewID(berth.PrefixBatch)), Status: status}
		for range 2 {
			if err := h.svc.BatchEnded(t.Context(), mine, b); err != nil {
				t.Fatal(err)
			}
		}
		list := h.wait(1)
		m := list[len(list)-1]
		event, err := client.Webhooks.Unwrap([]byte(m.body), m.header)
		if err != nil {
			t.Fatalf("the client refuses the delivery: %v", err)
		}
		id := map[berth.BatchStatus]string{berth.BatchCompleted: event.AsBatchCompleted().Data.ID,
			berth.BatchFailed:    event.AsBatchFailed().Data.ID,
			berth.BatchExpired:   event.AsBatchExpired().Data.ID,
			berth.BatchCancelled: event.AsBatchCancelled().Data.ID}[status]
		if event.Type != "batch."+string(status) || id != string(b.ID) {
			t.Errorf("got %s about %s, want batch.%s about %s", event.Type, id, status, b.ID)
		}
		h.log(e.ID, func(l []*Delivery) bool { return len(l) == n+1 && l[n].Status == Delivered })
		if err := h.svc.BatchEnded(t.Context(), mine, b); err != nil { // after the delivery
			t.Fatal(err)
		}
	}
	h.log(e.ID, func(l []*Delivery) bool { return len(l) == 4 })
	h.log(other.ID, func(l []*Delivery) bool { return len(l) == 0 })
}

// Only background responses have events, as at OpenAI.
func TestForeground(t *testing.T) {
	h := newHouse(t)
	h.create(mine)
	r := &store.Response{Project: mine}
	for _, background := range []bool{true, false} {
		final := &berth.Response{ID: "resp_1", Status: berth.StatusCompleted, Background: background}
		if n := len(h.svc.AtEnd(r, final)); (n == 1) != background {
			t.Errorf("background %v: got %d deliveries", background, n)
		}
	}
}

// A failed delivery is retried with the same id and a new signature. Redirects are not
// followed.
func TestRetry(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine)
	h.answer = func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}
	h.end(mine, berth.StatusCompleted)
	h.start()
	for n := 1; n <= 3; n++ {
		h.wait(1)
		list := h.log(e.ID, func(l []*Delivery) bool { return len(l[0].Attempts) == n })
		if n == 3 {
			if a := list[0].Attempts; list[0].Status != Delivered || a[0].Status != 500 || a[1].Status != 307 ||
				a[2].Status != 200 || a[0].Error == "" {
				t.Errorf("got %+v", list[0])
			}
			break
		}
		if wait := time.Duration(list[0].DueAt-time.Now().Unix()) * time.Second; list[0].Status != Pending ||
			wait < 2*time.Second || wait > 19*time.Second {
			t.Errorf("after attempt %d: %s, the next in %v", n, list[0].Status, wait)
		}
		h.hurry(e.ID, list[0].ID)
	}
	ids := map[string]bool{}
	for _, m := range h.received {
		ids[m.header.Get("webhook-id")] = true
	}
	if len(h.received) != 3 || len(ids) != 1 {
		t.Errorf("got %d requests with %d ids, want 3 with one", len(h.received), len(ids))
	}
}

// hurry makes a delivery due.
func (h *house) hurry(to berth.WebhookID, id string) {
	h.t.Helper()
	_, err := h.db.UpdateObject(h.t.Context(), mine, store.ObjectKey{Kind: KindDelivery, Parent: string(to), ID: id},
		func(o *store.Object) error {
			o.ExpiresAt = 1
			return nil
		})
	if err != nil {
		h.t.Fatal(err)
	}
}

// A new process makes the pending deliveries of a former one.
func TestRestart(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine)
	hang := make(chan struct{})
	h.answer = func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			h.came <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-hang:
			}
		}
	}
	h.start()
	h.end(mine, berth.StatusCompleted)
	h.wait(1)
	h.stop()
	close(hang)
	if l := h.log(e.ID, func(l []*Delivery) bool { return true }); l[0].Status != Pending || len(l[0].Attempts) != 0 {
		t.Errorf("after the end of the first process: %+v", l[0])
	}
	h.svc = New(h.db, nil, h.svc.log)
	h.start()
	h.log(e.ID, func(l []*Delivery) bool { return l[0].Status == Delivered })
}

// A slow endpoint delays its own deliveries only.
func TestSlowEndpoint(t *testing.T) {
	h := newHouse(t)
	slow := h.create(mine)
	for range window + 50 {
		h.end(mine, berth.StatusCompleted)
	}
	var mu sync.Mutex
	now, most := 0, 0
	hang := make(chan struct{})
	h.answer = func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fast" {
			return
		}
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-hang
		mu.Lock()
		now--
		mu.Unlock()
	}
	fast := h.create(theirs)
	if _, err := h.svc.Update(t.Context(), theirs, fast.ID, EndpointRequest{URL: ptr(h.srv.URL + "/fast"),
		Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	h.end(theirs, berth.StatusCompleted)
	h.start()
	h.wait(1)
	mu.Lock()
	if most > atOnce {
		t.Errorf("got %d requests at once, want at most %d", most, atOnce)
	}
	mu.Unlock()
	h.stop()
	close(hang)
	if l, _, err := h.svc.Log(t.Context(), mine, slow.ID, store.Page{Limit: 1000}); err != nil || len(l) != window+50 {
		t.Errorf("got %d deliveries, %v", len(l), err)
	}
}

// The waits between attempts grow, and the attempts end after three days.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Delivery{CreatedAt: time.Now().Unix(), Status: Pending}
		var waits []time.Duration
		for d.Status == Pending {
			start := time.Now()
			d.attempted(Attempt{}, false, start)
			if d.Status == Pending {
				time.Sleep(time.Until(time.Unix(d.DueAt, 0)))
				waits = append(waits, time.Since(start))
			}
		}
		if d.Status != Failed || len(waits) < 15 || len(waits) > 40 {
			t.Errorf("got %s after %d attempts", d.Status, len(d.Attempts))
		}
		if age := time.Duration(time.Now().Unix()-d.CreatedAt) * time.Second; age > retryTime ||
			age < retryTime-2*maxWait {
			t.Errorf("failed after %v, want %v", age, retryTime)
		}
		for i, w := range waits {
			if least := min(maxWait, firstWait<<i); w < least-time.Second || w > maxWait*6/5 {
				t.Errorf("wait %d is %v", i+1, w)
			}
		}
	})
}

// Finished deliveries are deleted in time, and all deliveries with their endpoint.
func TestDeliveriesAreDeleted(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine)
	h.start()
	h.end(mine, berth.StatusCompleted)
	list := h.log(e.ID, func(l []*Delivery) bool { return l[0].Status == Delivered })
	h.hurry(e.ID, list[0].ID)
	h.log(e.ID, func(l []*Delivery) bool { return len(l) == 0 })

	h.stop()
	h.end(mine, berth.StatusCompleted)
	if err := h.svc.Delete(t.Context(), mine, e.ID); err != nil {
		t.Fatal(err)
	}
	if refs, err := h.db.ExpiredObjects(t.Context(), KindDelivery, time.Now().Add(time.Hour), 10); err != nil ||
		len(refs) != 0 {
		t.Errorf("%d deliveries outlived their endpoint, %v", len(refs), err)
	}
	if n := len(h.received); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}

func TestEndpoint(t *testing.T) {
	h := newHouse(t)
	ctx := t.Context()
	e := h.create(mine, berth.EventFailed, berth.EventCompleted, berth.EventFailed)
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(e.SigningSecret, "whsec_")); err != nil ||
		len(key) != 32 {
		t.Errorf("got secret %s", e.SigningSecret)
	}
	got, err := h.svc.Get(ctx, mine, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.SigningSecret != "" || !strings.HasSuffix(e.SigningSecret, strings.TrimPrefix(got.SigningSecretHint, "…")) ||
		!slices.Equal(got.EventTypes, []berth.EventType{"response.completed", "response.failed"}) {
		t.Errorf("got %+v", got)
	}
	for name, f := range map[string]func(berth.ProjectID, berth.WebhookID) error{
		"Get": func(p berth.ProjectID, id berth.WebhookID) error { _, err := h.svc.Get(ctx, p, id); return err },
		"Update": func(p berth.ProjectID, id berth.WebhookID) error {
			_, err := h.svc.Update(ctx, p, id, EndpointRequest{})
			return err
		},
		"RotateSecret": func(p berth.ProjectID, id berth.WebhookID) error {
			_, err := h.svc.RotateSecret(ctx, p, id, true)
			return err
		},
		"Log": func(p berth.ProjectID, id berth.WebhookID) error {
			_, _, err := h.svc.Log(ctx, p, id, store.Page{Limit: 1})
			return err
		},
		"Test": func(p berth.ProjectID, id berth.WebhookID) error {
			_, err := h.svc.Test(ctx, p, id, berth.EventFailed)
			return err
		},
		"Delete": func(p berth.ProjectID, id berth.WebhookID) error { return h.svc.Delete(ctx, p, id) },
	} {
		for _, err := range []error{f(theirs, e.ID), f(mine, "whe_none")} {
			if berth.ErrorCode(err) != berth.CodeNotFound {
				t.Errorf("%s of another's or an unknown endpoint: got %v", name, err)
			}
		}
	}
	changed, err := h.svc.Update(ctx, mine, e.ID, EndpointRequest{Name: ptr("other")})
	if err != nil || changed.Name != "other" || changed.URL != e.URL || !slices.Equal(changed.EventTypes,
		got.EventTypes) {
		t.Errorf("got %+v, %v", changed, err)
	}
	for _, bad := range []EndpointRequest{
		{URL: ptr("")}, {URL: ptr("/hook")}, {URL: ptr("https:///x")}, {URL: ptr("ftp://a/"), Anywhere: true},
		{URL: ptr("http://a.example/")},
		{URL: ptr("https://me:secret@a.example/")}, {URL: ptr("https://a.example/" + strings.Repeat("x", maxURL))},
		{URL: ptr("https://a.example/#x")}, {URL: ptr("https://a\x00/")},
		{EventTypes: []berth.EventType{}}, {EventTypes: []berth.EventType{"response.created"}},
	} {
		if _, err := h.svc.Update(ctx, mine, e.ID, bad); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%+v: got %v", bad, err)
		}
	}
	for range maxEndpoints - 1 {
		h.create(mine)
	}
	if _, err := h.svc.Create(ctx, mine, EndpointRequest{URL: ptr("https://a.example/"),
		EventTypes: EventTypes}); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("one too many: got %v", err)
	}
}

// A new secret signs immediately. The old one signs too if the client requests it.
func TestRotateSecret(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine)
	old := e.SigningSecret
	for _, keep := range []bool{true, false} {
		renewed, err := h.svc.RotateSecret(t.Context(), mine, e.ID, keep)
		if err != nil || renewed.SigningSecret == old {
			t.Fatalf("got %+v, %v", renewed, err)
		}
		if status, err := h.svc.Test(t.Context(), mine, e.ID, berth.EventCompleted); status != 200 || err != nil {
			t.Fatalf("got %d, %v", status, err)
		}
		m := h.received[len(h.received)-1]
		for secret, want := range map[string]bool{renewed.SigningSecret: true, old: keep} {
			client := openai.NewClient(option.WithAPIKey("none"), option.WithWebhookSecret(secret))
			if _, err := client.Webhooks.Unwrap([]byte(m.body), m.header); (err == nil) != want {
				t.Errorf("keep %v: got %v, want a valid signature: %v", keep, err, want)
			}
		}
		old = renewed.SigningSecret
	}
}

// An endpoint that was not created by the operator cannot be on a private network, even
// if its name resolves to it.
func TestPublicAddresses(t *testing.T) {
	h := newHouse(t)
	srv := httptest.NewTLSServer(http.HandlerFunc(h.serve))
	defer srv.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "https://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "0.0.0.0"} {
		id := h.stored(fmt.Sprintf("https://%s:%s/", host, port))
		if status, err := h.svc.Test(t.Context(), mine, id, berth.EventCompleted); status != 0 || err == nil ||
			strings.Contains(err.Error(), "not public") {
			t.Errorf("%s: got %d, %v", host, status, err)
		}
	}
	if len(h.received) != 0 {
		t.Errorf("got %d requests on the server's own network, want 0", len(h.received))
	}
}

// stored stores an endpoint with a URL that Create may refuse, as earlier versions did not, and returns its id.
func (h *house) stored(url string) berth.WebhookID {
	h.t.Helper()
	e, err := h.svc.Create(h.t.Context(), mine, EndpointRequest{URL: ptr("https://hooks.example/"),
		EventTypes: EventTypes})
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = h.svc.objects.UpdateObject(h.t.Context(), mine, endpointKey(e.ID), func(o *store.Object) error {
		o.Body = bytes.Replace(o.Body, []byte("https://hooks.example/"), []byte(url), 1)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return e.ID
}

// An address to which no delivery would be sent is refused immediately, and so is a port that does not exist.
func TestUnreachableAddresses(t *testing.T) {
	h := newHouse(t)
	e := h.create(mine)
	for _, host := range []string{"127.0.0.1", "127.0.0.1:8080", "10.1.2.3", "192.168.1.1:443", "169.254.169.254",
		"0.0.0.0", "[::1]", "[::1]:443", "[::ffff:127.0.0.1]", "[fd00::1]",
		"[fe80::1%25eth0]", "100.64.0.1", "224.0.0.1", "hooks.example:65536", "hooks.example:0",
		"8.8.8.8:99999999999999999999"} {
		req := EndpointRequest{URL: ptr("https://" + host + "/hook"), EventTypes: EventTypes}
		_, err := h.svc.Create(t.Context(), mine, req)
		_, updateErr := h.svc.Update(t.Context(), mine, e.ID, req)
		for _, err := range []error{err, updateErr} {
			if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeInvalid || e.Param != "url" {
				t.Errorf("%s: got %v", host, err)
			}
		}
	}
	for _, host := range []string{"8.8.8.8", "8.8.8.8:65535", "[2606:4700:4700::1111]:8443", "hooks.example:1"} {
		if _, err := h.svc.Create(t.Context(), mine, EndpointRequest{URL: ptr("https://" + host + "/hook"),
			EventTypes: EventTypes}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	operator := EndpointRequest{URL: ptr("http://10.1.2.3:8080/hook"), EventTypes: EventTypes, Anywhere: true}
	if _, err := h.svc.Create(t.Context(), mine, operator); err != nil {
		t.Errorf("the operator's: %v", err)
	}
	operator.URL = ptr("http://10.1.2.3:65536/hook")
	if _, err := h.svc.Create(t.Context(), mine, operator); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("the operator's, with a wrong port: %v", err)
	}
}
