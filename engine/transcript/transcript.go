// Package transcript is what a model is shown of a response: what comes before it, its
// input, and its output so far.
//
// A Transcript is prepared once for a request. The check of the request, the count of
// its tokens and every turn show the model what that Transcript has.
package transcript

import (
	"context"
	"io"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// Files opens uploaded files, for messages that name them.
type Files interface {
	Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)
}

// Options are a Service's parts. Those without a default are needed.
type Options struct {
	Responses store.Responses
	Objects   store.Objects
	Files     Files
	Fetcher   Fetcher // of file_url; nil refuses it
	Tools     *tool.Registry
	Cache     int64 // bytes of chains and conversations that are cached; default 64 MiB

	// Key seals encrypted_content. The default is a random one.
	Key [32]byte
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
	return &Service{Options: opts, cache: newCache(opts.Cache), seals: newSealer(opts.Key)}
}

// A Transcript is the context of one response. It is for one goroutine.
type Transcript struct {
	Chain Chain
	Input []berth.Item // with references resolved and files fetched

	service *Service
	project berth.ProjectID
	prompt  []berth.Item // of the request's prompt, before everything else
	items   []berth.Item // of the chain and the input

	// What was read of items for the present turn, by their JSON.
	lowered     map[*byte]berth.Item
	checkpoints map[*byte]Checkpoint
}

// Prepare returns the transcript of a request that continues a chain. It checks what
// this server has sealed in the input, replaces references by their items and fetches
// files. Its errors are for the client.
func (s *Service) Prepare(ctx context.Context, p berth.ProjectID, chain Chain, prompt, input []berth.Item) (*Transcript, error) {
	if err := s.checkSeals(p, input); err != nil {
		return nil, err
	}
	input, err := s.resolve(ctx, p, input, chain.Items)
	if err != nil {
		return nil, err
	}
	return s.transcript(p, chain, prompt, input), nil
}

// Restore returns the transcript of a response that was prepared before, after its
// chain.
func (s *Service) Restore(rec *store.Response, chain Chain) *Transcript {
	return s.transcript(rec.Project, chain, rec.Request.PromptItems, rec.Input)
}

func (s *Service) transcript(p berth.ProjectID, chain Chain, prompt, input []berth.Item) *Transcript {
	t := &Transcript{Chain: chain, Input: input, service: s, project: p, prompt: prompt, items: slices.Concat(chain.Items, input)}
	t.Forget()
	return t
}

// Items returns the items of the chain and the input. The caller must not change them.
func (t *Transcript) Items() []berth.Item { return t.items }

// A View is what the model is shown in one turn.
type View struct {
	Items   []berth.Item // without the prompt's, compactions replaced by what they hold
	Lowered []berth.Item // the same as a provider takes them, after the prompt's
}

// View returns what the model is shown after a response has this output. Files that
// one turn needs are opened once, however often the turn is viewed; see Forget.
func (t *Transcript) View(ctx context.Context, output []berth.Item) (View, error) {
	items, err := t.unfold(slices.Concat(t.items, output))
	if err != nil {
		return View{}, err
	}
	lowered, err := t.lower(ctx, slices.Concat(t.prompt, items))
	return View{items, lowered}, err
}

// Check returns an error for the client if the model cannot be shown the prompt or the
// input, because a file does not exist, for example.
func (t *Transcript) Check(ctx context.Context) error {
	_, err := t.lower(ctx, slices.Concat(t.prompt, t.Input))
	return err
}

// Unread returns all items before any file is opened: a rough View.
func (t *Transcript) Unread() []berth.Item { return slices.Concat(t.prompt, t.items) }

// Forget drops what was read for the present turn.
func (t *Transcript) Forget() {
	t.lowered, t.checkpoints = map[*byte]berth.Item{}, map[*byte]Checkpoint{}
}

// CheckItems returns an error for the client about items that no model could be shown,
// and that would fail every response after them.
func (s *Service) CheckItems(ctx context.Context, p berth.ProjectID, items []berth.Item) error {
	return s.transcript(p, Chain{}, nil, items).Check(ctx)
}
