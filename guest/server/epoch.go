package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Several servers may be able to reach a sandbox, but only one has it. With Options.Epochs each
// connection begins with a line that contains an epoch, which grows whenever another server takes the
// sandbox over. The guest answers EpochAccepted, unless it has seen a higher one; a higher one ends all
// connections with lower ones first.

// EpochAccepted is the guest's answer to an accepted epoch.
const EpochAccepted = "ok\n"

// epochTime bounds the wait for the line.
const epochTime = 10 * time.Second

// maxEpochLine is the length of the longest line, with its end.
const maxEpochLine = 32

// EpochLine returns the first line of a connection.
func EpochLine(epoch int64) string { return fmt.Sprintf("epoch %d\n", epoch) }

var errOldEpoch = errors.New("a server with a higher epoch has the sandbox")

// epochs admits connections by their epochs. It is safe for concurrent use, and its zero value has
// seen no epoch.
type epochs struct {
	mu     sync.Mutex
	last   int64
	admits map[net.Conn]bool // all with the epoch last
}

// admit reads the line of a connection and answers it. leave must follow, unless admit returns an
// error.
func (e *epochs) admit(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(epochTime)); err != nil {
		return err
	}
	epoch, err := readEpoch(conn)
	if err != nil {
		return err
	}
	if err := e.enter(conn, epoch); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, EpochAccepted); err != nil {
		e.leave(conn)
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// enter records a connection, and ends those with lower epochs.
func (e *epochs) enter(conn net.Conn, epoch int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch < e.last {
		return errOldEpoch
	}
	if epoch > e.last {
		for other := range e.admits {
			other.Close()
		}
		e.last, e.admits = epoch, nil
	}
	if e.admits == nil {
		e.admits = map[net.Conn]bool{}
	}
	e.admits[conn] = true
	return nil
}

func (e *epochs) leave(conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.admits, conn)
}

// readEpoch reads a line, and nothing after it.
func readEpoch(conn io.Reader) (int64, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < maxEpochLine; {
		if _, err := io.ReadFull(conn, b); err != nil {
			return 0, err
		}
		if b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		text, ok := strings.CutPrefix(string(line), "epoch ")
		epoch, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || epoch < 0 {
			break
		}
		return epoch, nil
	}
	return 0, fmt.Errorf("the connection does not begin with an epoch but with %q", line)
}
