// Package s3test starts an S3-compatible server for tests: versitygw over a directory.
package s3test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/freeport"
)

// Credentials that the server accepts. Start sets them in the environment of the test.
const (
	AccessKey = "berth-test"
	SecretKey = "berth-test-secret-canary"
)

// startTimeout is how long the server may take to answer.
const startTimeout = 30 * time.Second

// A Server is an S3-compatible server on loopback.
type Server struct {
	Addr string // host:port
	dir  string // a directory in it is a bucket, a file an object

	tb  testing.TB
	cmd *exec.Cmd
}

// Program returns the path of versitygw, which scripts/setup test installs. It skips the test if
// it is not installed.
func Program(tb testing.TB) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(cache, "berth-test", "bin", "versitygw")
	if _, err := os.Stat(path); err != nil {
		tb.Skip("no versitygw: run scripts/setup test")
	}
	return path
}

// Start starts a server without buckets, which ends with the test, and sets its credentials in
// the environment. It skips the test if the server cannot run here.
func Start(tb testing.TB) *Server {
	tb.Helper()
	program := Program(tb)
	s := &Server{Addr: freeport.Addr(tb), dir: tb.TempDir(), tb: tb}
	if err := unix.Setxattr(s.dir, "user.berth-test", []byte("x"), 0); err != nil {
		tb.Skipf("skipped: %s has no extended attributes, which versitygw needs: %v", s.dir, err)
	}
	tb.Setenv("AWS_ACCESS_KEY_ID", AccessKey)
	tb.Setenv("AWS_SECRET_ACCESS_KEY", SecretKey)
	tb.Setenv("AWS_SESSION_TOKEN", "")
	tb.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	s.run(program)
	tb.Cleanup(s.Stop)
	return s
}

func (s *Server) run(program string) {
	s.tb.Helper()
	s.cmd = exec.Command(program, "--quiet", "--access", AccessKey, "--secret", SecretKey, "--port", s.Addr, "--health",
		"/health", "posix", s.dir)
	s.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("start versitygw: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
		if err == nil {
			conn.Close()
			if resp, err := http.Get("http://" + s.Addr + "/health"); err == nil {
				resp.Body.Close()
				return
			}
		}
		if ctx.Err() != nil {
			s.tb.Fatalf("versitygw does not start: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Stop ends the server. Connections to its address are then refused.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

// Restart starts a stopped server on the same address, with the same objects.
func (s *Server) Restart() {
	s.tb.Helper()
	s.run(Program(s.tb))
}

// Bucket creates an empty bucket, unless it exists, and returns its URL with parameters of the form key=value.
func (s *Server) Bucket(name string, parameters ...string) string {
	s.tb.Helper()
	if err := os.MkdirAll(s.Path(name), 0o755); err != nil {
		s.tb.Fatal(err)
	}
	return URL(s.Addr, name, parameters...)
}

// URL returns the URL of a bucket at an address.
func URL(addr, bucket string, parameters ...string) string {
	all := append([]string{"region=us-east-1", "endpoint=" + url.QueryEscape("http://"+addr)}, parameters...)
	return fmt.Sprintf("s3://%s?%s", bucket, strings.Join(all, "&"))
}

// Path returns the file or directory of an object or a bucket: bucket, then the parts of the key.
func (s *Server) Path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// Objects returns the paths of a bucket's objects below its root, without those of uploads that
// are not complete.
func (s *Server) Objects(bucket string) (keys []string) {
	s.tb.Helper()
	err := filepath.WalkDir(s.Path(bucket), func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && strings.HasPrefix(e.Name(), ".sgwtmp") {
			return filepath.SkipDir
		}
		if e.Type().IsRegular() {
			key, err := filepath.Rel(s.Path(bucket), path)
			keys = append(keys, key)
			return err
		}
		return nil
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	return keys
}
