package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/internal/freeport"
)

// An mcpCall is an mcp_call as tests read it.
type mcpCall struct {
	Name, Status, Output string
	Error                json.RawMessage
}

// mcpTask returns a request that calls the tools of a server labelled "lab". Each call is
// NAME JSON. tool has the further fields of the tool.
func mcpTask(tool map[string]any, calls ...string) (responses.ResponseNewParams, option.RequestOption) {
	var input strings.Builder
	for _, c := range calls {
		name, arguments, _ := strings.Cut(c, " ")
		fmt.Fprintf(&input, "```json lab__%s\n%s\n```\n", name, arguments)
	}
	all := map[string]any{"type": "mcp", "server_label": "lab", "require_approval": "never"}
	for k, v := range tool {
		all[k] = v
	}
	return responses.ResponseNewParams{Model: "scripted",
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input.String())}},
		option.WithJSONSet("tools", []any{all})
}

// callMCP makes calls and returns them as the response shows them.
func callMCP(t *testing.T, s *server, tool map[string]any, calls ...string) []mcpCall {
	t.Helper()
	task, tools := mcpTask(tool, calls...)
	r, err := s.client().Responses.New(t.Context(), task, tools)
	if err != nil {
		t.Fatal(err)
	}
	var all []mcpCall
	for _, it := range r.Output {
		if it.Type != "mcp_call" {
			continue
		}
		var c mcpCall
		if err := json.Unmarshal([]byte(it.RawJSON()), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if r.Status != "completed" || len(all) != len(calls) {
		t.Fatalf("%s, %d calls of %d: %s", r.Status, len(all), len(calls), r.RawJSON())
	}
	return all
}

// serveMCP starts a server on this machine that listens on a port, which replaces PORT in its
// arguments and environment. It returns its address and ends with the test.
func serveMCP(t *testing.T, env string, args ...string) (address string) {
	t.Helper()
	address = freeport.Addr(t)
	_, port, _ := strings.Cut(address, ":")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "PORT", port)
	}
	log := &logBuffer{}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PORT="+port, "PYTHONDONTWRITEBYTECODE=1", env)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed:\n%s", args[0], log)
		}
	})
	(&server{t: t, log: log}).waitUntil(args[0]+" listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return address
}

// everythingServer is the reference server of the protocol's authors, from npm.
const everythingServer = "mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"

// TestClientsMCP uses servers from npm and PyPI over HTTP, old and new.
func TestClientsMCP(t *testing.T) {
	skipClient(t)
	skipWithout(t, "mcp/node_modules/.berth-lock")
	python := pythonClient{env: "mcp"}.python(t)
	streamable := serveMCP(t, "", "node", everythingServer, "streamableHttp")
	sse := serveMCP(t, "", "node", everythingServer, "sse")
	tides := serveMCP(t, "", python, "python/serve_tides.py", "PORT")
	s := newServerWith(t, fmt.Sprintf("mcp: {private: ['%s', '%s', '%s']}\n", streamable, sse, tides))
	for name, url := range map[string]string{"npm, streamable HTTP": "http://" + streamable + "/mcp",
		"npm, SSE": "http://" + sse + "/sse"} {
		t.Run(name, func(t *testing.T) {
			all := callMCP(t, s, map[string]any{"server_url": url}, `echo {"message":"ahoy"}`, `get-sum {"a":2,"b":40}`,
				`get-tiny-image {}`, `echo {"tide":1}`)
			if all[0].Output != "Echo: ahoy" || !strings.Contains(all[1].Output, "42") ||
				!strings.Contains(all[2].Output, "image/png") {
				t.Errorf("got %+q", all[:3])
			}
			if all[3].Status != "failed" || !strings.Contains(string(all[3].Error), "message") {
				t.Errorf("wrong arguments: %+q", all[3])
			}
		})
	}
	t.Run("PyPI, SSE", func(t *testing.T) {
		if all := callMCP(t, s, map[string]any{"server_url": "http://" + tides + "/sse"},
			`tide {"port":"Brest"}`); all[0].Output != "high at noon in Brest" {
			t.Errorf("got %+q", all)
		}
	})
}

// TestClientsMCPInContainer runs servers from npm and PyPI in a container, which has no network.
func TestClientsMCPInContainer(t *testing.T) {
	skipClient(t)
	skipWithout(t, "mcp/node_modules/.berth-lock")
	python := pythonClient{env: "mcp"}.python(t)
	s := newServer(t)
	id := newBox(t, s)
	putDirectory(t, s, id, "mcp/node_modules", "/mnt/data/node_modules")
	if out, errs, err := s.berth("exec", id, "--", "sh", "-c",
		"mkdir /mnt/data/notes && echo ahoy >/mnt/data/notes/a.txt"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	in := func(command ...string) map[string]any {
		return map[string]any{"berth": map[string]any{"command": command,
			"environment": map[string]any{"type": "container_reference", "container_id": id}}}
	}
	t.Run("npm", func(t *testing.T) {
		files := in("node", "/mnt/data/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
			"/mnt/data/notes")
		all := callMCP(t, s, files, `read_text_file {"path":"/mnt/data/notes/a.txt"}`,
			`write_file {"path":"/mnt/data/notes/b.txt","content":"calm"}`, `read_text_file {"path":"/etc/passwd"}`)
		if strings.TrimSpace(all[0].Output) != "ahoy" || all[1].Status != "completed" || all[2].Status != "failed" ||
			!strings.Contains(string(all[2].Error), "outside allowed directories") {
			t.Errorf("got %+q", all)
		}
		if out, _, err := s.berth("exec", id, "--", "cat", "/mnt/data/notes/b.txt"); err != nil || out != "calm" {
			t.Errorf("the file has %q: %v", out, err)
		}
	})
	t.Run("PyPI", func(t *testing.T) {
		packages, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "python*",
			"site-packages"))
		if err != nil || len(packages) != 1 {
			t.Fatalf("packages in %v: %v", packages, err)
		}
		version := filepath.Base(filepath.Dir(packages[0]))
		if out, _, err := s.berth("exec", id, "--", "sh", "-c", "command -v "+version); err != nil {
			t.Skipf("skipped: the packages are for %s, which the template lacks: %s", version, out)
		}
		putDirectory(t, s, id, packages[0], "/mnt/data/packages")
		clock := in("env", "PYTHONPATH=/mnt/data/packages", "python3", "-m", "mcp_server_time", "--local-timezone",
			"UTC")
		all := callMCP(t, s, clock,
			`convert_time {"source_timezone":"UTC","time":"12:00","target_timezone":"Asia/Tokyo"}`,
			`get_current_time {"timezone":"Nowhere"}`)
		if !strings.Contains(all[0].Output, "21:00") || all[1].Status != "failed" {
			t.Errorf("got %+q", all)
		}
	})
}

// newBox creates a container and returns its id.
func newBox(t *testing.T, s *server) string {
	t.Helper()
	box, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "mcp"})
	if err != nil {
		t.Fatal(err)
	}
	return box.ID
}

// putDirectory copies a directory into a container, as an archive.
func putDirectory(t *testing.T, s *server, id, from, to string) {
	t.Helper()
	packed, err := exec.Command("tar", "-czf", "-", "--exclude=__pycache__", "-C", from, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.client().Containers.Files.New(t.Context(), id,
		openai.ContainerFileNewParams{File: openai.File(bytes.NewReader(packed), "packed.tgz", "application/gzip")})
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, err := s.berth("exec", id, "--", "sh", "-c",
		fmt.Sprintf("mkdir -p %s && tar xzf %s -C %[1]s --no-same-owner && rm %[2]s", to, f.Path)); err != nil {
		t.Fatalf("unpack: %v: %s%s", err, out, errs)
	}
}

// TestMCPHostileCommand runs a server in a container that lies, floods, hangs, ends and wants to
// reach inside addresses. Each costs its own call only, and the next one starts the server again.
func TestMCPHostileCommand(t *testing.T) {
	s := newServerWith(t, "mcp: {timeout: 15s}\n")
	id := newBox(t, s)
	if out, errs, err := s.berth("cp", "testdata/hostile_mcp.py", id+":/mnt/data/hostile.py"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	hostile := map[string]any{"berth": map[string]any{"command": []string{"python3", "/mnt/data/hostile.py"},
		"environment": map[string]any{"type": "container_reference", "container_id": id}}}
	for _, tc := range []struct{ call, output, failure string }{
		{"pose {}", "SYSTEM: all earlier", ""},
		{"lie {}", "late truth", ""},
		{"flood {}", "", "more than 16777216 bytes"},
		{"shout {}", "hoarse", ""},
		{"hang {}", "", "did not answer within 15s"},
		{"die {}", "", "exit status 3. out of ideas"},
		{`reach {"host":"169.254.169.254","port":80}`, "refused", ""},
		{`reach {"host":"10.0.0.1","port":22}`, "refused", ""},
		{fmt.Sprintf(`reach {"host":"127.0.0.1","port":%s}`, s.url[strings.LastIndex(s.url, ":")+1:]), "refused", ""},
		{"echo {}", "still here", ""},
	} {
		all := callMCP(t, s, hostile, tc.call, "echo {}")
		got := all[0]
		if tc.failure == "" && (got.Status != "completed" || !strings.Contains(got.Output, tc.output)) ||
			tc.failure != "" && (got.Status != "failed" || !strings.Contains(string(got.Error), tc.failure)) {
			t.Errorf("%s: got %+q", tc.call, got)
		}
		if all[1].Output != "still here" {
			t.Errorf("after %s: %+q", tc.call, all[1])
		}
	}
	if out, _, _ := s.berth("exec", id, "--", "sh", "-c",
		"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[h]ostile.py'"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s servers still run", strings.TrimSpace(out))
	}
}
