package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A part is a program that servers of a cluster share.
type part struct {
	cmd *exec.Cmd
	dir string
}

// run starts the program and returns when ok holds.
func (p *part) run(ctx context.Context, ok func() bool) error {
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.cmd.Path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(log.Name())
			return errors.Join(fmt.Errorf("%s does not answer: it logged %s", p.cmd.Path, text), p.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (p *part) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	_ = p.cmd.Wait() // it was interrupted
	return os.RemoveAll(p.dir)
}

// startPostgres starts a PostgreSQL with its default settings, on loopback.
func (b *bench) startPostgres(ctx context.Context) (_ *part, at string, err error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return nil, "", errors.New("PostgreSQL is not installed: run scripts/setup test")
	}
	as, err := user.Lookup("postgres")
	if err != nil {
		return nil, "", fmt.Errorf("find a user to run PostgreSQL as: %w", err)
	}
	uid, _ := strconv.Atoi(as.Uid)
	gid, _ := strconv.Atoi(as.Gid)
	p := &part{}
	// its user cannot enter the directory of the run
	if p.dir, err = os.MkdirTemp("", "berth-bench-postgres-"); err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(p.dir))
		}
	}()
	if err := os.Chown(p.dir, uid, gid); err != nil {
		return nil, "", err
	}
	attributes := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	bin, data := filepath.Dir(found[len(found)-1]), filepath.Join(p.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data, "--username=berth",
		"--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = p.dir, attributes
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		return nil, "", err
	}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=")
	p.cmd.Dir, p.cmd.SysProcAttr = p.dir, attributes
	ready := exec.Command(filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", port)
	err = p.run(ctx, func() bool {
		again := *ready
		return again.Run() == nil
	})
	return p, "postgres://berth@" + ports[0] + "/postgres?sslmode=disable", err
}

// startBucket starts a server of S3 and returns the URL of an empty bucket. The servers find its
// credentials in the environment.
func (b *bench) startBucket(ctx context.Context) (_ *part, at string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, "", err
	}
	program := filepath.Join(cache, "berth-test", "bin", "versitygw")
	if _, err := os.Stat(program); err != nil {
		return nil, "", errors.New("no versitygw: run scripts/setup test")
	}
	p := &part{}
	if p.dir, err = os.MkdirTemp(b.state, "bucket-"); err != nil {
		return nil, "", err
	}
	ports, err := freePorts(1)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(p.dir, "data", "berth"), 0o755),
			os.Setenv("AWS_ACCESS_KEY_ID", "bench"), os.Setenv("AWS_SECRET_ACCESS_KEY", "bench-secret"),
			os.Setenv("AWS_EC2_METADATA_DISABLED", "true"))
	}
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(p.dir))
	}
	p.cmd = exec.Command(program, "--quiet", "--access", "bench", "--secret", "bench-secret", "--port", ports[0],
		"--health", "/health", "posix", filepath.Join(p.dir, "data"))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = p.run(ctx, func() bool {
		resp, err := http.Get("http://" + ports[0] + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return p, "s3://berth?region=us-east-1&endpoint=" + url.QueryEscape("http://"+ports[0]), err
}
