package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth/internal/disktest"
	"github.com/berth-run/berth/internal/longtest"
)

// onVolume starts a server whose state is on a volume of its own, with more lines of configuration.
func onVolume(t *testing.T, bytes int64, config ...string) (p *planted, dir string) {
	t.Helper()
	images := filepath.Join(templates(t), "images")
	if _, err := os.Stat(images); err != nil {
		t.Skipf("no base template in %s: run make test, which builds it", images)
	}
	dir = disktest.Ext4(t, bytes, "-O", "encrypt")
	state := filepath.Join(dir, "state")
	file := filepath.Join(t.TempDir(), "berth.yaml")
	config = append(config, "containers: {pool: 0}\n")
	if err := errors.Join(os.Mkdir(state, 0o700), os.Symlink(images, filepath.Join(state, "images")),
		os.WriteFile(file, []byte(strings.Join(config, "\n")), 0o600)); err != nil {
		t.Fatal(err)
	}
	p = &planted{server: &server{t: t, state: state, args: []string{"--config", file}, log: &logBuffer{}}}
	p.start()
	t.Cleanup(p.close)
	return p, dir
}

// An answer is the server's answer to one request.
type answer struct {
	status int
	header http.Header
	text   string
}

func (a answer) code() string {
	var body struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal([]byte(a.text), &body)
	return body.Error.Code
}

// ask makes a request and returns its answer.
func (p *planted) ask(method, path, body string) answer {
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
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

const hello = `{"model":"scripted","input":"hello"}`

// TestContainerFillsTheVolume lets a container write more than the host's volume holds.
// It is ended, and every client gets the reason. The others continue and are served or
// refused with a reason. The space that it used is free again.
func TestContainerFillsTheVolume(t *testing.T) {
	p, _ := onVolume(t, 512<<20)
	containerFills(t, p)
}

// TestContainersFillTheVolume is the same with a larger volume, with several that write concurrently.
func TestContainersFillTheVolume(t *testing.T) {
	longtest.Skip(t)
	p, _ := onVolume(t, 2<<30)
	for range 2 {
		containerFills(t, p, "two", "three")
	}
}

func containerFills(t *testing.T, p *planted, more ...string) {
	good := p.create("/containers", `{"name":"good"}`)
	p.shell(good, "echo kept >/mnt/data/file")
	var evil []string
	for _, name := range append([]string{"evil"}, more...) {
		id := p.create("/containers", fmt.Sprintf(`{"name":%q}`, name))
		p.shell(id, "true")
		evil = append(evil, id)
	}
	var ended atomic.Bool
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { // the others, concurrently
		for !ended.Load() {
			for _, request := range [][2]string{{"POST", "/responses"}, {"GET", "/containers/" + good},
				{"POST", "/conversations"}} {
				a := p.ask(request[0], request[1], map[string]string{"POST": hello, "GET": ""}[request[0]])
				if request[1] == "/conversations" && a.status == http.StatusBadRequest {
					continue // its body is not one
				}
				if a.status != http.StatusOK && a.code() != "insufficient_storage" {
					t.Errorf("%v while the disk fills: got %d %.300s", request, a.status, a.text)
				}
			}
		}
	})
	var writers sync.WaitGroup
	for _, id := range evil {
		writers.Go(func() {
			for strings.Contains(p.ask("GET", "/containers/"+id, "").text, `"status":"running"`) &&
				t.Context().Err() == nil {
				_, _, err := p.berth("exec", id, "--", "sh", "-c",
					"while :; do dd if=/dev/zero bs=1M count=20000 status=none >>/mnt/data/big; done 2>/dev/null")
				if err == nil {
					t.Errorf("%s wrote all of it", id)
				}
			}
		})
	}
	writers.Wait()
	ended.Store(true)
	for _, id := range evil {
		p.want("the container", p.call("GET", "/containers/"+id, ""), `"reason":"disk"`)
		p.want("its use", p.ask("POST", "/containers/"+id+"/pause", "").text, "filling the disk of this server")
		p.waitUntil("the record says why a container ended", func() bool { // it is written after the row
			record, _, err := p.berth("audit", "log", "--state", p.state)
			return err == nil && hasLine(record, "container.ended", id, "reason=disk")
		})
	}
	if said := p.log.String(); strings.Count(said, "insufficient_storage") > 5 {
		t.Errorf("the log has a line for each refusal")
	}
	p.waitUntil("there is space again", func() bool {
		return p.ask("POST", "/responses", hello).status == http.StatusOK
	})
	if got := p.shell(good, "cat /mnt/data/file"); got != "kept\n" {
		t.Errorf("the other container's file: got %q", got)
	}
	p.shell(p.create("/containers", `{"name":"new"}`), "true")
	for _, id := range append(evil, good) {
		p.call("DELETE", "/containers/"+id, "")
	}
}

// fillsForever starts a process in a container. After the statement wait, in Python, it writes for
// as long as it lives. The working directory has a named pipe, go.
func (p *planted) fillsForever(id, wait string) {
	p.t.Helper()
	script := fmt.Sprintf(`import os,time
%s
f=os.open("big",os.O_CREAT|os.O_WRONLY|os.O_APPEND)
while True:
  try: os.write(f,b"x"*262144)
  except OSError: time.sleep(0.001)
`, wait)
	p.shell(id, "mkfifo go; cat >w.py <<'END'\n"+script+"END\nsetsid python3 w.py >/dev/null 2>&1 </dev/null &")
}

// TestManyFillTheVolume lets eight containers fill a volume concurrently: they are ended, and the
// server is of use again.
func TestManyFillTheVolume(t *testing.T) {
	p, _ := onVolume(t, 400<<20)
	var ids []string
	for i := range 8 {
		ids = append(ids, p.create("/containers", fmt.Sprintf(`{"name":"evil%d"}`, i)))
	}
	for _, id := range ids { // before the first one writes, which can leave no space for the others' programs
		p.fillsForever(id, `open("go").read()`)
	}
	var starts sync.WaitGroup
	defer starts.Wait()
	for _, id := range ids {
		starts.Go(func() { // a command may have to wait, or fail, while the disk is full
			for strings.Contains(p.ask("GET", "/containers/"+id, "").text, `"status":"running"`) &&
				t.Context().Err() == nil {
				if _, _, err := p.berth("exec", id, "--", "sh", "-c", "echo >go"); err == nil {
					return
				}
			}
		})
	}
	for _, id := range ids {
		p.waitUntil("the container is ended", func() bool {
			return strings.Contains(p.ask("GET", "/containers/"+id, "").text, `"reason":"disk"`)
		})
	}
	p.waitUntil("there is space again", p.ready)
	for _, id := range ids {
		p.call("DELETE", "/containers/"+id, "")
	}
}

// TestVolumeFilledWithoutServer lets a container fill the volume while no server runs. The
// server starts, and so does the end of all containers.
func TestVolumeFilledWithoutServer(t *testing.T) {
	p, dir := onVolume(t, 400<<20)
	fill := func() (id string) {
		id = p.create("/containers", `{"name":"evil"}`)
		p.fillsForever(id, "time.sleep(1)")
		p.kill()
		p.waitUntil("the volume is full", func() bool { return disktest.Free(t, dir) == 0 })
		return id
	}
	good := p.create("/containers", `{"name":"good"}`)
	p.shell(good, "echo kept >/mnt/data/file; sleep 1000 >/dev/null 2>&1 & echo $! >/mnt/data/pid")
	evil := fill()
	p.start()
	p.want("the container", p.call("GET", "/containers/"+evil, ""), `"reason":"disk"`)
	if got := p.shell(good, "cat /mnt/data/file; kill -0 $(cat /mnt/data/pid) && echo alive"); got != "kept\nalive\n" {
		t.Errorf("the other container: got %q", got)
	}
	p.waitUntil("the server says that it is ready", p.ready)

	fill()
	if said, failed, err := p.berth("stop", "--all", "--yes", "--state", p.state); err != nil || !strings.Contains(said,
		"2 containers ended") {
		t.Errorf("stop --all on a full disk: got %q %q, %v", said, failed, err)
	}
	p.start()
}

// TestFullDisk fills the volume from outside: nothing is created, and clients
// get the reason; everything can be deleted, also after the server was killed and started again.
func TestFullDisk(t *testing.T) {
	p, dir := onVolume(t, 512<<20)
	first, second := p.create("/containers", `{"name":"first"}`), p.create("/containers", `{"name":"second"}`)
	p.shell(first, "true")
	p.shell(second, "echo kept >/mnt/data/file")
	response, conversation := p.create("/responses", hello), p.create("/conversations", "{}")
	volume := p.create("/volumes", `{"name":"data","max_bytes":16777216}`)
	snapshot := p.create("/containers/"+second+"/snapshots", "{}")
	filler := disktest.Fill(t, dir, 0)

	refused := func() {
		t.Helper()
		for path, body := range map[string]string{"/responses": hello, "/conversations": "{}",
			"/containers": `{"name":"x"}`, "/volumes": `{"name":"more"}`,
			"/containers/" + second + "/snapshots": "{}", "/containers/" + second + "/fork": "{}", "/containers/" +
				second + "/files": "{}", "/files": "", "/threads": "{}"} {
			a := p.ask("POST", path, body)
			if a.status != http.StatusInsufficientStorage || a.code() != "insufficient_storage" ||
				a.header.Get("retry-after") == "" {
				t.Errorf("POST %s on a full disk: got %d, retry-after %q, %.300s", path, a.status,
					a.header.Get("retry-after"), a.text)
			}
		}
	}
	refused()
	p.waitUntil("the server says that it is not ready", func() bool { return !p.ready() })
	if got := fetch(t, p.url+"/healthz"); !strings.Contains(got, "ok") {
		t.Errorf("healthz on a full disk: got %s", got)
	}
	p.call("GET", "/responses/"+response, "")
	p.call("DELETE", "/containers/"+first, "")
	p.call("DELETE", "/conversations/"+conversation, "")
	disktest.Fill(t, dir, 0) // what that gave back

	p.kill()
	disktest.Fill(t, dir, 0)
	p.start()
	refused()
	if got := p.shell(second, "cat /mnt/data/file"); got != "kept\n" {
		t.Errorf("the file of a container that lived on: got %q", got)
	}
	for _, path := range []string{"/responses/" + response, "/snapshots/" + snapshot, "/volumes/" + volume,
		"/containers/" + second} {
		p.call("DELETE", path, "")
	}
	fillers, err := filepath.Glob(filepath.Join(filepath.Dir(filler), "filler-*"))
	for _, path := range fillers {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.waitUntil("there is space again", func() bool {
		return p.ask("POST", "/responses", hello).status == http.StatusOK
	})
	p.shell(p.create("/containers", `{"name":"new"}`), "true")
	p.waitUntil("the server says that it is ready", p.ready)
}

func (p *planted) ready() bool {
	p.t.Helper()
	resp, err := http.Get(p.url + "/readyz")
	if err != nil {
		p.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
