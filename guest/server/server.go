// Package server is the guest: the program inside every sandbox that runs
// commands, moves files and reaches ports for the Berth server outside.
//
// Its socket is the only way into the sandbox. Connections come and go with the servers
// that own the sandbox; commands are not affected.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth/guest/guestpb/berth/guest/v1/guestv1connect"
	"github.com/berth-run/berth/guest/guestpb/filesystem/filesystemconnect"
	"github.com/berth-run/berth/guest/guestpb/process/processconnect"
	"github.com/berth-run/berth/guest/mux"
)

// maxMessage bounds one RPC message in bytes.
const maxMessage = 4 << 20

// Options configure a guest. Zero values are the defaults.
type Options struct {
	User        string // the user of commands; default "user", or the guest's own if it is not root
	WorkDir     string // where commands start; default /mnt/data
	StateDir    string // of shell state and output; default /run/berth
	MemoryLimit int64  // bytes of all processes; 0: not watched
	PIDsLimit   int    // processes; 0: not watched
	Watch       bool   // use notifications for changes in WorkDir; only if the kernel is the sandbox's own

	// Epochs means that each connection begins with an epoch (epoch.go).
	Epochs bool

	// Created is a time before the first write above the sandbox's template; zero if
	// unknown.
	Created time.Time

	Version string
	Log     *slog.Logger
}

// A Server is a guest.
type Server struct {
	opts    Options
	started time.Time
	owner   identity // the default user of commands
	reaper  *reaper
	shell   *shell
	procs   *processes
	kernels *kernels
	desktop *desktops
	watches *watchers
	placed  placedFiles
	network *network
	handler http.Handler

	archiver archiver
	sleeper  sleeper
	epochs   epochs
	ports    sync.Map // TCP ports that the guest itself listens on, as text

	initial     map[string]bool          // the guest's own environment at its start
	environment atomic.Pointer[[]string] // of commands, beyond the guest's own
}

// New prepares a guest. As PID 1, it starts to reap the sandbox's orphans.
func New(opts Options) (*Server, error) {
	if opts.User == "" {
		opts.User = "user"
	}
	if opts.WorkDir == "" {
		opts.WorkDir = "/mnt/data"
	}
	if opts.StateDir == "" {
		opts.StateDir = "/run/berth"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	reaper, err := newReaper()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, started: time.Now(), reaper: reaper, initial: map[string]bool{}}
	for _, kv := range os.Environ() {
		s.initial[kv] = true
	}
	s.archiver.server = s
	if s.owner, err = lookup(opts.User); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.StateDir, 0o711); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(opts.StateDir, "output"), 0o755); err != nil {
		return nil, err
	}
	if err := makeWorkDir(opts.WorkDir, s.owner); err != nil {
		return nil, err
	}
	s.procs = &processes{server: s, live: map[int]*process{}}
	s.kernels = &kernels{server: s, byName: map[string]*kernel{}}
	s.desktop = newDesktops(s)
	s.watches = &watchers{server: s, polled: map[string]*watcher{}}
	s.network = &network{server: s, names: map[string]*outsider{}, near: map[netip.Addr]string{}}
	s.shell = newShell(s)
	s.handler = s.routes()
	return s, nil
}

func makeWorkDir(dir string, owner identity) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		return os.Chown(dir, owner.uid, owner.gid)
	}
	return nil
}

func (s *Server) routes() http.Handler {
	routes := http.NewServeMux()
	limit := connectOptions()
	routes.Handle(processconnect.NewProcessHandler(s.procs, limit...))
	routes.Handle(filesystemconnect.NewFilesystemHandler(&filesystem{server: s}, limit...))
	routes.Handle(guestv1connect.NewShellHandler(s.shell, limit...))
	routes.Handle(guestv1connect.NewGuestHandler(s, limit...))
	routes.HandleFunc("GET /files", s.download)
	routes.HandleFunc("POST /files", s.upload)
	routes.HandleFunc("POST /files/compose", s.compose)
	routes.HandleFunc("GET /folder", s.folder)
	routes.HandleFunc("GET /archive", s.archiver.get)
	routes.HandleFunc("POST /archive", s.archiver.put)
	routes.HandleFunc("POST /sleep", s.sleep)
	routes.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			s.tunnel(w, r)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// Serve answers Berth servers on l until ctx ends. Each connection carries a session of
// package mux, and each stream of it HTTP; many servers may be connected at the same time.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	go s.watchLimits(ctx)
	if addr, ok := l.Addr().(*net.TCPAddr); ok {
		s.ports.Store(strconv.Itoa(addr.Port), true)
	}
	s.canSleep(l)
	ended := func(l net.Listener) func() bool { return context.AfterFunc(ctx, func() { l.Close() }) }
	stop := ended(l)
	defer func() { stop() }()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			if l, err = s.slept(ctx); err != nil {
				return err
			}
			stop()
			stop = ended(l)
			continue
		}
		if err != nil {
			s.opts.Log.Warn("failed to accept a connection", "err", err) // out of descriptors, for example
			time.Sleep(50 * time.Millisecond)
			continue
		}
		go s.serveConn(conn)
	}
}

func (s *Server) serveConn(conn net.Conn) {
	defer conn.Close()
	if s.opts.Epochs {
		if err := s.epochs.admit(conn); err != nil {
			s.opts.Log.Debug("refused a connection", "err", err)
			return
		}
		defer s.epochs.leave(conn)
	}
	session := mux.Guest(conn)
	if !s.sleeper.enter(session) {
		session.Close()
		return
	}
	defer s.sleeper.leave(session)
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 30 * time.Second,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, sessionKey{}, session)
		},
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug)}
	_ = server.Serve(session) // ends with the session
}

// tunnel connects the server to a port of the sandbox: CONNECT host:port. The host is
// ignored.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		http.Error(w, "CONNECT needs host:port", http.StatusBadRequest)
		return
	}
	target, err := s.dialPort(r.Context(), port)
	if err != nil {
		http.Error(w, "The sandbox is running but port is not open", http.StatusBadGateway)
		return
	}
	defer target.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	go func() {
		_ = pump(target, buffered.Reader)
		_ = target.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}()
	go func() {
		_ = pump(conn, target)
		_ = conn.(closeWriter).CloseWrite()
		done <- struct{}{}
	}()
	<-done
	<-done
}

// dialPort connects to a port on the loopback, by either of its addresses. It refuses the
// guest's own ports.
func (s *Server) dialPort(ctx context.Context, port string) (net.Conn, error) {
	if _, own := s.ports.Load(port); own || port == dnsPort && os.Getpid() == 1 {
		return nil, errors.New("the port is the guest's own")
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		return conn, nil
	}
	if conn, err := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", port)); err == nil {
		return conn, nil
	}
	return nil, err
}

// An identity is a Unix user of the sandbox.
type identity struct {
	name, home string
	uid, gid   int
	groups     []uint32
}

// lookup finds a user by name in the sandbox's own files. A guest that is not root can only
// use its own user. A guest on the host gives its own user the home that it was given.
func lookup(name string) (identity, error) {
	if os.Getuid() != 0 {
		home, err := os.UserHomeDir()
		if err != nil {
			home = "/"
		}
		return identity{name: name, home: home, uid: os.Getuid(), gid: os.Getgid()}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return identity{}, err
	}
	id := identity{name: u.Username, home: u.HomeDir}
	if id.uid, err = strconv.Atoi(u.Uid); err != nil {
		return identity{}, fmt.Errorf("user ID: %w", err)
	}
	if id.gid, err = strconv.Atoi(u.Gid); err != nil {
		return identity{}, fmt.Errorf("group ID: %w", err)
	}
	if home, err := os.UserHomeDir(); err == nil && id.uid == os.Getuid() && os.Getpid() != 1 {
		id.home = home
	}
	groups, err := u.GroupIds()
	if err != nil {
		groups = nil // no /etc/group: the user's own group is enough
	}
	for _, g := range groups {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil {
			id.groups = append(id.groups, uint32(n))
		}
	}
	return id, nil
}

// loginShell is the shell of all users.
const loginShell = "/bin/bash"

// environ returns the environment of a login.
func (id identity) environ() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + id.home, "USER=" + id.name, "LOGNAME=" + id.name, "SHELL=" + loginShell,
	}
}

// resolve makes a path absolute as envd does: relative to the user's home, with ~ for that
// home. An empty path is the working directory.
func (s *Server) resolve(path string, id identity) string {
	switch {
	case path == "":
		return s.opts.WorkDir
	case path == "~" || strings.HasPrefix(path, "~/"):
		return filepath.Join(id.home, path[1:])
	case !filepath.IsAbs(path):
		return filepath.Join(id.home, path)
	}
	return filepath.Clean(path)
}
