package main

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/server"
)

// connected is the first line that dial writes.
const connected = "ok\n"

// dialTime is how long dial waits for a guest that has just been started.
const dialTime = 5 * time.Second

// dial connects to the guest's socket, with an epoch unless it is "", writes connected to out, and
// copies in both directions. It returns when either direction ends.
func dial(socket, epoch string, in io.Reader, out io.Writer) error {
	conn, err := dialGuest(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if epoch != "" {
		if err := sendEpoch(conn, epoch); err != nil {
			return err
		}
	}
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

// sendEpoch sends the epoch and waits for the guest to accept it.
func sendEpoch(conn net.Conn, epoch string) error {
	n, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, server.EpochLine(n)); err != nil {
		return err
	}
	answer := make([]byte, len(server.EpochAccepted))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != server.EpochAccepted {
		return errors.New("the guest refused the connection: another server has claimed the sandbox")
	}
	return nil
}

func dialGuest(socket string) (net.Conn, error) {
	for end := time.Now().Add(dialTime); ; time.Sleep(time.Millisecond) {
		// read before dialling: the guest may start to listen at any time
		fresh := empty(filepath.Dir(socket), filepath.Base(socket))
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
