package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

func newPort() *cobra.Command {
	var link bool
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "port CONTAINER [LOCAL:]PORT...",
		Short: "Forward local ports to ports of a container",
		Long: `Forward TCP connections from ports of this machine to loopback ports of a container,
until interrupted. LOCAL is an address, a port, or both.

  berth port cntr_… 5432                  psql -h 127.0.0.1
  berth port cntr_… 8080:80 9000
  berth port cntr_… 0.0.0.0:8080:80       for other machines, too
  berth port --link cntr_… 8000           print a URL for a browser, which needs no key`,
		Args: cobra.MinimumNArgs(2),
	}
	connect := clientFlags(cmd)
	cmd.Flags().BoolVar(&link, "link", false, "print a URL of the port; the URL works without a key")
	durationFlag(cmd, &life, "expires", "", time.Hour, "lifetime of the URL of --link")
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		forwards := make([]forward, len(args)-1)
		for i, arg := range args[1:] {
			var err error
			if forwards[i], err = parseForward(arg); err != nil {
				return err
			}
		}
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if link {
			return printLinks(cmd, c, id, forwards, life)
		}
		return forwardAll(cmd, c, id, forwards)
	}
	return cmd
}

// A forward is a local address and the container's port to forward to.
type forward struct {
	local string
	port  int
}

// parseForward parses PORT, LOCAL:PORT or ADDRESS:LOCAL:PORT.
func parseForward(arg string) (forward, error) {
	local, remote := arg, arg
	if i := strings.LastIndexByte(arg, ':'); i >= 0 {
		local, remote = arg[:i], arg[i+1:]
	}
	port, err := strconv.Atoi(remote)
	if err != nil || port < 1 || port > 65535 {
		return forward{}, fmt.Errorf("%q is not [[ADDRESS:]LOCAL:]PORT", arg)
	}
	if !strings.Contains(local, ":") {
		local = "127.0.0.1:" + local
	}
	if _, p, err := net.SplitHostPort(local); err != nil || p == "" {
		return forward{}, fmt.Errorf("%q is not [[ADDRESS:]LOCAL:]PORT", arg)
	}
	return forward{local, port}, nil
}

// portPath returns the path of a container's port on a server.
func portPath(container string, port int) string {
	return "/v1/containers/" + url.PathEscape(container) + "/ports/" + strconv.Itoa(port)
}

func printLinks(cmd *cobra.Command, c *client, container string, forwards []forward, life time.Duration) error {
	for _, f := range forwards {
		body := map[string]any{"expires_after": map[string]any{"anchor": "created_at",
			"seconds": int64(life / time.Second)}}
		var link struct {
			URL     string
			HostURL string `json:"host_url"`
		}
		if err := c.call(cmd.Context(), "POST", portPath(container, f.port), body, &link); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(link.HostURL, link.URL))
	}
	return nil
}

// forwardAll serves all forwards until the command's context ends or one of them fails.
func forwardAll(cmd *cobra.Command, c *client, container string, forwards []forward) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	var all sync.WaitGroup
	defer all.Wait()
	for _, f := range forwards {
		l, err := net.Listen("tcp", f.local)
		if err != nil {
			cancel(nil)
			return err
		}
		context.AfterFunc(ctx, func() { l.Close() })
		fmt.Fprintf(cmd.OutOrStdout(), "%s -> %s:%d\n", l.Addr(), container, f.port)
		all.Go(func() {
			if err := c.forward(ctx, l, cmd.ErrOrStderr(), portPath(container, f.port)); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	if cmd.Context().Err() != nil {
		return nil // interrupted
	}
	return context.Cause(ctx)
}

// forward tunnels each connection of l to a path of the server. It logs a connection that
// fails and serves the next.
func (c *client) forward(ctx context.Context, l net.Listener, log io.Writer, path string) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		conns.Go(func() {
			defer conn.Close()
			if err := c.tunnel(ctx, conn.(*net.TCPConn), path); err != nil && ctx.Err() == nil {
				fmt.Fprintln(log, "berth:", err)
			}
		})
	}
}

// tunnel copies one connection in both directions.
func (c *client) tunnel(ctx context.Context, conn *net.TCPConn, path string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", c.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	if err := c.authorize(req); err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	remote, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		return c.answerError(resp)
	}
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		remote.Close()
	})
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.Copy(remote, conn)
		if half, ok := remote.(interface{ CloseWrite() error }); err != nil || !ok || half.CloseWrite() != nil {
			remote.Close()
		}
	}()
	if _, err := io.Copy(conn, remote); err != nil || conn.CloseWrite() != nil {
		conn.Close()
	}
	<-sent
	return nil
}
