package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/tool"
)

// killTime bounds the time to end the command of a server.
const killTime = 10 * time.Second

// maxStderr is how much of the end of a command's stderr an error shows, in bytes.
const maxStderr = 2 << 10

// Containers starts the commands of servers.
type Containers interface {
	// Process starts a process in a container for the caller's response. It first ends the
	// processes with the same tag, which an earlier process of this server has left. The
	// container does not expire while the process runs.
	Process(ctx context.Context, caller berth.Caller, id berth.ContainerID, req guest.ProcessRequest) (guest.Command,
		error)
}

// connectCommand starts the server's command and opens a session on its stdin and stdout.
// end ends the command.
func (s *source) connectCommand(life context.Context, in *intake) (client *sdk.ClientSession, end func(), err error) {
	command, environment := s.tool.Berth.Command, s.tool.Berth.Environment
	p, err := s.opts.Containers.Process(life, s.caller, environment.ContainerID, guest.ProcessRequest{
		Cmd: command[0], Args: command[1:], In: true, Tag: "mcp_" + string(s.caller.Response) + "_" + s.Label()})
	if err != nil {
		return nil, nil, fmt.Errorf("start command: %w", err)
	}
	reader, writer := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		writer.CloseWithError(pipeOutput(life, p, writer, in))
	}()
	end = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(life), killTime)
		defer cancel()
		in.fault.set(func(f *connectionError) { f.ending = true })
		reader.Close() // output that is not read must not hold the process's end
		_ = p.Kill(ctx)
		select {
		case <-read:
		case <-ctx.Done():
		}
	}
	client, err = initialize(life, &sdk.IOTransport{Reader: reader, Writer: &input{ctx: life, process: p},
		MaxLineLength: maxMessage})
	return client, end, err
}

// pipeOutput copies the messages on the process's stdout until it ends. It records how it
// ended, unless this server has ended it.
func pipeOutput(ctx context.Context, p guest.Command, stdout io.Writer, in *intake) error {
	var stderr []byte
	f := in.fault
	lines := messages{ctx: ctx, to: stdout, intake: in, omitted: f.omit}
	for ev, err := range p.Events() {
		if err != nil {
			return err
		}
		if stderr = append(stderr, ev.Stderr...); len(stderr) > maxStderr {
			stderr = stderr[len(stderr)-maxStderr:]
		}
		if ev.Ended {
			words := strings.TrimSpace(ev.Status + ". " + strings.ToValidUTF8(string(stderr), ""))
			f.set(func(f *connectionError) {
				if !f.ending {
					f.exited = tool.Shorten(words, maxStderr)
				}
			})
			return io.EOF
		}
		if err := lines.write(ev.Stdout); err != nil {
			f.set(func(f *connectionError) { f.err = err })
			return err
		}
	}
	return io.ErrUnexpectedEOF
}

// A messages passes on the lines of an output that are JSON-RPC messages, and drops the
// others: many servers log to stdout, and the SDK ends a session at the first such line.
type messages struct {
	ctx     context.Context
	intake  *intake
	to      io.Writer // its errors are ignored: after the session ended there is no reader
	omitted func(name, reason string)
	line    []byte // the start of a line
}

// write returns errTooLarge once a line has more than maxMessage bytes, and the error of the intake.
func (m *messages) write(b []byte) error {
	for {
		i := bytes.IndexByte(b, '\n')
		end := i + 1
		if i < 0 {
			end = len(b)
		}
		if len(m.line)+end > maxMessage {
			return errTooLarge
		}
		if err := m.intake.receive(m.ctx, end); err != nil {
			return err
		}
		if m.line = append(m.line, b[:end]...); i < 0 {
			return nil
		}
		if err := m.intake.decode(m.ctx, m.line); err != nil {
			return err
		}
		if message, err := jsonrpc.DecodeMessage(m.line); err == nil {
			// A command may not read the answers, which wait for each other.
			if asks, ok := message.(*jsonrpc.Request); ok && asks.IsCall() {
				if err := m.intake.ask(); err != nil {
					return err
				}
			}
			_, _ = m.to.Write(append(bytes.TrimRight(sift(m.line, m.omitted), "\n"), '\n'))
		}
		m.line, b = nil, b[end:]
	}
}

// An input writes to the stdin of a process.
type input struct {
	ctx     context.Context
	process guest.Command
}

func (i *input) Write(b []byte) (int, error) {
	if err := i.process.Write(i.ctx, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (i *input) Close() error { return nil }
