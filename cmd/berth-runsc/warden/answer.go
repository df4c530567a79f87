package warden

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os/exec"
	"slices"
	"time"
)

// A Request asks a warden for what the sandbox uses or, with arguments, to run runsc:
// process ids in runsc's files are those of this namespace.
type Request struct {
	Args []string `json:"args,omitempty"`
}

// A Reply says what came of a Request.
type Reply struct {
	Usage
	Failed bool   `json:"failed,omitempty"` // runsc did not succeed
	Output string `json:"output,omitempty"` // what it printed
}

const (
	maxRequest = 64 << 10
	maxOutput  = 8 << 10
	// askTime bounds how long a request may take to arrive.
	askTime = 10 * time.Second
)

// commands are those of runsc's that may be asked for.
var commands = []string{"pause", "resume", "checkpoint"}

// answer answers whoever connects: the socket's directory is the user's alone.
func answer(l net.Listener, w *watch) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			conn.SetReadDeadline(time.Now().Add(askTime))
			var r Request
			if err := json.NewDecoder(io.LimitReader(conn, maxRequest)).Decode(&r); err != nil {
				return
			}
			var reply Reply
			if len(r.Args) == 0 {
				reply.Usage = w.usage()
			} else {
				conn.SetReadDeadline(time.Time{})
				reply = control(conn, r.Args)
			}
			json.NewEncoder(conn).Encode(reply)
		}()
	}
}

// control runs runsc, unless who asked for it has gone.
func control(conn net.Conn, args []string) Reply {
	if !slices.ContainsFunc(args, func(a string) bool { return slices.Contains(commands, a) }) {
		return Reply{Failed: true, Output: "not a command that is run here"}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, conn)
		cancel()
	}()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = []string{}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		out.WriteString(err.Error())
	}
	return Reply{Failed: err != nil, Output: string(out.Bytes()[:min(out.Len(), maxOutput)])}
}
