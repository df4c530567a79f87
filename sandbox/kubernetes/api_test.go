package kubernetes

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth/sandbox/drivertest"
)

// An apiServer answers what the driver asks of an API server about Pods, with its rules about versions.
// It has no nodes: a command in a Pod runs on this machine. make test-cluster runs the same code with a
// real cluster.
type apiServer struct {
	t      *testing.T
	url    *url.URL
	guests map[string]string // sockets of guests, by Pod

	mu        sync.Mutex
	version   int
	pods      map[string]*pod
	sandboxes map[string]*agentSandbox // nil without agent-sandbox
	changes   int                      // of Pods by others, before each conditional write
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{t: t, pods: map[string]*pod{}, guests: map[string]string{}}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	var err error
	if a.url, err = url.Parse(srv.URL); err != nil {
		t.Fatal(err)
	}
	return a
}

// driver returns the driver of one of the servers that share an instance.
func (a *apiServer) driver(server string) *Driver {
	c := newClient(identity{server: a.url, tls: &tls.Config{}, namespace: "n"})
	a.t.Cleanup(c.close)
	opts, names := Options{Server: server, CPURequest: 0.1, MemoryRequest: 1}, naming{"0123456789ab", server}
	return &Driver{opts: opts, names: names, pods: podMaker{names, opts}, client: c, agents: agents{client: c},
		log: slog.New(slog.DiscardHandler)}
}

// add adds the running Pod of a sandbox, with a guest.
func (a *apiServer) add(d *Driver, id string) (name string) {
	a.t.Helper()
	name, err := d.names.pod(id)
	if err != nil {
		a.t.Fatal(err)
	}
	p := d.pods.bare(name, kindSandbox, "image", owner{uid: nobodyID, gid: nobodyID})
	p.Metadata.UID, p.Metadata.ResourceVersion = "uid-"+name, "1"
	p.Metadata.Annotations = map[string]string{annotationSandbox: id, annotationEpoch: "0"}
	a.start(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[name] = p
	return name
}

// start makes a Pod run.
func (a *apiServer) start(p *pod) {
	p.Spec.SchedulingGates = nil
	p.Status.Phase = "Running"
	p.Status.Containers = []containerStatus{{Name: containerName}}
	p.Status.Containers[0].State.Running = &struct{}{}
}

// guest starts a guest for a Pod.
func (a *apiServer) guest(name string) {
	a.t.Helper()
	dir := a.t.TempDir()
	socket := filepath.Join(dir, "guest.sock")
	cmd := exec.Command(drivertest.Guest(a.t), "--socket", socket, "--epochs", "--user", "root", "--workdir",
		filepath.Join(dir, "work"), "--state", filepath.Join(dir, "state"))
	cmd.Env = append(os.Environ(), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(end) {
			a.t.Fatal("the guest does not listen")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guests[name] = socket
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.serveAgents(w, r)
		return
	}
	rest := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/n/pods")
	name, command, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if command == "exec" {
		a.exec(w, r, name)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if name == "" {
		if r.URL.Query().Has("watch") { // nothing happens while it is open
			return
		}
		a.list(w, metasOf(a.pods, func(p *pod) meta { return p.Metadata }), r.URL.Query())
		return
	}
	p := a.pods[name]
	if p == nil {
		a.refuse(w, http.StatusNotFound, "NotFound", name)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	if a.changes > 0 && r.Method != http.MethodGet { // its status changed since it was read
		a.changes--
		a.version++
		p.Metadata.ResourceVersion = "s" + strconv.Itoa(a.version)
	}
	switch r.Method {
	case http.MethodPatch:
		var patch struct {
			Metadata meta
			Spec     map[string]any
		}
		if err := json.Unmarshal(body, &patch); err != nil {
			a.t.Error(err)
		}
		if v := patch.Metadata.ResourceVersion; patch.Metadata.UID != p.Metadata.UID || v != "" &&
			v != p.Metadata.ResourceVersion {
			a.refuse(w, http.StatusConflict, "Conflict", name)
			return
		}
		maps.Copy(p.Metadata.Labels, patch.Metadata.Labels)
		maps.Copy(p.Metadata.Annotations, patch.Metadata.Annotations)
		if gates, ok := patch.Spec["schedulingGates"]; ok && gates == nil {
			a.start(p)
		}
		a.version++
		p.Metadata.ResourceVersion = "p" + strconv.Itoa(a.version)
	case http.MethodDelete:
		var options struct{ Preconditions meta }
		if err := json.Unmarshal(body, &options); err != nil {
			a.t.Error(err)
		}
		if v := options.Preconditions.ResourceVersion; options.Preconditions.UID != p.Metadata.UID || v != "" &&
			v != p.Metadata.ResourceVersion {
			a.refuse(w, http.StatusConflict, "Conflict", name)
			return
		}
		delete(a.pods, name)
		a.control(name)
	}
	a.answer(w, http.StatusOK, p)
}

// metasOf returns the metadata of all objects, by name.
func metasOf[T any](all map[string]T, of func(T) meta) (metas []meta) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		metas = append(metas, of(all[name]))
	}
	return metas
}

// list answers with the metadata of the objects with all labels and the name of a query.
func (a *apiServer) list(w http.ResponseWriter, all []meta, query url.Values) {
	var list partialList
	for _, m := range all {
		matches := true
		if label := query.Get("labelSelector"); label != "" {
			for label := range strings.SplitSeq(label, ",") {
				k, v, _ := strings.Cut(label, "=")
				matches = matches && m.Labels[k] == v
			}
		}
		if field := query.Get("fieldSelector"); field != "" {
			matches = matches && field == "metadata.name="+m.Name
		}
		if matches {
			list.Items = append(list.Items, partialObject{m})
		}
	}
	a.answer(w, http.StatusOK, list)
}

func (a *apiServer) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		a.t.Error(err)
	}
}

func (a *apiServer) refuse(w http.ResponseWriter, code int, reason, name string) {
	a.answer(w, code, map[string]any{"kind": "Status", "reason": reason, "message": reason, "code": code,
		"details": map[string]string{"name": name}})
}

// exec runs the command of a Pod on this machine, with the socket of its guest.
func (a *apiServer) exec(w http.ResponseWriter, r *http.Request, name string) {
	a.mu.Lock()
	socket := a.guests[name]
	a.mu.Unlock()
	args := r.URL.Query()["command"]
	for i, s := range args {
		if s == guestSocket {
			args[i] = socket
		}
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	cmd := exec.CommandContext(r.Context(), drivertest.Guest(a.t), args[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		a.t.Error(err)
		return
	}
	var writing sync.Mutex
	send := func(channel byte) io.Writer {
		return writerFunc(func(p []byte) (int, error) {
			writing.Lock()
			defer writing.Unlock()
			return len(p), ws.Write(r.Context(), websocket.MessageBinary, append([]byte{channel}, p...))
		})
	}
	cmd.Stdout, cmd.Stderr = send(stdout), send(stderr)
	if err := cmd.Start(); err != nil {
		a.t.Error(err)
		return
	}
	go func() {
		defer in.Close()
		for {
			_, raw, err := ws.Read(r.Context())
			if err != nil || len(raw) == 0 {
				_ = cmd.Process.Kill()
				return
			}
			if _, err := in.Write(raw[1:]); err != nil {
				return
			}
		}
	}()
	end := `{"status":"Success"}`
	if cmd.Wait() != nil {
		end = `{"status":"Failure","message":"the command failed"}`
	}
	_, _ = io.WriteString(send(result), end)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
