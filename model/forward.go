package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/berth-run/berth"
)

// A Forwarder is a Provider whose upstream may have other endpoints of OpenAI's API than
// those that answer turns, such as embeddings.
type Forwarder interface {
	// Forward sends req.Forwarded to its endpoint with the model req.Model, and yields a
	// Body and a Finish with the usage. Errors are as those of Provider.Stream; an upstream
	// without the endpoint fails with NoEndpoint.
	Forward(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// A Forwarded is a request of an endpoint that Berth passes to an upstream.
type Forwarded struct {
	Endpoint string                     // below the base URL: "embeddings"
	Fields   map[string]json.RawMessage // of the request; the provider sets "model"

	// Files are sent with the fields as a multipart form, if there are any.
	Files []FormFile

	// Stream is set if Fields request a stream. The provider then yields a Body for each
	// event.
	Stream bool

	// Header is sent beside the upstream's own. A provider of OpenAI's API ignores it.
	Header map[string][]string
}

// A FormFile is a file of a multipart form.
type FormFile struct {
	Field     string // of the form: "image[]"
	Name      string // of the file
	MediaType string
	Content   []byte
}

// A Body is the whole answer to a Forwarded, or an event of its stream, in JSON.
type Body struct {
	JSON  []byte
	Usage berth.Usage // as far as the upstream has reported it
}

func (Body) delta() {}

// size returns the bytes of the request's text.
func (f *Forwarded) size() (bytes int) {
	for _, v := range f.Fields {
		bytes += len(v)
	}
	return bytes
}

// Tokens returns a quick estimate of the input's tokens, at four bytes a token.
func (f *Forwarded) Tokens() int { return f.size() / 4 }

// Forward sends a request with a Forwarded to a provider.
func Forward(ctx context.Context, p Provider, req *Request) iter.Seq2[Delta, error] {
	if f, ok := p.(Forwarder); ok {
		return f.Forward(ctx, req)
	}
	return func(yield func(Delta, error) bool) { yield(nil, NoEndpoint(req.Forwarded.Endpoint, req.Model)) }
}

// NoEndpoint returns the error for a model whose upstream does not have an endpoint.
func NoEndpoint(endpoint, model string) error {
	return &berth.Error{Code: berth.CodeNotFound, Wire: "model_not_supported", Param: "model", Message: fmt.Sprintf(
		"The model `%s` is not supported in the v1/%s endpoint: its upstream does not offer it. Choose a model whose upstream does.",
		model, endpoint)}
}

// EndpointMessages is the endpoint of Anthropic's Messages API.
const EndpointMessages = "messages"

// An EndpointOwner is a Forwarder that knows which endpoints its upstream has.
type EndpointOwner interface {
	HasEndpoint(endpoint string) bool
}

// HasEndpoint reports whether the upstream of a provider is known to have an endpoint.
func HasEndpoint(p Provider, endpoint string) bool {
	o, ok := p.(EndpointOwner)
	return ok && o.HasEndpoint(endpoint)
}
