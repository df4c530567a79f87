package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// What starts or changes something in a container by its guest's services counts toward the rate of its project. Reads
// and the input of a process do not.
func TestGuestRate(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"proj_slow": {RequestsPerMinute: number(1)}})
	h.key("sk-slow", "proj_slow")
	h.token = "sk-slow"
	guest := "/v1/containers/" + h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id() + "/guest/"
	for call, limited := range map[string]bool{
		"POST files?path=/a":                     true,
		"POST files/compose":                     true,
		"POST process.Process/Start":             true,
		"POST filesystem.Filesystem/MakeDir":     true,
		"POST filesystem.Filesystem/Move":        true,
		"POST filesystem.Filesystem/Remove":      true,
		"POST process.Process/SendInput":         false,
		"POST process.Process/List":              false,
		"POST filesystem.Filesystem/ListDir":     false,
		"GET files?path=/a":                      false,
		"POST process.Process/StreamInput":       false,
		"POST filesystem.Filesystem/GetWatcherX": false,
	} {
		method, path, _ := strings.Cut(call, " ")
		resp := h.send(t.Context(), method, guest+path, `{}`)
		resp.Body.Close()
		if (resp.StatusCode == http.StatusTooManyRequests) != limited {
			t.Errorf("%s: got %d; want it limited: %t", call, resp.StatusCode, limited)
		}
	}
}
