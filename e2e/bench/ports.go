package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

//go:embed programs/serve.py
var serveProgram string

// servedPort is where serve.py listens in a container, servedSize how large its
// large answer is.
const (
	servedPort = "8000"
	servedSize = 256e6
)

// measurePorts measures what a container serves, seen through /ports/ and through a
// link, and beside it the same program on this machine.
func measurePorts(ctx context.Context, b *bench) (err error) {
	t := &table{title: "Into a port of a container"}
	defer b.show(t)
	s, err := b.serve(ctx, noPool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	id, err := s.first(ctx, nil)
	if err != nil {
		return err
	}
	if err := s.guest(id).WriteFile(ctx, "", "/mnt/data/serve.py", "", strings.NewReader(serveProgram)); err != nil {
		return err
	}
	if _, err := s.sh(ctx, id, "nohup python3 /mnt/data/serve.py "+servedPort+" >/dev/null 2>&1 &"); err != nil {
		return err
	}
	base := s.url + "/v1/containers/" + id + "/ports/" + servedPort
	if err := s.await(ctx, 30*time.Second, func() bool {
		return fetch(ctx, s.http, base+"/small", 5) == nil
	}); err != nil {
		return fmt.Errorf("the program in the container does not serve: %w", err)
	}
	var link struct{ URL string }
	if err := s.do(ctx, http.MethodPost, "/v1/containers/"+id+"/ports/"+servedPort, map[string]any{},
		&link); err != nil {
		return err
	}
	direct, end, err := b.serveHere(ctx)
	if err != nil {
		return err
	}
	defer end()

	get := func(url string, size int64) func() error {
		return func() error { return fetch(ctx, s.http, url, size) }
	}
	small, smallDirect := inTurn(ctx, b.n, get(base+"/small", 5), get(direct+"/small", 5))
	t.add(row{what: "`/ports/…`: a small answer", unit: "ms", series: small, beside: "direct", other: smallDirect})
	linked, _ := inTurn(ctx, b.n, get(strings.TrimSuffix(link.URL, "/")+"/small", 5), func() error { return nil })
	t.add(row{what: "by a link: a small answer", unit: "ms", series: linked, beside: "direct", other: smallDirect})
	var large, largeDirect series
	for range largeRuns {
		for url, into := range map[string]*series{base: &large, direct: &largeDirect} {
			took, err := timed(get(url+"/large", servedSize))
			into.add(servedSize/1e6/took.Seconds(), err)
		}
	}
	t.add(row{what: "`/ports/…`: a large answer", unit: "MB/s", series: large, beside: "direct", other: largeDirect})
	return ctx.Err()
}

// serveHere runs serve.py on this machine, in the template's file system.
func (b *bench) serveHere(ctx context.Context) (base string, end func(), err error) {
	rootfs, err := b.rootfs()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "chroot", rootfs, "/usr/bin/python3", "-c", serveProgram, "0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}
	end = func() {
		cancel()
		_ = cmd.Wait()
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, errors.Join(errors.New("the program on this machine does not serve"), err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port), end, nil
}

// fetch gets a URL, which must answer with size bytes.
func fetch(ctx context.Context, client *http.Client, url string, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && (resp.StatusCode != http.StatusOK || n != size) {
		err = fmt.Errorf("%s: %s with %d bytes, want %d", url, resp.Status, n, size)
	}
	return err
}
