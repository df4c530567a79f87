package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A libreUser sends requests to LibreChat's code API for a user.
type libreUser struct {
	*house
	user string
}

func newLibreHouse(t *testing.T) libreUser {
	t.Helper()
	h := newHouse(t, nil)
	h.key("sk-libre", "proj_a")
	return libreUser{h, "ann"}
}

// do sends a request as LibreChat does, with the key in X-API-Key.
func (u libreUser) do(method, path string, body io.Reader, contentType string) (int, string, http.Header) {
	u.t.Helper()
	r, err := http.NewRequestWithContext(u.t.Context(), method, u.url+"/librechat/v1"+path, body)
	check(u.t, err)
	r.Header.Set("Content-Type", contentType)
	if u.token != "" {
		r.Header.Set("X-Api-Key", u.token)
	}
	if u.user != "" {
		r.Header.Set("User-Id", u.user)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(u.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	check(u.t, err)
	return resp.StatusCode, string(raw), resp.Header
}

// A libreResult is the answer of a run.
type libreResult struct {
	Session string `json:"session_id"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Files   []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"files"`
}

// exec runs code.
func (u libreUser) exec(want int, lang, code string, files ...map[string]string) (r libreResult) {
	u.t.Helper()
	body, err := json.Marshal(map[string]any{"lang": lang, "code": code, "files": files, "newer": true})
	check(u.t, err)
	status, text, _ := u.do("POST", "/exec", bytes.NewReader(body), "application/json")
	if status != want {
		u.t.Fatalf("exec: got %d %s", status, text)
	}
	check(u.t, json.Unmarshal([]byte(text), &r))
	return r
}

// upload uploads a file, and returns its session and id.
func (u libreUser) upload(want int, name, content string) (session, id string) {
	u.t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	check(u.t, w.WriteField("entity_id", "agent_1"))
	part, err := w.CreateFormFile("file", name)
	check(u.t, err)
	_, err = io.WriteString(part, content)
	check(u.t, err)
	check(u.t, w.Close())
	status, text, _ := u.do("POST", "/upload", &form, w.FormDataContentType())
	if status != want {
		u.t.Fatalf("upload of %q: got %d %s", name, status, text)
	}
	var got struct {
		Message string `json:"message"`
		Session string `json:"session_id"`
		Files   []struct{ FileID string }
	}
	check(u.t, json.Unmarshal([]byte(text), &got))
	if want != 200 {
		return "", ""
	}
	if got.Message != "success" || len(got.Files) != 1 {
		u.t.Fatalf("upload: %s", text)
	}
	return got.Session, got.Files[0].FileID
}

// libreID is the form of the ids that LibreChat accepts.
var libreID = regexp.MustCompile(`^[A-Za-z0-9_-]{21}$`)

func TestLibreChatFiles(t *testing.T) {
	t.Parallel()
	u := newLibreHouse(t)
	session, id := u.upload(200, "numbers.csv", "1\n2\n")
	if !libreID.MatchString(session) || !libreID.MatchString(id) {
		t.Fatalf("ids %q and %q", session, id)
	}
	first := u.exec(200, "bash", "cat numbers.csv; echo made > out.txt",
		map[string]string{"id": id, "session_id": session, "name": "numbers.csv"})
	if first.Stdout != "1\n2\n" || len(first.Files) != 1 || first.Files[0].Name != "out.txt" {
		t.Fatalf("a run with an upload: %+v", first)
	}
	out := map[string]string{"id": first.Files[0].ID, "storage_session_id": first.Session, "name": "out.txt"}
	second := u.exec(200, "bash", "cat out.txt numbers.csv; echo more >> out.txt", out)
	if second.Session != first.Session || second.Stdout != "made\n1\n2\n" || len(second.Files) != 1 {
		t.Errorf("a second run: %+v", second)
	}
	file := "/download/" + first.Session + "/" + out["id"]
	status, text, header := u.do("GET", file, nil, "")
	if status != 200 || text != "made\nmore\n" || header.Get("Content-Disposition") != "attachment; filename=out.txt" {
		t.Errorf("download: %d %q %v", status, text, header)
	}
	_, text, _ = u.do("GET", "/files/"+session+"?detail=summary", nil, "")
	if !strings.Contains(text, `"name":"`+session+"/"+id) || !strings.Contains(text, `"lastModified":"`) {
		t.Errorf("files: %s", text)
	}
	if status, text, _ := u.do("GET", "/sessions/"+session+"/objects/"+id, nil, ""); status != 200 ||
		!strings.Contains(text, "numbers.csv") {
		t.Errorf("object: %d %s", status, text)
	}
	if status, _, _ := u.do("DELETE", "/files/"+first.Session+"/"+out["id"], nil, ""); status != 200 {
		t.Errorf("delete: %d", status)
	}
	if status, _, _ := u.do("GET", file, nil, ""); status != 404 {
		t.Errorf("download of a deleted file: %d", status)
	}
}

func TestLibreChatUsers(t *testing.T) {
	t.Parallel()
	ann := newLibreHouse(t)
	made := ann.exec(200, "bash", "echo secret > mine.txt")
	bob := libreUser{ann.house, "bob"}
	theirs := &house{t: t, url: ann.url, store: ann.store}
	theirs.key("sk-theirs", "proj_b")
	other := libreUser{theirs, "ann"}
	ref := map[string]string{"id": made.Files[0].ID, "session_id": made.Session, "name": "mine.txt"}
	for name, u := range map[string]libreUser{"another user": bob, "another project": other} {
		for _, path := range []string{"/download/" + made.Session + "/" + ref["id"], "/files/" + made.Session,
			"/sessions/" + made.Session + "/objects/" + ref["id"]} {
			if status, text, _ := u.do("GET", path, nil, ""); status != 404 {
				t.Errorf("%s, %s: %d %s", name, path, status, text)
			}
		}
		if status, _, _ := u.do("DELETE", "/files/"+made.Session+"/"+ref["id"], nil, ""); status != 404 {
			t.Errorf("%s deletes: %d", name, status)
		}
		u.exec(404, "bash", "cat mine.txt", ref)
	}
	none := libreUser{&house{t: t, url: ann.url, store: ann.store}, "ann"}
	if status, _, _ := none.do("GET", "/files/"+made.Session, nil, ""); status != 401 {
		t.Errorf("without a key: %d", status)
	}
	// Code of a second user does not change what the first one uploaded for both.
	session, id := ann.upload(200, "shared.txt", "of ann")
	shared := map[string]string{"id": id, "session_id": session, "name": "shared.txt"}
	if got := bob.exec(200, "bash", "echo by bob > shared.txt", shared); got.Session == session {
		t.Errorf("code runs in the session of an upload")
	}
	if got := ann.exec(200, "bash", "cat shared.txt", shared); got.Stdout != "of ann" {
		t.Errorf("a shared file: %+v", got)
	}
}

func TestLibreChatHostileFiles(t *testing.T) {
	t.Parallel()
	u := newLibreHouse(t)
	got := u.exec(200, "bash", `ln -s /etc/passwd link.txt; ln -s /etc dir; printf x > $'a\r\nSet-Cookie: b=c'
		printf x > 'a"; filename=b.html'; yes | head -c 3000000`)
	if len(got.Stdout) > 300<<10 || !strings.Contains(got.Stdout, "left out") {
		t.Errorf("a giant output: %d bytes", len(got.Stdout))
	}
	if len(got.Files) != 1 || got.Files[0].Name != `a"; filename=b.html` {
		t.Fatalf("files: %+v", got.Files)
	}
	_, _, header := u.do("GET", "/download/"+got.Session+"/"+got.Files[0].ID, nil, "")
	if header.Get("Set-Cookie") != "" || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment") ||
		header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header of a hostile name: %v", header)
	}
	// A file that becomes a link is not followed.
	made := u.exec(200, "bash", "echo x > swap.txt")
	ref := map[string]string{"id": made.Files[0].ID, "session_id": made.Session, "name": "swap.txt"}
	u.exec(200, "bash", "ln -sf /etc/passwd swap.txt", ref)
	if status, _, _ := u.do("GET", "/download/"+made.Session+"/"+ref["id"], nil, ""); status != 404 {
		t.Errorf("download of a link: %d", status)
	}
	session, id := u.upload(200, "../../etc/evil.txt", "x")
	up := u.exec(200, "bash", "find . -type f", map[string]string{"id": id, "session_id": session,
		"name": "../../../tmp/evil.txt"})
	if up.Stdout != "./tmp/evil.txt\n" {
		t.Errorf("a name with ..: %+v", up)
	}
	for _, path := range []string{"/files/..", "/files/" + strings.Repeat("x", 21), "/files/x%2F..%2Fy", "/files/" +
		strings.Repeat("a", 5000), "/download/" + session + "/..%2F..%2Fetc%2Fpasswd"} {
		if status, _, _ := u.do("GET", path, nil, ""); status != 404 && status != 307 && status != 301 {
			t.Errorf("%s: %d", path[:min(len(path), 60)], status)
		}
	}
}

func TestLibreChatRequests(t *testing.T) {
	t.Parallel()
	u := newLibreHouse(t)
	got := u.exec(200, "py", "import sys\nprint('out')\nprint('err', file=sys.stderr)")
	if got.Stdout != "out\n" || got.Stderr != "err\n" || !libreID.MatchString(got.Session) {
		t.Errorf("py: %+v", got)
	}
	if status, _, _ := u.do("GET", "/files/"+got.Session, nil, ""); status != 404 {
		t.Errorf("a run without files leaves a container: %d", status)
	}
	if got := u.exec(200, "bash", "exit 3"); got.Stderr != "The code ended with exit code 3.\n" {
		t.Errorf("exit code: %+v", got)
	}
	if got := u.exec(200, "d", "x"); !strings.Contains(got.Stderr, "no dmd") {
		t.Errorf("a missing compiler: %+v", got)
	}
	u.exec(400, "cobol", "x")
	u.exec(400, "py", "")
	for _, body := range []string{"", "{", "[]", `{"lang":7}`, `{"lang":"py","code":"1","files":7}`,
		`{"lang":"py","code":"1","user_id":"bob"}`} {
		if status, text, _ := u.do("POST", "/exec", strings.NewReader(body), "application/json"); status != 400 ||
			!strings.HasPrefix(text, `{"error":"`) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text, _ := u.do("POST", "/exec/programmatic", strings.NewReader(`{"code":"1"}`),
		"application/json"); status != 400 || !strings.Contains(text, "/exec works") {
		t.Errorf("programmatic: %d %s", status, text)
	}
	var ids []string
	for range 3 {
		session, _ := u.upload(200, "x.txt", "")
		if slices.Contains(ids, session) {
			t.Errorf("a session twice")
		}
		ids = append(ids, session)
	}
}
