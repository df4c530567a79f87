package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/longtest"
)

// A volume is a file system in a file, whose raw bytes can be read.
type volume struct{ dir, image string }

// newVolume mounts one that can encrypt, and on which freed blocks stay as they are.
func newVolume(t *testing.T) volume {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a volume")
	}
	dir := t.TempDir()
	v := volume{filepath.Join(dir, "volume"), filepath.Join(dir, "image")}
	if err := errors.Join(os.Mkdir(v.dir, 0o700), os.WriteFile(v.image, nil, 0o600),
		os.Truncate(v.image, 4<<30)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-E", "nodiscard", "-O", "encrypt", v.image},
		{"mount", "-o", "loop,nodiscard", v.image, v.dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v\n%s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", v.dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return v
}

// find returns the bytes of the raw volume around each place that has a word, in the
// clear or as a simple encoding shows it.
func (v volume) find(t *testing.T, word string) (found []string) {
	t.Helper()
	d, err := os.Open(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(v.image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	forms := encodings(word)
	const step, overlap = 4 << 20, 512
	buf := make([]byte, step+overlap)
	for at := int64(0); ; {
		data, err := f.Seek(at, unix.SEEK_DATA) // the rest of the file is holes
		if err != nil {
			return found
		}
		n, err := f.ReadAt(buf, data)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for _, form := range forms {
			if i := bytes.Index(buf[:n], form); i >= 0 && len(found) < 10 {
				found = append(found, fmt.Sprintf("at %d: %q", data+int64(i), buf[max(0, i-80):min(n, i+100)]))
			}
		}
		at = data + step
	}
}

// encodings returns a word in the clear, in UTF-16, in hexadecimal digits, and in
// base64 wherever it begins there.
func encodings(word string) [][]byte {
	var wide []byte
	for _, u := range utf16.Encode([]rune(word)) {
		wide = append(wide, byte(u), byte(u>>8))
	}
	digits := hex.EncodeToString([]byte(word))
	forms := [][]byte{[]byte(word), wide, []byte(digits), []byte(strings.ToUpper(digits))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), word...))
		forms = append(forms, []byte(text[2*shift:len(text)-2])) // without what depends on its neighbours
	}
	return forms
}

// A planted server has a word in every place where a client can put one.
type planted struct {
	*server
	word               string
	containers         []string
	volumeID, snapshot string
	file, response     string
	conversation       string
}

// call makes a request, which must be answered with 200, and returns the answer.
func (p *planted) call(method, path, body string) string {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+"/v1"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s %s: %s, %v: %s", method, path, resp.Status, err, text)
	}
	return string(text)
}

func (p *planted) create(path, body string) (id string) {
	p.t.Helper()
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(p.call("POST", path, body)), &made); err != nil || made.ID == "" {
		p.t.Fatalf("POST %s: no id: %v", path, err)
	}
	return made.ID
}

// shell runs commands in a container and returns what they printed.
func (p *planted) shell(container, script string) string {
	p.t.Helper()
	out, errs, err := p.berth("exec", container, "--", "sh", "-c", script)
	if err != nil {
		p.t.Fatalf("%s: %v: %s%s", script, err, out, errs)
	}
	return out
}

// want checks that an answer has a word.
func (p *planted) want(what, text, word string) {
	p.t.Helper()
	if !strings.Contains(text, word) {
		p.t.Errorf("%s: got %.500q, want the canary in it", what, text)
	}
}

// plant puts words everywhere, each in one place, and sees that each is there.
func plant(t *testing.T, v volume, minutes int) *planted {
	t.Helper()
	images := filepath.Join(templates(t), "images")
	if _, err := os.Stat(images); err != nil {
		t.Skipf("no base template in %s: run make test, which builds it", images)
	}
	state := filepath.Join(v.dir, "state")
	if err := errors.Join(os.Mkdir(state, 0o700), os.Symlink(images, filepath.Join(state, "images"))); err != nil {
		t.Fatal(err)
	}
	p := &planted{server: &server{t: t, state: state, log: &logBuffer{}}, word: "canary" + rand.Text()}
	p.start()
	t.Cleanup(p.close)
	word := func(place string) string { return p.word + "-" + place }
	life := fmt.Sprintf(`"expires_after":{"anchor":"last_active_at","minutes":%d}`, minutes)

	p.volumeID = p.create("/volumes", `{"name":"deep"}`)
	work := p.create("/containers", `{"name":"`+word("name")+`",`+life+`,"berth":{"volumes":[{"name":"deep"}]},
		"network_policy":{"type":"allowlist","allowed_domains":["example.com"],"domain_secrets":[{"domain":"example.com","name":"TOKEN","value":"`+word("secret")+`"}]}}`)
	p.want("the container's name", p.call("GET", "/containers/"+work, ""), word("name"))
	if got := p.shell(work, "echo $TOKEN"); strings.Contains(got, p.word) || len(got) < 8 {
		t.Errorf("the secret is %q in the container, want a placeholder", got)
	}
	c := p.client()
	if _, err := c.Containers.Files.New(t.Context(), work,
		openai.ContainerFileNewParams{File: openai.File(strings.NewReader(word("inside")), word("path"),
			"text/plain")}); err != nil {
		t.Fatal(err)
	}
	p.want("the container's files", p.call("GET", "/containers/"+work+"/files", ""), word("path"))
	p.want("a file in the container",
		p.shell(work,
			"cp /mnt/data/canary* /tmp/a; cp /tmp/a /dev/shm/b; cp /tmp/a /mnt/volumes/deep/c; sync; cat /mnt/volumes/deep/c"),
		word("inside"))
	p.shell(work, "echo "+word("log"))
	p.want("the container's log", p.call("GET", "/containers/"+work+"/logs", ""), word("log"))

	frozen := p.create("/containers", `{"name":"frozen",`+life+`}`)
	p.shell(frozen,
		"echo "+word("snapshot")+" >/mnt/data/s; W="+word(
			"memory")+" nohup python3 -c 'import os, time; w = os.environ[\"W\"] * 1000; time.sleep(1000)' >/dev/null 2>&1 &")
	p.snapshot = p.create("/containers/"+frozen+"/snapshots", `{"name":"s","memory":true}`)
	thawed := p.create("/containers",
		`{"name":"thawed",`+life+`,"memory_limit":"1g","berth":{"snapshot_id":"`+p.snapshot+`"}}`)
	p.want("what starts from the snapshot",
		p.shell(thawed, "cat /mnt/data/s; tr '\\0' ' ' </proc/$(pgrep -f time.sleep | head -1)/environ"),
		word("snapshot"))
	p.containers = []string{work, frozen, thawed}

	f, err := c.Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeUserData,
		File: openai.File(strings.NewReader(strings.Repeat(word("upload")+" ", 20_000)), word("filename"),
			"text/plain")})
	if err != nil {
		t.Fatal(err)
	}
	p.file = f.ID
	p.want("the uploaded file", p.call("GET", "/files/"+f.ID+"/content", ""), word("upload"))
	p.conversation = p.create("/conversations",
		`{"items":[{"type":"message","role":"user","content":"`+word("conversation")+`"}]}`)
	p.want("the conversation", p.call("GET", "/conversations/"+p.conversation+"/items", ""), word("conversation"))
	r, err := c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(word("question"))}})
	if err != nil {
		t.Fatal(err)
	}
	p.response = r.ID
	p.want("the response's input", p.call("GET", "/responses/"+r.ID+"/input_items", ""), word("question"))
	return p
}

// deleteAll deletes all that was made.
func (p *planted) deleteAll() {
	p.t.Helper()
	for _, id := range p.containers {
		p.call("DELETE", "/containers/"+id, "")
	}
	for _, path := range []string{"/volumes/" + p.volumeID, "/snapshots/" + p.snapshot, "/files/" + p.file,
		"/conversations/" + p.conversation, "/responses/" + p.response} {
		p.call("DELETE", path, "")
	}
}

// wantClean checks the raw volume and the server's log.
func (p *planted) wantClean(v volume, when string) {
	p.t.Helper()
	if found := v.find(p.t, p.word); found != nil {
		p.t.Errorf("%s the canary is on the volume in the clear:\n%s", when, strings.Join(found, "\n"))
	}
	if strings.Contains(p.log.String(), p.word) {
		p.t.Errorf("%s the server has logged the canary", when)
	}
}

// TestCanary looks on the raw volume for what clients have put into a server, while it
// is there and after its end.
func TestCanary(t *testing.T) {
	v := newVolume(t)
	control := "control" + rand.Text()
	path := filepath.Join(v.dir, "control")
	if err := os.WriteFile(path, []byte(strings.Repeat(control, 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	v.find(t, control)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if v.find(t, control) == nil {
		t.Fatal("what was written to a file and removed is not found; this test sees nothing")
	}
	p := plant(t, v, 20)
	p.wantClean(v, "while it is there")
	p.kill()
	p.wantClean(v, "after a SIGKILL")
	p.start()
	p.deleteAll()
	p.kill()
	p.wantClean(v, "after its deletion and a SIGKILL")
	p.start()
	for _, args := range [][]string{{"audit", "verify", "--state", p.state}} {
		if out, errs, err := p.berth(args...); err != nil {
			t.Errorf("%q: %v: %s%s", args, err, out, errs)
		}
	}
	out, errs, err := p.berth("audit", "log", "--state", p.state)
	for _, id := range p.containers {
		for _, want := range []string{"container.ended", "container.erased"} {
			if !hasLine(out, want, id) {
				t.Errorf("the record does not have %s of %s: %v %s", want, id, err, errs)
			}
		}
	}
	if !hasLine(out, "container.ended", "reason=deleted") || !hasLine(out, "container.erased", "reason=key_destroyed") {
		t.Errorf("the record does not say why, or how far:\n%s", out)
	}
}

// hasLine reports whether a line of a text has all words.
func hasLine(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// TestCanaryExpiry is the same for what ends by itself.
func TestCanaryExpiry(t *testing.T) {
	longtest.Skip(t)
	v := newVolume(t)
	p := plant(t, v, 1)
	for deadline := time.Now().Add(3 * time.Minute); ; {
		out, errs, err := p.berth("audit", "log", "--state", p.state)
		if err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		gone := 0
		for _, id := range p.containers {
			if hasLine(out, "container.ended", id, "reason=expired") && hasLine(out, "container.erased", id) {
				gone++
			}
		}
		if gone == len(p.containers) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after three minutes %d of %d containers have expired", gone, len(p.containers))
		}
		select { // asking the API would be a use
		case <-time.After(time.Second):
		case <-t.Context().Done():
		}
	}
	for _, id := range p.containers {
		p.want("the expired container", p.call("GET", "/containers/"+id, ""), `"reason":"expired"`)
	}
	p.wantClean(v, "after its expiry")
	p.call("DELETE", "/volumes/"+p.volumeID, "") // it stays mounted else, beyond the server's end
}
