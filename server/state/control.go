package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/store/sqlite"
)

// ControlFile is the socket in the state directory with which commands ask the server that runs for what only it can
// do. A request and its answer are a line each; the answer is empty, or an error.
const ControlFile = "control.sock"

// RotateRequest asks a server to rotate the seal key.
const RotateRequest = "rotate-seal"

// ListenControl listens on the socket. Its path may be longer than that of a socket can be.
func ListenControl(state string) (net.Listener, error) {
	dir, err := os.Open(state)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := os.Remove(filepath.Join(state, ControlFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), ControlFile))
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the path is no longer valid then
	return l, os.Chmod(filepath.Join(state, ControlFile), 0o600)
}

// RotateSealKey replaces the key of a state directory. A server that uses the directory does it while it
// serves. It reports whether one did.
func RotateSealKey(ctx context.Context, state string, c *config.Config, log *slog.Logger) (running bool, err error) {
	if !HasDatabase(state) {
		return false, fmt.Errorf("%s is not a state directory: it has no berth.db", state)
	}
	unlock, locked := Lock(state)
	if locked != nil {
		return true, askServer(ctx, state, RotateRequest, locked)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return false, rotateStopped(ctx, state, c, log, nil)
}

// rotateStopped rotates the key of a state directory that no server uses.
func rotateStopped(ctx context.Context, state string, c *config.Config, log *slog.Logger,
	after func(string) error) error {
	lock, err := LockSealKey(ctx, state)
	if err != nil {
		return err
	}
	defer lock.Close()
	db, err := OpenDatabase(ctx, state, Use{Options: sqlite.Options{Log: log}, URL: c.Store.URL, Serve: true,
		Lock: lock})
	if err != nil {
		return err
	}
	defer db.Close()
	keys, err := ReadSealKeys(state)
	if err != nil {
		return err
	}
	r := &KeyRotation{State: state, Database: db, Lock: lock, Keys: keys.Keychain(), Audit: auditor(state)}
	return r.Run(ctx, after)
}

// askServer sends a request to the server that runs. locked says why the directory is locked.
func askServer(ctx context.Context, state, request string, locked error) error {
	dir, err := os.Open(state)
	if err != nil {
		return err
	}
	defer dir.Close()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), ControlFile))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w, and it takes no requests: it is starting or stopping, or has an earlier version", locked)
	}
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := fmt.Fprintln(c, request); err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the server ended before it answered; its next start ends what it began: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer != "" {
		return errors.New(answer)
	}
	return nil
}
