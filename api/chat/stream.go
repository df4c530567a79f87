package chat

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// stream answers with the chunks of a completion. It sends the header with the first chunk
// or keep-alive comment, so that an earlier failure can set the HTTP status. A later failure
// is sent as an event.
func (d *Door) stream(x *exchange.Exchange, r *http.Request, c berth.Caller, a *answer, gone func()) error {
	o := a.request.StreamOptions
	out := &chunkWriter{answer: a, requestID: x.RequestID(), withUsage: o != nil && o.IncludeUsage,
		EventWriter: x.Events(o == nil || o.IncludeObfuscation == nil || *o.IncludeObfuscation)}
	quiet := sync.OnceFunc(out.KeepAlive(gone))
	defer quiet()
	err := d.send(r, c, a, out)
	quiet()
	switch {
	case errors.Is(err, errGone):
		return nil
	case err == nil:
		out.end()
		return nil
	}
	err = a.fail(x.Header(), err)
	if x.Started() {
		out.fail(err)
	} else {
		out.Unset()
	}
	return err
}

// errGone means that the client is gone or does not read.
var errGone = errors.New("the client is gone")

// send sends all chunks of the choices. It saves the completion before it sends the last
// finish reason.
func (d *Door) send(r *http.Request, c berth.Caller, a *answer, out *chunkWriter) error {
	unfinished := len(a.choices)
	for chunks, err := range d.chosen(r.Context(), c.Project, a.choices) {
		if slices.ContainsFunc(chunks, func(c chunkChoice) bool { return c.FinishReason != nil }) {
			if unfinished--; unfinished == 0 { // save, then send
				a.settle()
				err = d.save(r.Context(), a, out.requestID)
			}
		}
		if err != nil {
			return err
		}
		if out.chunks(chunks) != nil {
			return errGone
		}
	}
	return nil
}

// A chunkWriter sends the chunks of a completion to one client.
type chunkWriter struct {
	*exchange.EventWriter
	*answer
	requestID string
	withUsage bool
}

// chunks sends each choice as a chunk of its own.
func (o *chunkWriter) chunks(choices []chunkChoice) error {
	chunks := make([]any, len(choices))
	for i := range choices {
		chunk := o.chunk()
		chunk.Choices = choices[i : i+1]
		if o.withUsage {
			chunk.Usage = nullJSON
		}
		if o.Obfuscates() {
			chunk.Obfuscation = choices[i].Delta.padding()
		}
		chunks[i] = chunk
	}
	return o.JSON("", chunks...)
}

func (o *chunkWriter) chunk() completionChunk {
	return completionChunk{ID: o.head.ID, Object: "chat.completion.chunk", Created: o.head.Created, Model: o.head.Model,
		ServiceTier: o.head.ServiceTier, SystemFingerprint: o.head.SystemFingerprint, Choices: []chunkChoice{}}
}

// end sends the chunks that follow all choices. It stops if the client is gone.
func (o *chunkWriter) end() {
	if o.head.Moderation != nil {
		chunk := o.chunk()
		if chunk.Moderation = o.head.Moderation; o.withUsage {
			chunk.Usage = nullJSON
		}
		if o.JSON("", chunk) != nil {
			return
		}
	}
	if o.withUsage {
		chunk := o.chunk()
		chunk.Usage, _ = json.Marshal(o.usage()) // numbers always marshal
		if o.JSON("", chunk) != nil {
			return
		}
	}
	o.Done("")
}

// fail sends an error as the last event.
func (o *chunkWriter) fail(err error) {
	_, e := exchange.Describe(err, o.requestID)
	_ = o.JSON("", struct {
		Error exchange.Error `json:"error"`
	}{e})
}
