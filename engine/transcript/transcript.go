// Package transcript assembles the model's input for a response: the history, the response's input, and its output so
// far.
//
// A Transcript is prepared once for a request. The check of the request, the count of
// its tokens and every turn show the model what that Transcript has.
package transcript

import (
	"context"
	"crypto/cipher"
	"io"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// Files opens uploaded files for messages that refer to them by id.
type Files interface {
	Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)
}

// Options are a Service's parts. Those without a default are required.
type Options struct {
	Responses store.Responses
	Objects   store.Objects
	Files     Files
	Fetcher   Fetcher // of file_url; nil refuses file_url
	Tools     *tool.Registry
	Cache     int64 // bytes of cached chains and conversations; default 64 MiB

	// Seal seals encrypted_content. The default has a random key.
	Seal cipher.AEAD
}

// A Service makes transcripts. It is safe for concurrent use.
type Service struct {
	Options
	cache *cache
	seals sealer
	sizes sizes
}

// New returns a Service.
func New(opts Options) *Service {
	if opts.Cache == 0 {
		opts.Cache = defaultCache
	}
	return &Service{Options: opts, cache: newCache(opts.Cache), seals: newSealer(opts.Seal)}
}

// A Transcript is the context of one response. It is for one goroutine.
type Transcript struct {
	Chain Chain
	Input []berth.Item // with references resolved and files fetched

	// Native reports whether the upstream has the tool of a function itself. Calls of such
	// tools are not lowered. nil means that it has none.
	Native func(function string) bool

	service *Service
	project berth.ProjectID
	prompt  []berth.Item // of the request's prompt, before all others
	items   []berth.Item // of the chain and the input

	// Results of this turn, by the address of an item's JSON.
	lowered     map[*byte]berth.Item
	checkpoints map[*byte]Checkpoint
}

// Prepare returns the transcript of a request that continues a chain. It checks sealed
// content in the input, replaces references by their items and fetches files. Errors are
// for the client.
func (s *Service) Prepare(ctx context.Context, p berth.ProjectID, chain Chain, prompt, input []berth.Item) (*Transcript,
	error) {
	if err := s.checkSeals(p, input); err != nil {
		return nil, err
	}
	input, err := s.resolve(ctx, p, input, chain.Items)
	if err != nil {
		return nil, err
	}
	return s.transcript(p, chain, prompt, withoutRepeats(s.Tools, chain.Items, input)), nil
}

// Restore returns the transcript of a stored response, whose input was prepared before.
func (s *Service) Restore(rec *store.Response, chain Chain) *Transcript {
	return s.transcript(rec.Project, chain, rec.Request.PromptItems, rec.Input)
}

func (s *Service) transcript(p berth.ProjectID, chain Chain, prompt, input []berth.Item) *Transcript {
	t := &Transcript{Chain: chain, Input: input, service: s, project: p, prompt: prompt,
		items: slices.Concat(chain.Items, input)}
	t.Forget()
	return t
}

// Items returns the items of the chain and the input. The caller must not change them.
func (t *Transcript) Items() []berth.Item { return t.items }

// A View is the context that the model sees in one turn.
type View struct {
	Items   []berth.Item // without those of the prompt; compactions are unfolded
	Lowered []berth.Item // the prompt's items and Items, in the form of a provider's request
}

// View returns the context of a response with this output. It opens each file once in a
// turn; see Forget.
func (t *Transcript) View(ctx context.Context, output []berth.Item) (View, error) {
	items, err := t.unfold(slices.Concat(t.items, output))
	if err != nil {
		return View{}, err
	}
	lowered, err := t.lower(ctx, slices.Concat(t.prompt, items))
	return View{items, lowered}, err
}

// Check returns an error for the client if the prompt or the input cannot be shown to a
// model, for example because a file does not exist.
func (t *Transcript) Check(ctx context.Context) error {
	_, err := t.lower(ctx, slices.Concat(t.prompt, t.Input))
	return err
}

// Unread returns all items without opening files, for estimates.
func (t *Transcript) Unread() []berth.Item { return slices.Concat(t.prompt, t.items) }

// Forget drops the content that was read for this turn.
func (t *Transcript) Forget() {
	t.lowered, t.checkpoints = map[*byte]berth.Item{}, map[*byte]Checkpoint{}
}

// CheckItems returns an error for the client if items cannot be shown to a model. Such
// items would fail every response after them.
func (s *Service) CheckItems(ctx context.Context, p berth.ProjectID, items []berth.Item) error {
	return s.transcript(p, Chain{}, nil, items).Check(ctx)
}
