// Package pgtest starts a PostgreSQL server for tests: an empty cluster of its own, on a
// free port of the loopback interface.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth/internal/freeport"
)

// URLEnv names an environment variable with the URL of a server for tests, whose user may
// create databases. Tests remove the databases that they create there.
const URLEnv = "BERTH_TEST_POSTGRES"

// Password is the password of the user of a Server. Tests check that it does not appear
// in logs.
const Password = "p4ssword/with:signs"

const startTimeout = 60 * time.Second

// Main runs the tests of a package that calls URL, ends the shared server and exits. Call
// it from TestMain.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main, and returns the exit code.
func Run(m *testing.M) (code int) {
	code = m.Run()
	if s := shared.server; s != nil {
		if err := s.remove(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	return code
}

// shared is the server that URL uses.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

var databases atomic.Int64

// URL returns the URL of a new, empty database. It is removed after the test. All tests
// of the process share a server, which starts at the first call; the package's TestMain
// must call Main. If no server can run here, URL skips the test.
func URL(tb testing.TB) string {
	tb.Helper()
	base := os.Getenv(URLEnv)
	if base == "" {
		shared.once.Do(func() { shared.server, shared.err = start(tb) })
		if shared.err != nil {
			tb.Skipf("skipped: no PostgreSQL server: %v", shared.err)
		}
		base = shared.server.URL()
	}
	return newDatabase(tb, base)
}

func newDatabase(tb testing.TB, base string) string {
	tb.Helper()
	name := fmt.Sprintf("berth_test_%d_%d", os.Getpid(), databases.Add(1))
	run(tb, base, "CREATE DATABASE "+name)
	tb.Cleanup(func() { run(tb, base, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(base)
	if err != nil {
		tb.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func run(tb testing.TB, at, statement string) {
	tb.Helper()
	ctx := context.Background() // also in Cleanup
	c, err := pgx.Connect(ctx, at)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = c.Exec(ctx, statement)
	if err := errors.Join(err, c.Close(ctx)); err != nil {
		tb.Fatal(err)
	}
}

// A Server is a PostgreSQL server. Its methods must not run at the same time.
type Server struct {
	dir  string // owned by the user it runs as
	bin  string
	port string
	as   *syscall.Credential // nil for the user of the test
	cmd  *exec.Cmd           // nil while it is stopped
	log  *os.File
}

// Start starts a server of its own for a test, with the empty database "postgres". If no
// server can run here, Start skips the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := start(tb)
	if err != nil {
		tb.Skipf("skipped: no PostgreSQL server: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.remove(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// URL returns the URL of the database "postgres".
func (s *Server) URL() string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("berth", Password), Host: "127.0.0.1:" + s.port,
		Path: "/postgres", RawQuery: "sslmode=disable"}
	return u.String()
}

// NewDatabase returns the URL of a new, empty database of the server. It is removed after
// the test.
func (s *Server) NewDatabase(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, s.URL())
}

// Data returns the directory of the cluster.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// programs returns the directory of PostgreSQL's programs, of the latest version.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err == nil && len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("PostgreSQL is not installed (Debian's package postgresql)")
	}
	return filepath.Dir(path), nil
}

// unprivileged returns the user to run a server as, which refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find a user to run it as: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

func start(tb testing.TB) (_ *Server, err error) {
	s := &Server{}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if s.as, err = unprivileged(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "berth-pgtest-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	password := filepath.Join(s.dir, "password")
	if err := os.WriteFile(password, []byte(Password+"\n"), 0o644); err != nil {
		return nil, err
	}
	initdb := s.command("initdb", "--pgdata", s.Data(), "--username=berth", "--pwfile", password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return nil, err
	}
	s.port = freeport.Port(tb)
	return s, s.Run()
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	return cmd
}

// Run starts the server again after Stop. It returns when the server accepts connections.
func (s *Server) Run() error {
	cmd := s.command("postgres", "-D", s.Data(), "-p", s.port, "-c", "listen_addresses=127.0.0.1", "-c",
		"unix_socket_directories=",
		"-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=200", "-c", "max_wal_size=64MB", "-c",
		"min_wal_size=32MB")
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.cmd = cmd
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			_ = c.Close(ctx)
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(s.log.Name())
			return fmt.Errorf("PostgreSQL does not answer: %w; its log: %s", err, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop stops the server immediately: it breaks all connections, and recovers at the next Run.
func (s *Server) Stop() error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err
	}
	_ = s.cmd.Wait() // the exit code of an immediate shutdown
	s.cmd = nil
	return nil
}

// Standby starts a standby of the server in a test. From then on the server acknowledges a commit when
// the standby has it.
func (s *Server) Standby(tb testing.TB) *Server {
	tb.Helper()
	standby := &Server{bin: s.bin, as: s.as, port: freeport.Port(tb)}
	var err error
	if standby.dir, err = os.MkdirTemp("", "berth-pgtest-"); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := standby.remove(); err != nil {
			tb.Error(err)
		}
	})
	if s.as != nil {
		if err := os.Chown(standby.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
	copied := s.command("pg_basebackup", "--pgdata", standby.Data(), "--dbname", s.URL(), "--write-recovery-conf",
		"--checkpoint=fast", "--no-sync")
	if out, err := copied.CombinedOutput(); err != nil {
		tb.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	if standby.log, err = os.Create(filepath.Join(standby.dir, "log")); err != nil {
		tb.Fatal(err)
	}
	if err := standby.Run(); err != nil {
		tb.Fatal(err)
	}
	run(tb, s.URL(), "ALTER SYSTEM SET synchronous_standby_names = '*'")
	run(tb, s.URL(), "SELECT pg_reload_conf()")
	// The sender of the log decides by its own copy of the setting whether it is synchronous.
	run(tb, s.URL(),
		"DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync') LOOP PERFORM pg_sleep(0.05); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$")
	return standby
}

// Promote makes a standby a server of its own.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	run(tb, s.URL(), "SELECT pg_promote()")
}

// EitherURL returns the URL of the database "postgres" on that of two servers which accepts writes.
func EitherURL(a, b *Server) string {
	q := url.Values{"host": {"127.0.0.1,127.0.0.1"}, "port": {a.port + "," + b.port}, "sslmode": {"disable"},
		"target_session_attrs": {"read-write"}}
	u := url.URL{Scheme: "postgres", User: url.UserPassword("berth", Password), Path: "/postgres", RawQuery: q.Encode()}
	return u.String()
}

func (s *Server) remove() error {
	err := s.Stop()
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
