package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth/guest"
)

// A server is one `berth serve`, with a state directory of its own.
type server struct {
	url, metrics string
	state        string
	log          string
	http         *http.Client
	command      []string
	cmd          *exec.Cmd
	ended        chan error // has one value when it has
}

// stopTime is how long a server may take to delete its containers and end.
const stopTime = 2 * time.Minute

// startTime is how long a server may take to start.
const startTime = 30 * time.Second

// serve starts a server with a configuration and returns when it answers.
func (b *bench) serve(ctx context.Context, config string) (*server, error) {
	return b.serveWith(ctx, config, "")
}

// withHosts runs a program with another /etc/hosts, which no other process sees.
const withHosts = `mount --bind "$0" /etc/hosts && exec "$@"`

// serveWith is serve for a server that has an /etc/hosts of its own, unless hosts is
// empty. Flags are further ones of berth serve.
func (b *bench) serveWith(ctx context.Context, config, hosts string, flags ...string) (*server, error) {
	s, err := b.newServer(config, hosts, flags...)
	if err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

// newServer is serveWith for a server that is not started yet.
func (b *bench) newServer(config, hosts string, flags ...string) (*server, error) {
	state, err := os.MkdirTemp(b.state, "server-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + ports[0], metrics: "http://" + ports[1] + "/metrics", state: state,
		log:  filepath.Join(state, "log"),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}}}
	file := filepath.Join(state, "berth.yaml")
	if err := errors.Join(os.Symlink(b.images, filepath.Join(state, "images")), os.WriteFile(file, []byte(config),
		0o600)); err != nil {
		return nil, err
	}
	command := []string{filepath.Join(b.bin, "berth"), "serve", "--listen", ports[0], "--metrics-listen", ports[1],
		"--state", state, "--config", file}
	command = append(command, flags...)
	if hosts != "" {
		path := filepath.Join(state, "hosts")
		if err := os.WriteFile(path, []byte(hosts), 0o644); err != nil {
			return nil, err
		}
		command = append([]string{"unshare", "--mount", "sh", "-c", withHosts, path}, command...)
	}
	s.command = command
	return s, nil
}

// start starts the server and returns when it answers. If it does not, start removes the
// state directory.
func (s *server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// An interrupt at the terminal is for this program, which then stops the server.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	cmd, ended := s.cmd, make(chan error, 1)
	s.ended = ended
	go func() { ended <- cmd.Wait() }()
	if err := s.await(ctx, startTime, func() bool {
		return s.do(ctx, http.MethodGet, "/healthz", nil, nil) == nil
	}); err != nil {
		return errors.Join(fmt.Errorf("the server does not answer: %w", err), s.stop())
	}
	return nil
}

// halt ends the server and keeps its state, for start.
func (s *server) halt() error {
	s.http.CloseIdleConnections()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(stopTime):
		return fmt.Errorf("the server has not ended within %s", stopTime)
	}
}

// freePorts returns free addresses on the loopback.
func freePorts(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// await returns when ok holds.
func (s *server) await(ctx context.Context, patience time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("the server has ended: %w", errors.Join(err, s.lastWords()))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), s.lastWords())
		}
	}
	return nil
}

// lastWords returns the end of the server's log as an error.
func (s *server) lastWords() error {
	raw, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("the server logged: %s", raw[max(0, len(raw)-2000):])
}

// stop deletes all containers, ends the server and removes what it kept. It does
// its work whether the run has been interrupted or not.
func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := s.deleteAll(ctx)
	s.http.CloseIdleConnections()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case ended := <-s.ended:
		if ended != nil {
			err = errors.Join(err, fmt.Errorf("the server did not end in order: %w", ended), s.lastWords())
		}
	case <-ctx.Done():
		err = errors.Join(err, errors.New("the server did not end"), s.cmd.Process.Kill(), <-s.ended)
	}
	if left := sandboxesIn(s.state); len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%d sandboxes are left in %s", len(left), s.state)) // cleanUp destroys them
	}
	return errors.Join(err, removeGroups(s.state), os.RemoveAll(s.state))
}

// deleteAll deletes all containers and waits for that.
func (s *server) deleteAll(ctx context.Context) error {
	for {
		var page struct{ Data []struct{ ID, Status string } }
		if err := s.do(ctx, http.MethodGet, "/v1/containers?limit=100", nil, &page); err != nil {
			return err
		}
		if len(page.Data) == 0 {
			break
		}
		deleted := atOnce(8, len(page.Data), func(i int) error { return s.delete(ctx, page.Data[i].ID) })
		if err := errors.Join(deleted.errs...); err != nil {
			return err
		}
	}
	return nil
}

// do sends a request, in as JSON if there is any, and decodes the answer into out,
// if that is wanted. An answer that tells of an error is returned as one.
func (s *server) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	kind := ""
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, kind = bytes.NewReader(raw), "application/json"
	}
	resp, err := s.send(ctx, method, path, kind, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out != nil {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	_, copied := io.Copy(io.Discard, resp.Body) // so that the connection is used again
	return errors.Join(err, copied)
}

// send sends a request and returns the answer, whose body the caller closes.
func (s *server) send(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
}

// create makes a container; more is what the request says beside its name.
func (s *server) create(ctx context.Context, more map[string]any) (id string, err error) {
	in := map[string]any{"name": "bench"}
	for k, v := range more {
		in[k] = v
	}
	var c struct{ ID string }
	err = s.do(ctx, http.MethodPost, "/v1/containers", in, &c)
	return c.ID, err
}

func (s *server) delete(ctx context.Context, id string) error {
	return s.do(ctx, http.MethodDelete, "/v1/containers/"+id, nil, nil)
}

// guest returns a client of a container's guest, as berth exec has it.
func (s *server) guest(id string) *guest.Client {
	return guest.NewHTTPClient(s.url+"/v1/containers/"+id+"/guest", s.http)
}

// exec runs a program in a container and returns what it printed.
func (s *server) exec(ctx context.Context, id, path string, args ...string) (string, error) {
	return execute(ctx, s.guest(id), path, args...)
}

// sh runs a shell command in a container and returns what it printed.
func (s *server) sh(ctx context.Context, id, command string) (string, error) {
	return s.exec(ctx, id, "/bin/bash", "-c", command)
}

// execute runs a program to its end, which must be a good one.
func execute(ctx context.Context, c *guest.Client, path string, args ...string) (string, error) {
	p, err := c.Start(ctx, guest.ProcessRequest{Cmd: path, Args: args})
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	for ev, err := range p.Events() {
		if err != nil {
			return "", err
		}
		out.Write(ev.Stdout)
		errs.Write(ev.Stderr)
		if ev.Ended && ev.ExitCode != 0 {
			return "", fmt.Errorf("%s %q: %s: %s", path, args, ev.Status, errs.String())
		}
	}
	return out.String(), nil
}

// figure returns the sum of one of the server's metrics.
func (s *server) figure(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics, nil)
	if err != nil {
		return 0, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if key, _, _ = strings.Cut(key, "{"); key == name {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		return 0, fmt.Errorf("the server has no metric %s", name)
	}
	return sum, nil
}
