package api_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/container/process"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/project"
)

// withOpenTerminal serves Open Terminal's API.
func withOpenTerminal(o *api.Options) {
	o.OpenTerminal.Processes = process.New(process.Options{Log: o.Exchange.Log, Start: func(ctx context.Context,
		c berth.Caller, id berth.ContainerID, req guest.ProcessRequest) (process.Handle, error) {
		p, err := o.Containers.Access().Start(ctx, c, id, req)
		if err != nil {
			return nil, err
		}
		return p, nil
	}})
}

// A terminalUser sends requests to Open Terminal's API as a user of a chat.
type terminalUser struct {
	*house
	user, chat string
}

// do sends a request and returns the status and the body of its answer.
func (u terminalUser) do(method, path, body string, header ...string) (int, string) {
	u.t.Helper()
	resp := u.request(method, path, strings.NewReader(body), header...)
	raw, err := io.ReadAll(resp.Body)
	check(u.t, err)
	return resp.StatusCode, string(raw)
}

func (u terminalUser) request(method, path string, body io.Reader, header ...string) *http.Response {
	u.t.Helper()
	r, err := http.NewRequestWithContext(u.t.Context(), method, u.url+"/open-terminal"+path, body)
	check(u.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+u.token)
	r.Header.Set("X-User-Id", u.user)
	r.Header.Set("X-Session-Id", u.chat)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(u.t, err)
	u.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// get sends a request that must succeed.
func (u terminalUser) get(method, path, body string) object {
	u.t.Helper()
	status, text := u.do(method, path, body)
	var o object
	if err := json.Unmarshal([]byte(text), &o); status != 200 || err != nil {
		u.t.Fatalf("%s %s: got %d %s", method, path, status, text)
	}
	return o
}

// run runs a command to its end and returns what it prints.
func (u terminalUser) run(command string) string {
	u.t.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	check(u.t, err)
	o := u.get("POST", "/execute?wait=60", string(body))
	if o["status"] != "done" || o["exit_code"] != 0.0 {
		u.t.Fatalf("%s: %v", command, o)
	}
	return outputText(o)
}

func outputText(o object) string {
	var b strings.Builder
	for _, e := range o["output"].([]any) {
		b.WriteString(e.(map[string]any)["data"].(string))
	}
	return strings.ReplaceAll(b.String(), "\r\n", "\n")
}

// newTerminalHouse returns a server with a key, and a user of it.
func newTerminalHouse(t *testing.T, change func(*api.Options)) terminalUser {
	h := newHouse(t, func(o *api.Options) {
		withOpenTerminal(o)
		if change != nil {
			change(o)
		}
	})
	h.key("sk-terminal", "proj_a")
	return terminalUser{h, "ann", "chat1"}
}

func TestOpenTerminalCommands(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	o := u.get("POST", "/execute?wait=60", `{"command":"echo out; echo $A; exit 3","env":{"A":"b"}}`)
	if o["status"] != "done" || o["exit_code"] != 3.0 || outputText(o) != "out\nb\n" || o["truncated"] != false {
		t.Errorf("execute: %v", o)
	}
	for _, key := range []string{"id", "command", "cwd", "log_path", "next_offset"} {
		if _, ok := o[key]; !ok {
			t.Errorf("execute: no %s in %v", key, o)
		}
	}
	id := u.get("POST", "/execute", `{"command":"read a; echo got $a; read b"}`)["id"].(string)
	if o := u.get("GET", "/execute/"+id+"/status", ""); o["status"] != "running" || o["exit_code"] != nil {
		t.Errorf("status: %v", o)
	}
	u.get("POST", "/execute/"+id+"/input", `{"input":"x\\n"}`)
	u.get("POST", "/execute/"+id+"/input", `{"input":"y\n"}`)
	o = u.get("GET", "/execute/"+id+"/status?wait=60", "")
	if o["status"] != "done" || !strings.Contains(outputText(o), "got x\n") {
		t.Errorf("status of the end: %v", o)
	}
	next := fmt.Sprint(o["next_offset"])
	if o := u.get("GET", "/execute/"+id+"/status?offset="+next+"&tail=null", ""); len(o["output"].([]any)) != 0 {
		t.Errorf("status from the end on: %v", o)
	}
	if status, text := u.do("POST", "/execute/"+id+"/input", `{"input":"z"}`); status != 400 ||
		text != `{"detail":"Process has already exited"}` {
		t.Errorf("input after the end: %d %s", status, text)
	}
	for _, force := range []string{"false", "true"} {
		id = u.get("POST", "/execute", `{"command":"sleep 1000; true"}`)["id"].(string)
		if o := u.get("DELETE", "/execute/"+id+"?force="+force, ""); o["status"] != "killed" {
			t.Errorf("kill: %v", o)
		}
		o = u.get("GET", "/execute/"+id+"/status", "")
		if code, ok := o["exit_code"].(float64); o["status"] != "killed" || !ok || code >= 0 {
			t.Errorf("status after a kill: %v", o)
		}
	}
	_, list := u.do("GET", "/execute", "")
	if n := strings.Count(list, `"id":`); n != 4 {
		t.Errorf("%d commands are listed: %s", n, list)
	}
	other := u
	other.chat = "chat2"
	if _, list := other.do("GET", "/execute", ""); list != "[]" {
		t.Errorf("another chat has commands: %s", list)
	}
	if status, _ := other.do("GET", "/execute/"+id+"/status", ""); status != 404 {
		t.Errorf("another chat reads a command: %d", status)
	}
}

func TestOpenTerminalFiles(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	home := u.get("GET", "/files/cwd", "")["home"].(string)
	o := u.get("POST", "/files/write", `{"path":"src/a.py","content":"one\ntwo\nthree\n"}`)
	if o["path"] != home+"/src/a.py" || o["size"] != 14.0 {
		t.Errorf("write: %v", o)
	}
	u.get("POST", "/files/write", `{"path":"/mnt/data/src/b.txt","content":"two"}`)
	if o := u.get("GET", "/files/read?path=src/a.py&start_line=2&end_line=2", ""); o["content"] != "two\n" ||
		o["total_lines"] != 3.0 {
		t.Errorf("read: %v", o)
	}
	u.get("POST", "/files/replace", `{"path":"src/a.py","replacements":[{"target":"two","replacement":"deux"}]}`)
	if got := u.run("cat src/a.py"); got != "one\ndeux\nthree\n" {
		t.Errorf("replaced: %q", got)
	}
	if status, text := u.do("POST", "/files/replace",
		`{"path":"src/a.py","replacements":[{"target":"e","replacement":"f"}]}`); status != 400 {
		t.Errorf("ambiguous replacement: %d %s", status, text)
	}
	for path, want := range map[string]string{
		"/files/list?directory=src":                         "a.py b.txt",
		"/files/grep?query=th.ee&path=src":                  "src/a.py",
		"/files/grep?query=o&path=src&include=*.txt":        "b.txt",
		"/files/glob?pattern=*.py":                          "src/a.py",
		"/files/search?query=b.t":                           "src/b.txt",
		"/files/matches?query=deux":                         "src/a.py",
		"/files/display?path=src/a.py":                      "src/a.py",
		"/files/display?path=none":                          "false",
		"/ports":                                            "ports",
		"/files/glob?pattern=*&type=directory&exclude=none": "src",
	} {
		status, text := u.do("GET", path, "")
		for word := range strings.FieldsSeq(want) {
			if status != 200 || !strings.Contains(text, word) {
				t.Errorf("%s: %d %s, want %s", path, status, text, word)
			}
		}
	}
	u.get("POST", "/files/cwd", `{"path":"src"}`)
	if got := u.run("ls"); got != "a.py  b.txt\n" {
		t.Errorf("ls in the directory of the chat: %q", got)
	}
	if o := u.get("GET", "/files/read?path=b.txt", ""); o["content"] != "two" {
		t.Errorf("read in the directory of the chat: %v", o)
	}
	other := u
	other.chat = "chat2"
	if o := other.get("GET", "/files/cwd", ""); o["cwd"] != home {
		t.Errorf("the directory of another chat: %v", o)
	}
	u.get("POST", "/files/mkdir", `{"path":"new/deep"}`)
	u.get("POST", "/files/move", `{"source":"src/b.txt","destination":"new/c.txt"}`)
	if status, _ := u.do("POST", "/files/move", `{"source":"src/a.py","destination":"new/c.txt"}`); status != 409 {
		t.Errorf("move onto a file: %d", status)
	}
	if o := u.get("POST", "/files/compare", `{"original":"a.py","revised":"`+home+`/new/c.txt"}`); o["additions"] != 1.0 ||
		o["deletions"] != 3.0 {
		t.Errorf("compare: %v", o)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "../../up.bin")
	check(t, err)
	content := bytes.Repeat([]byte{0, 1, 2, 0xff}, 1<<18)
	_, err = part.Write(content)
	check(t, err)
	check(t, w.Close())
	resp := u.request("POST", "/files/upload?directory=new", &form, "Content-Type", w.FormDataContentType())
	raw, err := io.ReadAll(resp.Body)
	check(t, err)
	if want := fmt.Sprintf(`{"path":"%s/new/up.bin","size":%d}`, home, len(content)); string(raw) != want {
		t.Errorf("upload: %d %s, want %s", resp.StatusCode, raw, want)
	}
	for _, path := range []string{"/files/view?path=new/up.bin", "/files/serve" + home + "/new/up.bin"} {
		resp := u.request("GET", path, nil)
		raw, err := io.ReadAll(resp.Body)
		check(t, err)
		if !bytes.Equal(raw, content) || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d, %d bytes, %v", path, resp.StatusCode, len(raw), resp.Header)
		}
	}
	if status, text := u.do("GET", "/files/read?path="+home+"/new/up.bin", ""); status != 415 {
		t.Errorf("read of a binary file: %d %.100s", status, text)
	}
	status, zipped := u.do("POST", "/files/archive", `{"paths":["new","src/a.py"]}`)
	z, err := zip.NewReader(strings.NewReader(zipped), int64(len(zipped)))
	if status != 200 || err != nil {
		t.Fatalf("archive: %d %.100s %v", status, zipped, err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "a.py new/c.txt new/up.bin" {
		t.Errorf("archive: %s", got)
	}
	if o := u.get("DELETE", "/files/delete?path=new", ""); o["type"] != "directory" {
		t.Errorf("delete: %v", o)
	}
	u.run("mkdir -p ~/x " + home + "/.agents/skills/pdf; printf -- '---\\nname: pdf\\ndescription: Reads PDF.\\n---\\nBody' > " +
		home + "/.agents/skills/pdf/SKILL.md")
	if _, text := u.do("GET", "/skills", ""); !strings.Contains(text, `"id":"terminal:pdf"`) {
		t.Errorf("skills: %s", text)
	}
	if o := u.get("GET", "/skills/read?name=pdf", ""); o["content"] != "Body" {
		t.Errorf("skill: %v", o)
	}
}

func TestOpenTerminalRefusals(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	for request, want := range map[string]int{
		"GET /nothing": 404, "PUT /files/read": 405, "GET /files/read": 422, "GET /files/read?path=none": 404,
		"POST /execute {}": 422, "POST /execute []": 422, "POST /execute {": 422, `POST /execute {"command":1}`: 422,
		`POST /execute {"command":null}`: 422, `POST /execute?wait=999 {"command":"x"}`: 422,
		`POST /execute?wait=NaN {"command":"x"}`: 422, `POST /execute?tail=0 {"command":"x"}`: 422,
		`POST /execute {"command":"x","cwd":"/none"}`: 400, "GET /execute/none/status": 404,
		`POST /execute {"command":"x","env":{"A=B":"c"}}`: 400,
		"DELETE /execute/none":                            404, "GET /files/list?directory=none": 404, "GET /files/grep?query=(": 400,
		"GET /files/grep?query=x&path=none": 404, "GET /files/grep?query=x&max_results=501": 422,
		"GET /files/glob?pattern=x&type=y": 422, "GET /files/matches?query=%20": 400, "GET /files/view?path=none": 404,
		"DELETE /files/delete?path=none": 404, "DELETE /files/delete?path=/": 400, "DELETE /files/delete?path=.": 400,
		`POST /files/archive {"paths":[]}`: 400, `POST /files/archive {"paths":["none"]}`: 404,
		`POST /files/cwd {"path":"none"}`: 404, `POST /files/move {"source":"none","destination":"x"}`: 404,
		`POST /files/compare {"original":"a","revised":"b"}`: 404, "GET /skills/read?name=none": 404,
		"GET /proxy/0/": 422, "GET /proxy/x/": 422, "GET /api/terminals/none": 404, "DELETE /api/terminals/none": 404,
		"GET /api/terminals/user/output": 404, `POST /api/terminals/user/input {"input":"x"}`: 404,
		`POST /files/write {"path":"/proc/none/x","content":""}`: 400, `POST /files/write {"path":"a\u0000b","content":""}`: 400,
	} {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		if status, text := u.do(method, path, body); status != want {
			t.Errorf("%s: got %d %s, want %d", request, status, text, want)
		}
	}
	for _, header := range [][]string{{"Authorization", ""}, {"Authorization", "Bearer sk-wrong"}} {
		status, text := u.do("GET", "/files/cwd", "", header...)
		if status != 401 || !strings.HasPrefix(text, `{"detail":"`) {
			t.Errorf("%v: %d %s", header, status, text)
		}
	}
	for _, path := range []string{"/health", "/api/config", "/openapi.json"} {
		if status, text := u.do("GET", path, "", "Authorization", ""); status != 200 || !json.Valid([]byte(text)) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if o := u.get("GET", "/system", ""); o["prompt"] == "" {
		t.Errorf("system: %v", o)
	}
}

// dialTerminal connects to a terminal. The first message has the token.
func (u terminalUser) dialTerminal(id, token string) *websocket.Conn {
	u.t.Helper()
	conn, _, err := websocket.Dial(u.t.Context(), strings.Replace(u.url, "http", "ws", 1)+
		"/open-terminal/api/terminals/"+id+"?user_id=x", &websocket.DialOptions{HTTPHeader: http.Header{
		"X-User-Id": {u.user}, "X-Session-Id": {u.chat}}})
	check(u.t, err)
	u.t.Cleanup(func() { conn.CloseNow() })
	first, err := json.Marshal(map[string]string{"type": "auth", "token": token})
	check(u.t, err)
	check(u.t, conn.Write(u.t.Context(), websocket.MessageText, first))
	return conn
}

// readUntil reads what a terminal prints until it has a text.
func readUntil(t *testing.T, conn *websocket.Conn, want string) {
	t.Helper()
	var all strings.Builder
	for !strings.Contains(all.String(), want) {
		_, data, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("terminal printed %q, then %v; want %q", all.String(), err, want)
		}
		all.Write(data)
	}
}

// closed returns the code with which a server closes a connection.
func closed(t *testing.T, conn *websocket.Conn) websocket.StatusCode {
	t.Helper()
	for {
		if _, _, err := conn.Read(t.Context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func TestOpenTerminalTerminals(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	id := u.get("POST", "/api/terminals", "")["id"].(string)
	other := u
	other.user = "bob"
	for name, code := range map[string]websocket.StatusCode{
		"wrong key":    closed(t, u.dialTerminal(id, "sk-wrong")),
		"no key":       closed(t, u.dialTerminal(id, "")),
		"unknown":      closed(t, u.dialTerminal("0123", u.token)),
		"another user": closed(t, other.dialTerminal(id, u.token)),
	} {
		if want := map[bool]websocket.StatusCode{true: 4001, false: 4004}[strings.HasSuffix(name, "key")]; code != want {
			t.Errorf("%s: closed with %d, want %d", name, code, want)
		}
	}
	conn := u.dialTerminal(id, u.token)
	check(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"resize","cols":123,"rows":45}`)))
	check(t, conn.Write(t.Context(), websocket.MessageBinary, []byte("stty size; echo a''b\n")))
	readUntil(t, conn, "ab")
	if code := closed(t, u.dialTerminal(id, u.token)); code != 4009 {
		t.Errorf("second connection: closed with %d, want 4009", code)
	}
	u.get("POST", "/api/terminals/user/input", `{"input":"echo c''d\n"}`)
	readUntil(t, conn, "cd")
	if o := u.get("GET", "/api/terminals/user/output", ""); !strings.Contains(o["output"].(string), "45 123") {
		t.Errorf("output of the user's terminal: %v", o)
	}
	if _, list := u.do("GET", "/api/terminals", ""); !strings.Contains(list, id) {
		t.Errorf("terminals: %s", list)
	}
	if _, list := other.do("GET", "/api/terminals", ""); list != "[]" {
		t.Errorf("terminals of another user: %s", list)
	}
	check(t, conn.Write(t.Context(), websocket.MessageBinary, []byte("exit\n")))
	if code := closed(t, conn); code != websocket.StatusNormalClosure {
		t.Errorf("exit: closed with %d", code)
	}
	for range 16 {
		u.get("POST", "/api/terminals", "")
	}
	if status, text := u.do("POST", "/api/terminals", ""); status != 429 || !strings.HasPrefix(text, `{"error":`) {
		t.Errorf("the 17th terminal: %d %s", status, text)
	}
}

// A user reaches nothing of another one, whatever the ids are.
func TestOpenTerminalUsers(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	u.run("echo secret > mine.txt")
	id := u.get("POST", "/execute", `{"command":"sleep 1000"}`)["id"].(string)
	for _, user := range []string{"", "Ann", "ann ", "ann/", "ann/x", "ann%2F", "../ann", "cntr_ann", "ann\u00e9", "an"} {
		other := u
		other.user = user
		if status, text := other.do("GET", "/files/read?path=mine.txt", ""); user != "ann " && status != 404 {
			t.Errorf("user %q reads a file of ann: %d %s", user, status, text)
		}
		if status, _ := other.do("GET", "/execute/"+id+"/status", ""); user != "ann " && status != 404 {
			t.Errorf("user %q reads a command of ann: %d", user, status)
		}
	}
	// A context of a user has a container of its own, which no other user's id can name.
	if status, _ := u.do("GET", "/files/read?path=mine.txt", "", "X-Terminal-Context-Id", "chat:1"); status != 404 {
		t.Errorf("a context reads the files of another: %d", status)
	}
	theirs := u
	theirs.house = &house{t: t, url: u.url, store: u.store}
	theirs.key("sk-theirs", "proj_b")
	if status, _ := theirs.do("GET", "/files/read?path=mine.txt", ""); status != 404 {
		t.Errorf("another project reads a file: %d", status)
	}
	if status, text := u.do("GET", "/files/cwd", "", "X-User-Id", strings.Repeat("x", 129)); status != 400 {
		t.Errorf("a long id: %d %s", status, text)
	}
}

// What a user puts into the home directory does not run as a part of the door.
func TestOpenTerminalHostileFiles(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	home := u.get("GET", "/files/cwd", "")["home"].(string)
	u.run(`echo 'import os; os._exit(7)' | tee json.py fnmatch.py os.py sitecustomize.py >/dev/null; mkfifo pipe; ` +
		`ln -s pipe link; ln -s . loop; head -c 300000 /dev/zero | tr '\0' x > long; printf 'a\377' > latin; ` +
		`mkdir deep; seq 3 > deep/n; ln -s /nowhere dangling`)
	for _, path := range []string{"/files/list", "/files/grep?query=x", "/files/glob?pattern=*", "/files/matches?query=x",
		"/files/search?query=n"} {
		if status, text := u.do("GET", path, ""); status != 200 {
			t.Errorf("%s: %d %.200s", path, status, text)
		}
	}
	for path, want := range map[string]int{"/files/read?path=pipe": 404, "/files/read?path=latin": 415,
		"/files/view?path=pipe": 404, "/files/read?path=../../../../../../none": 404, "/files/view?path=dangling": 404} {
		if status, text := u.do("GET", path, ""); status != want {
			t.Errorf("%s: %d %.200s, want %d", path, status, text, want)
		}
	}
	if status, _ := u.do("DELETE", "/files/delete?path=loop", ""); status != 200 {
		t.Errorf("delete of a link: %d", status)
	}
	if got := u.run("cat deep/n"); got != "1\n2\n3\n" { // only the link is gone
		t.Errorf("after the removal of a link: %q", got)
	}
	status, zipped := u.do("POST", "/files/archive", `{"paths":["`+home+`"]}`)
	if _, err := zip.NewReader(strings.NewReader(zipped), int64(len(zipped))); status != 200 || err != nil {
		t.Errorf("archive of hostile files: %d %v", status, err)
	}
}

// The output that is kept of a command is bounded, and the rest is counted.
func TestOpenTerminalGiantOutput(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	o := u.get("POST", "/execute?wait=120", `{"command":"head -c 8000000 /dev/zero | tr '\\0' x; echo; echo end"}`)
	text := outputText(o)
	if o["status"] != "done" || len(text) > 1<<20 || !strings.HasSuffix(text, "x\nend\n") || o["truncated"] != true {
		t.Errorf("%d bytes of output, truncated %v", len(text), o["truncated"])
	}
	u.run("head -c 9000000 /dev/zero | tr '\\0' x > big; yes line | head -n 2000000 > lines")
	for _, path := range []string{"/files/read?path=big", "/files/read?path=lines"} {
		if status, text := u.do("GET", path, ""); status != 413 {
			t.Errorf("%s: %d %.100s", path, status, text)
		}
	}
	if o := u.get("GET", "/files/read?path=lines&start_line=1999999", ""); o["content"] != "line\nline\n" {
		t.Errorf("the end of a long file: %v", o)
	}
	if o := u.get("GET", "/files/grep?query=line&path=lines&max_results=500", ""); o["truncated"] != true {
		t.Errorf("grep: not truncated")
	}
}

// Thousands of user ids meet the limit of the project's containers.
func TestOpenTerminalManyUsers(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, func(o *api.Options) {
		o.Exchange.Quota = project.NewQuota(project.QuotaOptions{Objects: storeOf(o), Usages: storeOf(o),
			Limits: map[berth.ProjectID]berth.Limits{"proj_a": {Containers: number(3)}}})
	})
	limited := 0
	for i := range 40 {
		other := u
		other.user = fmt.Sprint("user", i)
		switch status, text := other.do("GET", "/files/cwd", ""); {
		case status == 200:
		case status == 429 && strings.HasPrefix(text, `{"detail":"`):
			limited++
		default:
			t.Fatalf("user %d: %d %s", i, status, text)
		}
		// Questions about what a user has make no container.
		if status, text := other.do("GET", "/execute", ""); status != 200 || text != "[]" {
			t.Fatalf("user %d: %d %s", i, status, text)
		}
	}
	if limited != 37 {
		t.Errorf("%d users were refused, want 37", limited)
	}
}

// The end of a key ends what it has opened.
func TestOpenTerminalKeyEnds(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, func(o *api.Options) { o.Exchange.KeyCheck = 10 * time.Millisecond })
	mine, err := u.store.ListKeys(t.Context())
	check(t, err)
	id := u.get("POST", "/api/terminals", "")["id"].(string)
	conn := u.dialTerminal(id, u.token)
	check(t, conn.Write(t.Context(), websocket.MessageBinary, []byte("echo a''b\n")))
	readUntil(t, conn, "ab")
	p, ok := u.opts.OpenTerminal.Processes.Lookup(id)
	if !ok {
		t.Fatal("the terminal is unknown")
	}
	ended := u.token
	u.key("sk-other", "proj_a") // without any key, the server would need none
	check(t, u.store.DeleteKey(t.Context(), mine[0].ID))
	closed(t, conn)
	<-p.Done()
	u.token = ended
	if status, _ := u.do("GET", "/execute", ""); status != 401 {
		t.Errorf("a request with a deleted key: %d", status)
	}
}

func TestOpenTerminalPorts(t *testing.T) {
	t.Parallel()
	u := newTerminalHouse(t, nil)
	u.run("echo page > index.html")
	o := u.get("POST", "/execute?wait=0", `{"command":"python3 -uc 'import http.server as h; s = h.HTTPServer((\"127.0.0.1\", 0), h.SimpleHTTPRequestHandler); print(\"port\", s.server_port, flush=True); s.serve_forever()'"}`)
	id := o["id"].(string)
	port := ""
	for offset := 0; port == ""; {
		o := u.get("GET", fmt.Sprintf("/execute/%s/status?wait=0.05&offset=%d", id, offset), "")
		_, rest, _ := strings.Cut(outputText(o), "port ")
		port, _, _ = strings.Cut(rest, "\n")
		if o["status"] != "running" {
			t.Fatalf("the server ended: %v", o)
		}
	}
	if status, text := u.do("GET", "/ports", ""); status != 200 || !strings.Contains(text, `"port": `+port) &&
		!strings.Contains(text, `"port":`+port) {
		t.Errorf("ports: %d %s, want %s", status, text, port)
	}
	if status, text := u.do("GET", "/proxy/"+port+"/index.html", ""); status != 200 || text != "page\n" {
		t.Errorf("proxy: %d %s", status, text)
	}
	u.get("DELETE", "/execute/"+id+"?force=true", "")
	if status, text := u.do("GET", "/proxy/"+port+"/index.html", ""); status != 404 {
		t.Errorf("proxy to a closed port: %d %s", status, text)
	}
}
