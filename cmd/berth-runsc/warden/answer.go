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

// A Request requests the usage of the sandbox or, with arguments, a run of runsc. runsc must run here,
// because the process ids in its files belong to this namespace.
type Request struct {
	Args []string `json:"args,omitempty"`
}

// A Reply is the result of a Request.
type Reply struct {
	Usage
	Failed bool   `json:"failed,omitempty"` // runsc failed
	Output string `json:"output,omitempty"` // runsc's output
}

const (
	maxRequest = 64 << 10
	maxOutput  = 8 << 10
	// requestTime bounds how long a request may take to arrive.
	requestTime = 10 * time.Second
)

// commands are the commands of runsc that a Request may run.
var commands = []string{"pause", "resume", "checkpoint"}

// answer serves requests on l. It trusts all clients: only the user can access the socket's directory.
func answer(l net.Listener, w *watch) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			conn.SetReadDeadline(time.Now().Add(requestTime))
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

// control runs runsc. It kills runsc if the client disconnects.
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
