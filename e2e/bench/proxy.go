package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// A proxy is this program in a process of its own, as a reverse proxy.
type proxy struct {
	url string
	cmd *exec.Cmd
	in  io.Closer // the proxy ends when it is closed
}

// startProxy starts a reverse proxy before upstream.
func startProxy(ctx context.Context, upstream string) (*proxy, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &proxy{cmd: exec.CommandContext(ctx, self, "-proxy", upstream)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the proxy did not start: %w", err)
	}
	p.url = "http://" + strings.TrimSpace(line)
	return p, nil
}

func (p *proxy) stop() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// runProxy is the process of startProxy. It prints its address and ends with its
// standard input.
func runProxy(upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true},
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	if err := http.Serve(l, handler); err != nil && !strings.Contains(err.Error(), net.ErrClosed.Error()) {
		return err
	}
	return nil
}
