package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/sse"
)

func newMCP() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Give an MCP client that starts programs the tools of the server",
		Long: `Serve the Model Context Protocol on standard input and output, for clients that start a program.
The messages go to the server's /mcp, with the URL and the key of berth login.

  claude mcp add berth -- berth mcp
  codex mcp add berth -- berth mcp --container work
  berth mcp --network pypi.org,files.pythonhosted.org

Without --container, each client has a container of its own, which ends with it.
Clients that connect to a URL need no program: https://HOST/mcp with the key as bearer token.`,
		Args: cobra.NoArgs,
	}
	connect := clientFlags(cmd)
	query := url.Values{}
	for _, f := range []struct{ flag, parameter, usage string }{
		{"container", "container", "name or id of the container; a new name creates one that stays"},
		{"template", "template", "template of a new container"},
		{"network", "network", "network of a new container: disabled, open, or hosts with commas between them"},
		{"memory", "memory_limit", "memory limit of a new container: 1g, 4g, 16g or 64g"},
	} {
		cmd.Flags().Func(f.flag, f.usage, func(value string) error {
			query.Set(f.parameter, value)
			return nil
		})
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := &mcpProxy{client: connect(), path: "/mcp", out: cmd.OutOrStdout(),
			running: map[string]context.CancelFunc{}}
		if len(query) > 0 {
			p.path += "?" + query.Encode()
		}
		if err := checkURL(p.client.base); err != nil {
			return err
		}
		return p.serve(cmd.Context(), cmd.InOrStdin())
	}
	return cmd
}

// An mcpProxy passes the messages of a client on standard input on to a server.
type mcpProxy struct {
	client *client
	path   string

	writing sync.Mutex
	out     io.Writer

	mu       sync.Mutex
	session  string // the server's id; empty without one
	version  string // of the protocol, as negotiated
	opening  []byte // the message that opened the session
	listens  context.CancelFunc
	running  map[string]context.CancelFunc // requests by their ids
	requests sync.WaitGroup
}

// An mcpMessage is what the proxy reads of a message.
type mcpMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"` // of notifications/cancelled
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// mcpSessionless is the first version of the protocol without sessions.
const mcpSessionless = "2026-07-28"

// serve passes messages on until the input ends.
func (p *mcpProxy) serve(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.end()
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() {
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 {
				lines <- line
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			p.requests.Wait()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		case line := <-lines:
			p.accept(ctx, line)
		}
	}
}

// accept passes one message on. It waits for the answer to one that opens the session, and to notifications, so that
// they arrive in order.
func (p *mcpProxy) accept(ctx context.Context, line []byte) {
	var m mcpMessage
	if err := json.Unmarshal(line, &m); err != nil {
		p.fail(nil, -32700, "The message is not JSON.")
		return
	}
	switch {
	case m.Method == "initialize":
		p.mu.Lock()
		p.opening = line
		p.mu.Unlock()
		p.exchange(ctx, m, line)
	case m.Method == "notifications/cancelled" && p.versionOf(m) >= mcpSessionless:
		p.mu.Lock()
		stop := p.running[string(m.Params.RequestID)]
		p.mu.Unlock()
		if stop != nil {
			stop() // the end of the request cancels it
		}
	case m.Method == "" || m.ID == nil: // an answer, or a notification
		p.exchange(ctx, m, line)
		if m.Method == "notifications/initialized" {
			p.listen(ctx)
		}
	default:
		p.start(ctx, m, line)
	}
}

// start passes a request on in the background.
func (p *mcpProxy) start(ctx context.Context, m mcpMessage, line []byte) {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	p.running[string(m.ID)] = cancel
	p.mu.Unlock()
	run := func() {
		defer cancel()
		p.exchange(ctx, m, line)
		p.mu.Lock()
		delete(p.running, string(m.ID))
		p.mu.Unlock()
	}
	if m.Method == "subscriptions/listen" { // it has no end
		go run()
		return
	}
	p.requests.Go(run)
}

func (p *mcpProxy) versionOf(m mcpMessage) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(m.Params.Meta.Version, p.version)
}

// exchange sends a message and writes the answers. If the server does not know the session any more, because it was
// started again, exchange opens another one.
func (p *mcpProxy) exchange(ctx context.Context, m mcpMessage, line []byte) {
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	resp, err := p.post(ctx, m, line)
	if err == nil && resp.StatusCode == http.StatusNotFound && session != "" && p.reopen(ctx, session) {
		resp.Body.Close()
		resp, err = p.post(ctx, m, line)
	}
	if err != nil {
		p.fail(m.ID, -32603, err.Error())
		return
	}
	defer resp.Body.Close()
	if m.Method == "initialize" && resp.StatusCode == http.StatusOK {
		p.mu.Lock()
		p.session = resp.Header.Get("Mcp-Session-Id")
		p.mu.Unlock()
	}
	p.answer(ctx, m, resp)
}

// answer writes the messages of a response.
func (p *mcpProxy) answer(ctx context.Context, m mcpMessage, resp *http.Response) {
	answered := m.ID == nil || m.Method == ""
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		text, err := io.ReadAll(resp.Body)
		switch {
		case answered:
		case err != nil:
			p.fail(m.ID, -32603, "The answer of the server is incomplete.")
		default:
			p.result(m, resp, text)
		}
		return
	}
	for data, err := range sse.NewReader(resp.Body, 0).Data() {
		if err != nil {
			break
		}
		if len(data) == 0 {
			continue // it only has an id
		}
		var a struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Result struct {
				Version string `json:"protocolVersion"`
			} `json:"result"`
		}
		if json.Unmarshal(data, &a) == nil && a.Method == "" && bytes.Equal(a.ID, m.ID) {
			answered = true
			if m.Method == "initialize" {
				p.mu.Lock()
				p.version = a.Result.Version
				p.mu.Unlock()
			}
		}
		p.write(data)
	}
	if !answered && ctx.Err() == nil {
		p.fail(m.ID, -32603,
			"The connection to the server was lost. A command that was started continues: use wait with its command_id.")
	}
}

// result writes an answer that is one message. The error of a request that the server has not read has no id.
func (p *mcpProxy) result(m mcpMessage, resp *http.Response, text []byte) {
	var a struct {
		ID    json.RawMessage `json:"id"`
		Error *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(text, &a); {
	case err == nil && bytes.Equal(a.ID, m.ID):
		p.write(text)
	case err == nil && a.Error != nil:
		p.fail(m.ID, a.Error.Code, a.Error.Message)
	default:
		p.fail(m.ID, -32603, "The server answered with status "+resp.Status+".")
	}
}

// post sends a message.
func (p *mcpProxy) post(ctx context.Context, m mcpMessage, line []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.client.base+p.path, bytes.NewReader(line))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if version := p.versionOf(m); version >= mcpSessionless && m.Method != "" {
		req.Header.Set("Mcp-Method", m.Method)
		if name := cmp.Or(m.Params.Name, m.Params.URI); name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	}
	return p.send(req, p.versionOf(m))
}

// send sends a request with the headers of the session.
func (p *mcpProxy) send(req *http.Request, version string) (*http.Response, error) {
	req.Header.Set("Accept", "application/json, text/event-stream")
	p.mu.Lock()
	if p.session != "" {
		req.Header.Set("Mcp-Session-Id", p.session)
	}
	p.mu.Unlock()
	if version != "" {
		req.Header.Set("Mcp-Protocol-Version", version)
	}
	if err := p.client.authorize(req); err != nil {
		return nil, err
	}
	resp, err := p.client.http.Do(req)
	if err != nil {
		return nil, p.client.unreachable(err)
	}
	return resp, nil
}

// reopen opens a session in place of one that the server does not know any more. It reports whether there is one.
func (p *mcpProxy) reopen(ctx context.Context, lost string) bool {
	p.mu.Lock()
	opening, now := p.opening, p.session
	if now == lost {
		p.session = ""
	}
	p.mu.Unlock()
	if now != lost {
		return now != "" // another request has opened it
	}
	for _, line := range [][]byte{opening, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)} {
		resp, err := p.post(ctx, mcpMessage{}, line)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return false
		}
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			p.mu.Lock()
			p.session = id
			p.mu.Unlock()
		}
	}
	p.listen(ctx)
	return true
}

// listen receives the messages of the session that belong to no request, until it ends.
func (p *mcpProxy) listen(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listens != nil {
		p.listens()
	}
	ctx, p.listens = context.WithCancel(ctx)
	go func() {
		for ctx.Err() == nil {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.client.base+p.path, http.NoBody)
			if err != nil {
				return
			}
			resp, err := p.send(req, p.versionOf(mcpMessage{}))
			if err != nil || resp.StatusCode != http.StatusOK {
				if err == nil {
					resp.Body.Close()
				}
				return // the next request opens another session
			}
			for data, err := range sse.NewReader(resp.Body, 0).Data() {
				if err != nil {
					break
				}
				if len(data) > 0 {
					p.write(data)
				}
			}
			resp.Body.Close()
		}
	}()
}

// end ends the session.
func (p *mcpProxy) end() {
	p.mu.Lock()
	session := p.session
	if p.listens != nil {
		p.listens()
	}
	p.mu.Unlock()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.client.base+p.path, http.NoBody)
	if err != nil {
		return
	}
	if resp, err := p.send(req, ""); err == nil {
		resp.Body.Close()
	}
}

// write writes a message as one line.
func (p *mcpProxy) write(message []byte) {
	var line bytes.Buffer
	if json.Compact(&line, message) != nil {
		return
	}
	line.WriteByte('\n')
	p.writing.Lock()
	defer p.writing.Unlock()
	_, _ = p.out.Write(line.Bytes()) // a client that is gone closes the input too
}

// fail writes the error of a request. Messages without an id have no answer.
func (p *mcpProxy) fail(id json.RawMessage, code int, message string) {
	if id == nil && code != -32700 {
		return
	}
	if id == nil {
		id = json.RawMessage("null")
	}
	text, err := json.Marshal(message)
	if err == nil {
		p.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, text))
	}
}
