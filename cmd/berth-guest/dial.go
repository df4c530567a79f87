package main

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// connected is the first line that dial writes.
const connected = "ok\n"

// dialTime is how long dial waits for a guest that has just been started.
const dialTime = 5 * time.Second

// dial connects to the guest's socket, writes connected to out, and copies in both directions. It
// returns when either direction ends.
func dial(socket string, in io.Reader, out io.Writer) error {
	conn, err := dialGuest(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(out, connected); err != nil {
		return err
	}
	end := make(chan error, 2)
	go func() {
		_, err := io.Copy(conn, in)
		end <- err
	}()
	go func() {
		_, err := io.Copy(out, conn)
		end <- err
	}()
	return <-end
}

func dialGuest(socket string) (net.Conn, error) {
	for end := time.Now().Add(dialTime); ; time.Sleep(time.Millisecond) {
		fresh := empty(filepath.Dir(socket), filepath.Base(socket)) // read before dialling: the guest may start to listen at any time
		conn, err := net.Dial("unix", socket)
		early := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
		if !early || !fresh || time.Now().After(end) {
			return conn, err
		}
	}
}

// empty reports whether a directory contains nothing but one file. A guest that listens has created its
// log there.
func empty(dir, but string) bool {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != but {
			return false
		}
	}
	return err == nil
}
