// Package sftp serves the files of a container to a client of SFTP. It runs as the user whose files it serves and
// grants no rights of its own: the client could run any other program in its place.
package sftp

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// stdio is the standard streams as a connection.
type stdio struct {
	io.Reader
	io.Writer
}

// Close ends the process's output, so that the client sees the end.
func (stdio) Close() error { return os.Stdout.Close() }

// Serve serves a client on the standard streams until it leaves. Relative paths begin in the working directory.
func Serve() error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("serve SFTP: %w", err)
	}
	s, err := sftp.NewServer(stdio{os.Stdin, os.Stdout}, sftp.WithServerWorkingDirectory(dir))
	if err != nil {
		return fmt.Errorf("serve SFTP: %w", err)
	}
	if err := s.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve SFTP: %w", err)
	}
	return nil
}
