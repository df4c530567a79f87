package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// A hookServer receives webhooks and verifies their signatures as E2B documents it.
type hookServer struct {
	*httptest.Server
	t      *testing.T
	secret string

	mu         sync.Mutex
	events     []berth.SandboxEvent
	deliveries map[string]bool
	fail       int // requests to answer with status 500
}

func newHookServer(t *testing.T, secret string) *hookServer {
	s := &hookServer{t: t, secret: secret, deliveries: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *hookServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	sum := sha256.Sum256([]byte(s.secret + string(body)))
	if want := strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]),
		"="); r.Header.Get("e2b-signature") != want || r.Header.Get("e2b-signature-version") != "v1" {
		s.t.Errorf("the signature is %q, want %q", r.Header, want)
	}
	var event berth.SandboxEvent
	if err := json.Unmarshal(body, &event); err != nil {
		s.t.Errorf("%s: %v", body, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delivery := r.Header.Get("e2b-delivery-id")
	if s.deliveries[delivery] || delivery == "" || r.Header.Get("e2b-webhook-id") == "" {
		s.t.Errorf("the headers are %v: each attempt has an id of its own", r.Header)
	}
	s.deliveries[delivery] = true
	if s.fail > 0 {
		s.fail--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.events = append(s.events, event)
}

// wait returns the events of a sandbox by type once there are n.
func (s *hookServer) wait(sandbox string, n int) (all []berth.SandboxEvent) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		all = slices.DeleteFunc(slices.Clone(s.events), func(e berth.SandboxEvent) bool {
			return e.SandboxID != sandbox
		})
		s.mu.Unlock()
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("got the events %v, want %d", all, n)
		}
	}
}

// An eventHouse is a house that sends webhooks.
type eventHouse struct {
	*house
	hooks *webhook.Service
	stop  context.CancelFunc
	opts  api.Options
	store *failingObjects
}

// failingObjects saves no events while down is true, as if the process had ended before.
type failingObjects struct {
	store.Objects
	down atomic.Bool
}

func (f *failingObjects) CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*store.Object) error {
	if f.down.Load() && slices.ContainsFunc(objects, func(o *store.Object) bool {
		return o.Kind == store.KindE2BEvent
	}) {
		return store.ErrUnavailable
	}
	return f.Objects.CreateObjects(ctx, p, objects...)
}

func newEventHouse(t *testing.T) *eventHouse {
	h := &eventHouse{}
	h.house = newHouse(t, func(o *api.Options) {
		h.hooks, h.store = o.Webhooks, &failingObjects{Objects: storeOf(o)}
		h.serve(t, o)
		h.opts = *o
	})
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); h.hooks.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return h
}

// serve starts the next server of E2B's API.
func (h *eventHouse) serve(t *testing.T, o *api.Options) {
	withSandboxOptions(t, &h.stop, func(o *sandboxParts) { o.objects = h.store })(o)
}

func (h *eventHouse) do(want int, method, path, body string) string {
	h.t.Helper()
	return h.as("sk-mine", want, method, path, body)
}

func (h *eventHouse) as(key string, want int, method, path, body string) string {
	h.t.Helper()
	status, text := h.sandboxCall(method, path, body, map[string]string{"X-API-Key": key})
	if status != want {
		h.t.Fatalf("%s %s: got %d %s, want %d", method, path, status, text, want)
	}
	return text
}

type listedEvent struct {
	ID, Version, Type, Timestamp, SandboxID string
	EventCategory, EventLabel               string
	SandboxExecutionID, SandboxTemplateID   string
	SandboxBuildID, SandboxTeamID           string
	EventData                               *berth.SandboxEventData
}

func (h *eventHouse) events(path string) (list []listedEvent) {
	h.t.Helper()
	check(h.t, json.Unmarshal([]byte(h.do(200, "GET", path, "")), &list))
	return list
}

// types returns the last words of the types of listed events.
func types(list []listedEvent) (out []string) {
	for _, e := range list {
		out = append(out, strings.TrimPrefix(e.Type, "sandbox.lifecycle."))
	}
	return out
}

func (h *eventHouse) waitTypes(path string, want ...string) []listedEvent {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		list := h.events(path)
		if slices.Equal(types(list), want) {
			return list
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: got %q, want %q", path, types(list), want)
		}
	}
}

// endpoint creates a webhook at a server of this machine, which only the operator may.
func (h *eventHouse) endpoint(s *hookServer, kinds ...berth.EventType) *berth.WebhookEndpoint {
	h.t.Helper()
	e, err := h.hooks.Create(h.t.Context(), "proj_mine", webhook.EndpointRequest{Name: new("x"), URL: &s.URL,
		EventTypes: kinds, Sandboxes: true, Secret: &s.secret, Anywhere: true})
	check(h.t, err)
	return e
}

// Each change of a sandbox is an event: in both lists, and at the webhooks for its type.
func TestSandboxEvents(t *testing.T) {
	t.Parallel()
	h := newEventHouse(t)
	all, some := newHookServer(t, "a secret"), newHookServer(t, "s")
	all.fail = 1 // the first attempt, which is repeated
	h.endpoint(all, webhook.SandboxEventTypes...)
	h.endpoint(some, berth.EventSandboxKilled)
	s := h.newSandbox("sk-mine", `{"templateID":"base","timeout":60,"metadata":{"user":"ada"}}`)
	path := "/sandboxes/" + s.ID
	h.do(204, "POST", path+"/timeout", `{"timeout":600}`)
	h.do(204, "POST", path+"/pause", "")
	h.do(409, "POST", path+"/pause", "")
	h.do(201, "POST", path+"/connect", `{"timeout":600}`)
	h.do(200, "POST", path+"/connect", `{"timeout":1}`) // earlier: changes nothing
	h.do(204, "PUT", path+"/network", `{"allow_internet_access":false}`)
	h.do(204, "DELETE", path, "")
	h.do(404, "DELETE", path, "")

	want := []string{"created", "updated", "paused", "resumed", "updated", "killed"}
	list := h.events("/events/sandboxes/" + s.ID + "?orderAsc=true")
	if diff := cmp.Diff(want, types(list)); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	first, paused, killed := list[0], list[2], list[5]
	if first.Version != "v2" || first.SandboxID != s.ID || first.SandboxTeamID != "proj_mine" ||
		first.SandboxTemplateID != "base" || first.SandboxBuildID == "" || first.EventData.Metadata["user"] != "ada" ||
		first.EventLabel != "create" {
		t.Errorf("the first event is %+v", first)
	}
	if at, err := time.Parse(time.RFC3339, list[1].EventData.SetTimeout); err != nil || time.Until(at) < 9*time.Minute {
		t.Errorf("set_timeout is %q", list[1].EventData.SetTimeout)
	}
	if e := paused.EventData.Execution; e == nil || e.CPUCount != 2 || e.MemoryMB == 0 || e.StartedAt == "" {
		t.Errorf("the execution is %+v", e)
	}
	if paused.SandboxExecutionID != first.SandboxExecutionID || killed.SandboxExecutionID == first.SandboxExecutionID ||
		killed.EventData.Execution == nil {
		t.Errorf("the executions are %+v and %+v", paused, killed)
	}
	newest := slices.Clone(list)
	slices.Reverse(newest)
	for query, want := range map[string][]listedEvent{"": newest, "?limit=2&offset=1": newest[1:3],
		"?types=sandbox.lifecycle.updated&types=sandbox.lifecycle.killed": {newest[0], newest[1], newest[4]},
		"?types=sandbox.lifecycle.updated&orderAsc=true&offset=1":         {list[4]}, "?offset=6": {}} {
		for _, path := range []string{"/events/sandboxes", "/events/sandboxes/" + s.ID} {
			if diff := cmp.Diff(want, h.events(path+query)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path+query, diff)
			}
		}
	}
	for _, query := range []string{"limit=0", "limit=101", "offset=-1", "orderAsc=maybe",
		"types=sandbox.lifecycle.born", "page=2"} {
		h.do(400, "GET", "/events/sandboxes?"+query, "")
	}
	got := all.wait(s.ID, 6)
	slices.SortFunc(got, func(a, b berth.SandboxEvent) int { // attempts are concurrent
		index := func(e berth.SandboxEvent) int {
			return slices.IndexFunc(list, func(l listedEvent) bool { return l.ID == e.ID })
		}
		return index(a) - index(b)
	})
	for i, e := range got {
		if e.ID != list[i].ID || string(e.Type) != list[i].Type || e.Category != "lifecycle" {
			t.Errorf("received %+v, want %+v", e, list[i])
		}
	}
	if killed := some.wait(s.ID, 1); len(killed) != 1 || killed[0].Type != berth.EventSandboxKilled {
		t.Errorf("received %+v", killed)
	}
	if text := h.as("sk-theirs", 200, "GET", "/events/sandboxes", ""); text != "[]" {
		t.Errorf("another project's list is %s", text)
	}
	h.as("sk-theirs", 404, "GET", "/events/sandboxes/"+s.ID, "")
	h.do(404, "GET", "/events/sandboxes/none", "")
}

// An end that is no request of E2B's API is an event too, and so is a pause at the deadline.
func TestSandboxEventsOfOthers(t *testing.T) {
	t.Parallel()
	h := newEventHouse(t)
	deleted := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	timedOut := h.newSandbox("sk-mine", `{"templateID":"base","timeout":0}`)
	paused := h.newSandbox("sk-mine", `{"templateID":"base","timeout":0,"autoPause":true}`)
	if status, text := h.sandboxCall("DELETE", "/v1/containers/cntr_"+deleted.ID, "",
		map[string]string{"Authorization": "Bearer sk-mine"}); status != 200 {
		t.Fatalf("got %d %s", status, text)
	}
	h.waitTypes("/events/sandboxes/"+deleted.ID, "killed", "created")
	h.waitTypes("/events/sandboxes/"+timedOut.ID, "killed", "created")
	h.waitTypes("/events/sandboxes/"+paused.ID, "paused", "created")
}

// A server that ends between a change and its event leaves the event to the next one, which sends it once.
func TestSandboxEventsAfterCrash(t *testing.T) {
	t.Parallel()
	h := newEventHouse(t)
	receiver := newHookServer(t, "secret")
	h.endpoint(receiver, webhook.SandboxEventTypes...)
	s, gone := h.newSandbox("sk-mine", `{"templateID":"base"}`), h.newSandbox("sk-mine", `{"templateID":"base"}`)
	receiver.wait(s.ID, 1)
	receiver.wait(gone.ID, 1)
	h.store.down.Store(true)
	h.do(204, "POST", "/sandboxes/"+s.ID+"/pause", "")
	if status, text := h.sandboxCall("DELETE", "/sandboxes/"+gone.ID, "",
		map[string]string{"X-API-Key": "sk-mine"}); status < 500 {
		t.Fatalf("a kill whose event cannot be saved: got %d %s", status, text)
	}
	h.stop()
	if got := types(h.events("/events/sandboxes/" + s.ID)); !slices.Equal(got, []string{"created"}) {
		t.Fatalf("before the restart: got %q", got)
	}
	h.store.down.Store(false)
	for range 2 {
		opts := h.opts
		h.serve(t, &opts)
		h.waitTypes("/events/sandboxes/"+s.ID, "paused", "created")
		h.waitTypes("/events/sandboxes/"+gone.ID, "killed", "created")
		h.stop()
	}
	if got := receiver.wait(s.ID, 2); len(got) != 2 || got[1].Type != berth.EventSandboxPaused {
		t.Errorf("received %+v", got)
	}
	if got := receiver.wait(gone.ID, 2); len(got) != 2 || got[1].Type != berth.EventSandboxKilled {
		t.Errorf("received %+v", got)
	}
}

// Webhooks are managed as E2B's API has it. Their secrets cannot be read, and they cannot reach this server's network.
func TestSandboxWebhooks(t *testing.T) {
	t.Parallel()
	h := newEventHouse(t)
	const secret = "correct horse battery staple"
	body := `{"name":"x","url":"https://hooks.example/a","events":["sandbox.lifecycle.created","sandbox.lifecycle.killed"],"signatureSecret":"` + secret + `"}`
	text := h.do(201, "POST", "/events/webhooks", body)
	var made struct {
		ID, Name, TeamID, URL, CreatedAt string
		Enabled                          bool
		Events                           []string
	}
	check(t, json.Unmarshal([]byte(text), &made))
	if made.Name != "x" || made.TeamID != "proj_mine" || !made.Enabled || len(made.Events) != 2 || len(made.ID) != 36 {
		t.Errorf("got %s", text)
	}
	path := "/events/webhooks/" + made.ID
	texts := []string{text, h.do(200, "GET", path, ""), h.do(200, "GET", "/events/webhooks", "")}
	if texts[1] != text || texts[2] != "["+text+"]" {
		t.Errorf("got %q", texts)
	}
	changed := h.do(200, "PATCH", path,
		`{"enabled":false,"events":["sandbox.lifecycle.paused"],"name":"y","signatureSecret":"`+secret+`2"}`)
	if want := strings.NewReplacer(`"x"`, `"y"`, "true", "false",
		`"sandbox.lifecycle.created","sandbox.lifecycle.killed"`, `"sandbox.lifecycle.paused"`).Replace(
		text); changed != want {
		t.Errorf("got %s, want %s", changed, want)
	}
	bearer := map[string]string{"Authorization": "Bearer sk-mine"}
	_, own := h.sandboxCall("GET", "/v1/webhook_endpoints/"+made.ID, "", bearer)
	if !strings.Contains(own, `"disabled":true`) || !strings.Contains(own, `"signing_secret_hint":""`) {
		t.Errorf("as an endpoint of Berth it is %s", own)
	}
	if status, text := h.sandboxCall("POST", "/v1/webhook_endpoints/"+made.ID+"/rotate_secret", "{}",
		bearer); status != 400 {
		t.Errorf("got %d %s", status, text)
	}
	for _, text := range append(texts, changed, own) {
		if strings.Contains(text, "horse") {
			t.Errorf("%s has the secret", text)
		}
	}
	_, ours := h.sandboxCall("POST", "/v1/webhook_endpoints",
		`{"name":"x","url":"https://hooks.example/a","event_types":["response.completed"]}`, bearer)
	var plain struct{ ID string }
	check(t, json.Unmarshal([]byte(ours), &plain))
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		h.as("sk-theirs", 404, method, path, "{}")
		h.do(404, method, "/events/webhooks/"+plain.ID, "{}") // it receives no events of sandboxes
	}
	if text := h.as("sk-theirs", 200, "GET", "/events/webhooks", ""); text != "[]" {
		t.Errorf("another project's list is %s", text)
	}
	for change, want := range map[string]string{
		`"url":"http://hooks.example/a"`:                       "https",
		`"url":"https://127.0.0.1/a"`:                          "public addresses only",
		`"url":"https://169.254.169.254/latest"`:               "public addresses only",
		`"url":"https://[::1]:8080/"`:                          "public addresses only",
		`"url":"https://u:p@hooks.example/"`:                   "password",
		`"events":["response.completed"]`:                      "Supported values are: 'sandbox.lifecycle.created'",
		`"events":[]`:                                          "events",
		`"signatureSecret":""`:                                 "signatureSecret",
		`"signatureSecret":"` + strings.Repeat("x", 257) + `"`: "signatureSecret",
		`"name":"` + strings.Repeat("x", 257) + `"`:            "name",
		`"surprise":1`:                                         "surprise",
	} {
		for _, r := range []string{"POST /events/webhooks", "PATCH " + path} {
			method, at, _ := strings.Cut(r, " ")
			all := map[string]json.RawMessage{}
			if method == "POST" {
				check(t, json.Unmarshal([]byte(body), &all))
			}
			check(t, json.Unmarshal([]byte("{"+change+"}"), &all))
			sent, err := json.Marshal(all)
			check(t, err)
			if text := h.do(400, method, at, string(sent)); !strings.Contains(text, want) {
				t.Errorf("%s: got %s, want %q", change, text, want)
			}
		}
	}
	// A name of a private address is refused when the event is sent. Its delivery is in the log of the endpoint.
	h.do(200, "PATCH", path, `{"url":"https://localhost:1/","enabled":true,"events":["sandbox.lifecycle.created"]}`)
	h.newSandbox("sk-mine", `{"templateID":"base"}`)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, log := h.sandboxCall("GET", "/v1/webhook_endpoints/"+made.ID+"/deliveries", "", bearer)
		if strings.Contains(log, "the address is not public") && strings.Contains(log, `"sandbox_id"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log is %s", log)
		}
	}
	h.do(200, "DELETE", path, "")
	h.do(404, "GET", path, "")
	for i := range 19 {
		h.do(201, "POST", "/events/webhooks", strings.Replace(body, `"x"`, fmt.Sprintf(`"%d"`, i), 1))
	}
	if text := h.do(400, "POST", "/events/webhooks", body); !strings.Contains(text, "limit of 20") {
		t.Errorf("got %s", text)
	}
}

// A webhook that is disabled gets no events, and no further attempts.
func TestSandboxWebhookDisabled(t *testing.T) {
	t.Parallel()
	h := newEventHouse(t)
	receiver := newHookServer(t, "secret")
	receiver.fail = 1
	e := h.endpoint(receiver, webhook.SandboxEventTypes...)
	h.newSandbox("sk-mine", `{"templateID":"base"}`)
	log := func() []*webhook.Delivery {
		list, _, err := h.hooks.Log(t.Context(), "proj_mine", e.ID, store.Page{Limit: 10})
		check(t, err)
		return list
	}
	for deadline := time.Now().Add(time.Minute); len(log()) == 0 ||
		len(log()[0].Attempts) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no attempt")
		}
	}
	h.do(200, "PATCH", "/events/webhooks/"+string(e.ID), `{"enabled":false}`)
	h.newSandbox("sk-mine", `{"templateID":"base"}`)
	for deadline := time.Now().Add(time.Minute); log()[0].Status != webhook.Failed; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", log()[0])
		}
	}
	if all := log(); len(all) != 1 || len(all[0].Attempts) != 1 || len(receiver.events) != 0 {
		t.Errorf("got %d deliveries, the first with %d attempts, and %v", len(all), len(all[0].Attempts),
			receiver.events)
	}
}
