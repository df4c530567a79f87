package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/api/signin"
	"github.com/berth-run/berth/people"
)

// The endpoints with which programs sign people in take small forms of the one client, and answer in the form of OAuth.
func TestSignInForms(t *testing.T) {
	var origins []string
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Origins = []string{"https://app.example"}
		origins = o.Exchange.Origins
	})
	service := people.New(people.Options{Objects: h.store, Life: time.Hour})
	h = newHouse(t, func(o *api.Options) {
		o.Exchange.Origins = origins
		o.SignIn = &signin.Door{People: service, Origin: "https://berth.test", Now: time.Now}
	})
	h.key("sk-mine", "proj_mine")
	const form = "application/x-www-form-urlencoded"
	send := func(method, path, kind, body string) (status int, code string, header http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader(body))
		check(t, err)
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Origin", "https://app.example")
		resp, err := http.DefaultClient.Do(r)
		check(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		check(t, err)
		var answer struct {
			Error any `json:"error"`
		}
		check(t, json.Unmarshal(raw, &answer))
		code, _ = answer.Error.(string)
		return resp.StatusCode, code, resp.Header
	}
	const me = "client_id=" + signin.ClientID
	for name, try := range map[string]struct {
		method, path, kind, body, code string
		status                         int
	}{
		"no form":            {"POST", signin.TokenPath, "application/json", `{"client_id":"berth-cli"}`, "invalid_request", 400},
		"in the query":       {"POST", signin.TokenPath + "?" + me, form, "", "invalid_request", 400},
		"beside a query":     {"POST", signin.TokenPath + "?x=y", form, me, "invalid_request", 400},
		"another client":     {"POST", signin.TokenPath, form, "client_id=evil", "invalid_client", 400},
		"no client":          {"POST", signin.DevicePath, form, "", "invalid_client", 400},
		"two clients":        {"POST", signin.DevicePath, form, me + "&" + me, "invalid_request", 400},
		"two codes":          {"POST", signin.TokenPath, form, me + "&code=a&code=b", "invalid_request", 400},
		"a broken form":      {"POST", signin.TokenPath, form, me + "&code=%zz", "invalid_request", 400},
		"a large form":       {"POST", signin.TokenPath, form, me + "&code=" + strings.Repeat("x", 9<<10), "invalid_request", 400},
		"no grant":           {"POST", signin.TokenPath, form, me, "unsupported_grant_type", 400},
		"a password":         {"POST", signin.TokenPath, form, me + "&grant_type=password&username=a&password=b", "unsupported_grant_type", 400},
		"an unknown code":    {"POST", signin.TokenPath, form, me + "&grant_type=authorization_code&code=x", "invalid_grant", 400},
		"an empty device":    {"POST", signin.TokenPath, form, me + "&grant_type=" + url.QueryEscape("urn:ietf:params:oauth:grant-type:device_code"), "invalid_grant", 400},
		"an unknown session": {"POST", signin.RevokePath, form, me + "&token=sk-berth-person-x", "", 200},
		"a key":              {"POST", signin.RevokePath, form, me + "&token=sk-mine", "", 200},
		"a device":           {"POST", signin.DevicePath, form, me, "", 200},
	} {
		status, code, header := send(try.method, try.path, try.kind, try.body)
		if status != try.status || code != try.code || header.Get("Cache-Control") != "no-store" ||
			header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got %d %s %v", name, status, code, header)
		}
	}
	h.token = "sk-mine"
	got := h.call(200, "GET", "/v1/whoami", "") // the key was not revoked
	if got["key_id"] == "" || got["project_id"] != "proj_mine" || got["session"] != false {
		t.Errorf("got %v", got)
	}
}
