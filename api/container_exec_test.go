package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/sse"
)

// TestExec runs commands in a container over plain HTTP.
func TestExec(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers", `{"name":"dock"}`)
	path := "/v1/containers/" + c.id() + "/exec"
	for _, tt := range []struct {
		what, body     string
		outcome        string
		code           any
		stdout, stderr string
		truncated      bool
	}{
		{"arguments", `{"command":["printf","%s|","a b","c"]}`, "exit", 0.0, "a b|c|", "", false},
		{"a shell command", `{"command":"echo out; echo err >&2; exit 7"}`, "exit", 7.0, "out\n", "err\n", false},
		{"environment and directory", `{"command":"echo $A; pwd","env":{"A":"x y"},"working_directory":"/usr"}`, "exit",
			0.0, "x y\n/usr\n", "", false},
		{"input", `{"command":["wc","-c"],"stdin":"` + strings.Repeat("x", 200_000) + `"}`, "exit", 0.0, "200000\n", "",
			false},
		{"empty input", `{"command":["cat"],"stdin":""}`, "exit", 0.0, "", "", false},
		{"no input", `{"command":["cat"]}`, "exit", 0.0, "", "", false},
		{"a signal", `{"command":"kill -9 $$"}`, "signal", nil, "", "", false},
		{"timeout", `{"command":"echo first; exec sleep 100","timeout_ms":300}`, "timeout", nil, "first\n", "", false},
		{"bytes that are not text", `{"command":"printf 'a\\377b\\342\\202'"}`, "exit", 0.0, "a\ufffdb\ufffd", "",
			false},
		{"too much output", `{"command":"printf 123456; printf 12345 >&2","max_output_bytes":5}`, "exit", 0.0, "12345",
			"12345", true},
	} {
		got := h.call(200, "POST", path, tt.body)
		if signal := got.at("outcome", "signal"); tt.outcome == "signal" && signal != 9.0 {
			t.Errorf("%s: got signal %v, want 9", tt.what, signal)
		}
		if got.at("object") != "container.exec" || got.at("container_id") != c.id() ||
			got.at("outcome", "type") != tt.outcome || got.at("exit_code") != tt.code ||
			got.at("stdout") != tt.stdout || got.at("stderr") != tt.stderr || got.at("truncated") != tt.truncated {
			t.Errorf("%s: got %v", tt.what, got)
		}
	}
	for body, want := range map[string]string{
		`{}`:                               "Missing required parameter: 'command'.",
		`{"command":[]}`:                   "command",
		`{"command":7}`:                    "a string or a list of strings",
		`{"command":["nosuchprogram"]}`:    "executable file not found",
		`{"command":"x","env":{"A=B":""}}`: "is not the name of an environment variable",
		`{"command":"x","working_directory":"/nonesuch"}`: "'/nonesuch' does not exist",
		`{"command":"x","timeout_ms":0}`:                  "timeout_ms",
		`{"command":"x","user":"nonesuch"}`:               "nonesuch",
		`{"command":"x","tty":true}`:                      "Unknown parameter: 'tty'.",
	} {
		if got, _ := h.call(400, "POST", path, body).at("error", "message").(string); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
	h.call(404, "POST", "/v1/containers/cntr_none/exec", `{"command":"true"}`)
	logs := h.call(200, "GET", "/v1/containers/"+c.id()+"/logs?limit=100", nil)
	if text, _ := json.Marshal(logs); !strings.Contains(string(text), `"source":"exec"`) ||
		!strings.Contains(string(text), "exit 7") {
		t.Errorf("the log lacks the commands: %s", text)
	}
}

// TestExecStream reads the output of a command while it runs.
func TestExecStream(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers", `{"name":"dock"}`)
	fifo := t.TempDir() + "/fifo"
	resp := h.send(t.Context(), "POST", "/v1/containers/"+c.id()+"/exec",
		`{"stream":true,"command":"mkfifo `+fifo+`; printf 'a\\342\\202'; cat `+fifo+` >/dev/null; printf '\\254b'; echo c >&2"}`)
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	var stdout, stderr, last string
	for ev, err := range sse.NewReader(resp.Body, 1<<20).Events() {
		if err != nil {
			t.Fatal(err)
		}
		var data struct {
			Delta    string
			ExitCode *int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(ev.Data), &data); err != nil {
			t.Fatal(err)
		}
		switch last = ev.Type; last {
		case "container.exec.stdout.delta":
			stdout += data.Delta
			if stdout == "a" { // the command waits
				if err := os.WriteFile(fifo, nil, 0); err != nil {
					t.Fatal(err)
				}
			}
		case "container.exec.stderr.delta":
			stderr += data.Delta
		case "container.exec.completed":
			if data.ExitCode == nil || *data.ExitCode != 0 {
				t.Errorf("got %s", ev.Data)
			}
		}
	}
	if stdout != "a\u20acb" || stderr != "c\n" || last != "container.exec.completed" {
		t.Errorf("got %q, %q, %s", stdout, stderr, last)
	}
}

// TestExecEndsWithItsRequest disconnects the client of a command that would run on.
func TestExecEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers", `{"name":"dock"}`)
	pid := t.TempDir() + "/pid"
	ctx, cancel := context.WithCancel(t.Context())
	resp := h.send(ctx, "POST", "/v1/containers/"+c.id()+"/exec",
		`{"stream":true,"command":"trap '' TERM HUP; echo $$ >`+pid+`; echo ready; while :; do sleep 1; done"}`)
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { text, _ := os.ReadFile(pid); return len(text) > 0 })
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = io.Copy(io.Discard, resp.Body)
	eventually(t, "the command has ended", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(text)))
		return os.IsNotExist(err)
	})
}

// TestExecServerStops stops the server while commands run: their clients get an error, not an empty
// answer.
func TestExecServerStops(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		t.Run(stream, func(t *testing.T) {
			h := newHouse(t, nil)
			c := h.call(200, "POST", "/v1/containers", `{"name":"dock"}`)
			ready := t.TempDir() + "/ready"
			answers := make(chan string)
			go func() {
				resp := h.send(t.Context(), "POST", "/v1/containers/"+c.id()+"/exec",
					`{"stream":`+stream+`,"command":"echo >`+ready+`; exec sleep 600"}`)
				raw, _ := io.ReadAll(resp.Body)
				answers <- fmt.Sprint(resp.StatusCode, " ", string(raw))
			}()
			eventually(t, "the command runs", func() bool { _, err := os.Stat(ready); return err == nil })
			h.stop(errors.New("the server is stopping"))
			if got := <-answers; !strings.Contains(got, "because the server is stopping") ||
				(stream == "false") != strings.HasPrefix(got, "503 ") {
				t.Errorf("got %s", got)
			}
		})
	}
}
