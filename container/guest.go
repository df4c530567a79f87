package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// Bounds of calls to a guest.
const (
	guestTimeout  = 30 * time.Second // its first answer
	answerTimeout = 30 * time.Second // every later answer that is not streamed
	dialTimeout   = 10 * time.Second
	pingTimeout   = time.Second
)

// withGuest is withLife for calls to the guest: the context also ends when the guest becomes
// silent.
func (s *instance) withGuest(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, done := s.withLife(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	contact := s.reachContext()
	stop := context.AfterFunc(contact, func() { cancel(context.Cause(contact)) })
	return ctx, func() {
		stop()
		cancel(nil)
		done()
	}
}

// workingDir returns the guest's path of berth.WorkDir. Without isolation it is a
// different directory, because the guest's root is the host's.
func (s *instance) workingDir(ctx context.Context) (string, error) {
	s.mu.Lock()
	dir := s.files.workDir
	s.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	info, err := s.client.Info(ctx)
	if err != nil {
		return "", err
	}
	dir = info.WorkDir
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || len(dir) > 1024 || !utf8.ValidString(dir) {
		return "", fmt.Errorf("guest reported an invalid working directory %.100q", dir)
	}
	s.mu.Lock()
	s.files.workDir = dir
	s.mu.Unlock()
	return dir, nil
}

// answers reports whether the guest answers a ping.
func (s *instance) answers(ctx context.Context) bool {
	answered, _ := s.ping(ctx, pingTimeout)
	return answered
}

// ping reports whether the guest answered. timedOut is true if the full time passed
// without an answer; both are false if the ping could not be sent.
func (s *instance) ping(ctx context.Context, most time.Duration) (answered, timedOut bool) {
	ctx, cancel := s.clock.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.client.Ping(ctx) }() // its write takes longer if the guest does not read
	select {
	case err := <-done:
		return err == nil, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	case <-ctx.Done():
		return false, errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
}

// setEnvironment sets the environment of commands. The sandbox is created without one.
func (s *instance) setEnvironment(ctx context.Context, env []string) error {
	if len(env) == 0 {
		return nil
	}
	ctx, cancel := s.clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return s.client.SetEnvironment(ctx, env)
}

// open opens a file for reading and sets its size.
func (s *instance) open(ctx context.Context, f *berth.ContainerFile) (io.ReadCloser, error) {
	dir, err := s.workingDir(ctx)
	if err != nil {
		return nil, err
	}
	content, size, err := s.client.ReadFile(ctx, dir, strings.TrimPrefix(f.Path, berth.WorkDir+"/"), "")
	if err != nil {
		return nil, err
	}
	if size < 0 {
		content.Close()
		return nil, errors.New("guest did not send the size of the file")
	}
	f.Bytes = size
	return content, nil
}

// stat updates the size of a file. It returns an error if the file does not exist.
func (s *instance) stat(ctx context.Context, f *berth.ContainerFile) error {
	body, err := s.open(ctx, f)
	if err != nil {
		return err
	}
	return body.Close()
}

// isAnswer reports whether an error of reading or writing a file is the guest's answer, and not
// a lost connection.
func isAnswer(err error) bool {
	_, transport := errors.AsType[*url.Error](err)
	return !transport
}

func (s *instance) newFile(path string, created, size int64, source string) *berth.ContainerFile {
	return &berth.ContainerFile{ID: berth.CFileID(berth.NewID(berth.PrefixContainerFile)), Object: "container.file",
		ContainerID: s.id, CreatedAt: created, Bytes: size, Path: path, Source: source}
}
