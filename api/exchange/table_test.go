package exchange

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// A fullDisk refuses every request that stores something.
type fullDisk struct{}

func (fullDisk) Admit(...diskspace.Area) error { return diskspace.Refused(nil) }

// limited returns a quota with this rate for a project.
func limited(db store.Store, p berth.ProjectID, rate int64) *project.Quota {
	return project.NewQuota(project.QuotaOptions{Objects: db, Usages: db,
		Limits: map[berth.ProjectID]berth.Limits{p: {RequestsPerMinute: &rate}}})
}

// guests is a table of a route with an identity of its own: a token in a header, which names the traits of the request.
func guests(s *Server, traits map[string]Traits) http.Handler {
	rt := Route{Path: "guests", Permission: berth.MayRead, Select: func(r *http.Request) bool { return r.Header.Get("Token") != "" },
		Identity: func(_ *Exchange, r *http.Request) (v Visit, err error) {
			t, ok := traits[r.Header.Get("Token")]
			if !ok {
				return v, berth.Errorf(berth.CodeUnauthorized, "The token is wrong.")
			}
			return Visit{Caller: berth.Caller{Project: "proj_guest"}, Traits: t,
				Handle: func(x *Exchange, _ *http.Request, c berth.Caller) error {
					return x.JSON(http.StatusOK, string(c.Project))
				}}, nil
		},
		WriteError: func(x *Exchange, status int, e Error) { _ = x.JSON(status, e.Message) }}
	other := func(name string) Handler {
		return func(x *Exchange, _ *http.Request, _ berth.Caller) error { return x.JSON(http.StatusOK, name) }
	}
	host := Route{Path: "host", Permission: berth.MayRead, Host: func(host string) bool { return host == "guests.example" },
		Identity: func(*Exchange, *http.Request) (Visit, error) { return Visit{Handle: other("host")}, nil }}
	return s.Handler(s.Table([]Route{reading(On("GET /v1/models", other("models"))), rt, host}).Serve)
}

func (h testTable) ask(method, host, token string) (int, string, http.Header) {
	r := httptest.NewRequest(method, "http://"+host+"/v1/models", strings.NewReader("{}"))
	r.RemoteAddr = "127.0.0.1:5"
	if token != "" {
		r.Header.Set("Token", token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header()
}

type testTable struct{ http.Handler }

// A host beats a header, which beats the path.
func TestTableOrder(t *testing.T) {
	h := testTable{guests(New(Options{Keys: &keyring{}, Log: slog.New(slog.DiscardHandler)}),
		map[string]Traits{"a": 0})}
	for _, tt := range []struct{ host, token, want string }{
		{"localhost", "", `"models"`},
		{"localhost", "a", `"proj_guest"`},
		{"localhost", "b", `"The token is wrong."`},
		{"guests.example", "a", `"host"`},
		{"guests.example", "", `"host"`},
	} {
		if _, body, _ := h.ask("GET", tt.host, tt.token); body != tt.want {
			t.Errorf("%s with token %q: got %s, want %s", tt.host, tt.token, body, tt.want)
		}
	}
}

// A request with an identity of its own has the limits of any other, by the traits that the identity names. Its errors
// have the form of its API, and its answers no limits of OpenAI's headers.
func TestLimitsOfVisits(t *testing.T) {
	s := New(Options{Keys: &keyring{}, Quota: limited(database(t), "proj_guest", 2), Space: fullDisk{},
		Log: slog.New(slog.DiscardHandler)})
	h := testTable{guests(s, map[string]Traits{"stores": 0, "changes": StoresNothing | StoresLittle,
		"through": ThroughContainer})}
	var got []int
	for _, call := range []string{"POST stores", "PUT stores", "POST changes", "PUT changes", "GET stores",
		"POST through", "POST changes"} {
		method, token, _ := strings.Cut(call, " ")
		status, body, header := h.ask(method, "localhost", token)
		got = append(got, status)
		if !strings.HasPrefix(body, `"`) || header.Get("x-ratelimit-limit-requests") != "" {
			t.Errorf("%s: got %s %v", call, body, header)
		}
		if status == http.StatusTooManyRequests && header.Get("Retry-After") == "" {
			t.Errorf("%s: got %v, want Retry-After", call, header)
		}
	}
	if diff := cmp.Diff([]int{507, 507, 200, 200, 200, 200, 429}, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// farPlacement is a cluster in which another server has every container.
type farPlacement struct {
	cluster.Solo
	sent int
}

func (*farPlacement) Alone() bool { return false }

func (*farPlacement) Where(context.Context, cluster.Object, cluster.Aim) (cluster.Place, error) {
	return cluster.Place{Server: "b"}, nil
}

func (p *farPlacement) Forward(w http.ResponseWriter, _ *http.Request, _ *berth.Caller, _ string) error {
	p.sent++
	w.WriteHeader(http.StatusOK)
	return nil
}

// A server counts a request that it forwards, because the other server does not.
func TestRateOfForwardedRequests(t *testing.T) {
	far := &farPlacement{}
	s := New(Options{Keys: &keyring{}, Quota: limited(database(t), berth.DefaultProject, 1), Placement: far,
		Log: slog.New(slog.DiscardHandler)})
	h := s.Handler(s.Table([]Route{reading(On("POST /v1/containers/{container}/exec", nil, StoresNothing))}).Serve)
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if w := post(h, "/v1/containers/cntr_1/exec", "", asJSON, `{}`); w.Code != want {
			t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	if far.sent != 1 {
		t.Errorf("%d requests were forwarded, want 1", far.sent)
	}
}

// reading returns a route with a permission that all keys have.
func reading(rt Route) Route {
	rt.Permission = berth.MayRead
	return rt
}

// A route that nobody gave a permission refuses everyone.
func TestRouteWithoutPermission(t *testing.T) {
	all := berth.Caller{Project: "proj_a", Permissions: berth.AllPermissions("proj_a")}
	for _, c := range []berth.Caller{all, {Project: berth.AdminProject,
		Permissions: berth.AllPermissions(berth.AdminProject)}} {
		if err := permit(c, &Route{Path: "/v1/new"}); berth.ErrorCode(err) != berth.CodeForbidden {
			t.Errorf("%s: got %v", c.Project, err)
		}
	}
}
