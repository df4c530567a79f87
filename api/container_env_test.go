package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// berth.env of a container has at most 100 variables of at most 32 KB, each with a name that a shell accepts.
func TestContainerEnvironment(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	variables := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"A%d":"x"`, i))
		}
		return strings.Join(all, ",")
	}
	for _, tc := range []struct {
		name, env, param, code string
	}{
		{"the most variables", variables(100), "", ""},
		{"one more", variables(101), "berth.env", "object_above_max_properties"},
		{"the longest value", `"A":"` + strings.Repeat("x", 32<<10) + `"`, "", ""},
		{"a longer one", `"A":"` + strings.Repeat("x", 32<<10+1) + `"`, "berth.env.A", "string_above_max_length"},
		{"a name with =", `"A=B":"x"`, "berth.env", "invalid_value"},
		{"no name", `"":"x"`, "berth.env", "invalid_value"},
		{"a NUL byte", `"A":"x\u0000y"`, "berth.env.A", "invalid_value"},
		{"a number", `"A":1`, "berth.env.A", "invalid_type"},
	} {
		status := http.StatusOK
		if tc.code != "" {
			status = http.StatusBadRequest
		}
		got := h.call(status, "POST", "/v1/containers", `{"name":"box","berth":{"env":{`+tc.env+`}}}`)
		if tc.code == "" {
			h.call(http.StatusOK, "DELETE", "/v1/containers/"+got.id(), nil)
		} else if got.at("error", "param") != tc.param || got.at("error", "code") != tc.code {
			t.Errorf("%s: got %v, want %s at %s", tc.name, got, tc.code, tc.param)
		}
	}
}
