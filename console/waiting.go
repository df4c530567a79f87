package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/berth-run/berth"
)

// waitingRead is the number of latest responses among which those that wait for approval are found.
const waitingRead = "100"

// maxAsked is the number of responses of which the console remembers whether they ask for approval.
const maxAsked = 10_000

// An approval is a call that waits for an approval.
type approval struct {
	ID, Name, Server string
	Text             string // its commands, or its arguments in JSON
}

// Title returns which tool is called.
func (a approval) Title() string {
	if a.Server == "" || a.Server == "berth" {
		return a.Name
	}
	return a.Name + " of " + a.Server
}

// approvalsOf returns the calls of a response that ask for an approval.
func approvalsOf(r *berth.Response) (waiting []approval) {
	for _, it := range r.Output {
		var asked berth.ApprovalRequest
		if it.Type() != berth.ItemApprovalRequest || it.Decode(&asked) != nil {
			continue
		}
		a := approval{ID: asked.ID, Name: asked.Name, Server: asked.ServerLabel, Text: asked.Arguments}
		var shell struct{ Commands []string }
		if json.Unmarshal([]byte(asked.Arguments), &shell) == nil && len(shell.Commands) > 0 {
			a.Text = strings.Join(shell.Commands, "\n")
		}
		waiting = append(waiting, a)
	}
	return waiting
}

// An askedCache remembers of responses that have ended whether they ask for approval, which does not change. It
// has ids only. The zero value is ready to use. It is safe for concurrent use.
type askedCache struct {
	mu   sync.Mutex
	asks map[berth.ResponseID]bool
}

func (c *askedCache) get(id berth.ResponseID) (asks, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asks, known = c.asks[id]
	return asks, known
}

func (c *askedCache) set(id berth.ResponseID, asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asks == nil || len(c.asks) >= maxAsked {
		c.asks = map[berth.ResponseID]bool{}
	}
	c.asks[id] = asks
}

// readWaiting returns the latest responses that wait for approval: they ask for one, and no other continues them.
func readWaiting(v *visit) ([]*summary, error) {
	var latest list[*summary]
	if err := v.get("/v1/responses?order=desc&limit="+waitingRead, &latest); err != nil {
		return nil, err
	}
	return waitingOf(v, latest.Data)
}

// waitingOf returns those of the latest responses, the newest first, that wait for approval.
func waitingOf(v *visit, latest []*summary) (waiting []*summary, err error) {
	continued := map[berth.ResponseID]bool{}
	talked := map[berth.ConversationID]bool{} // conversations with a later response
	for _, s := range latest {
		later := s.Conversation != nil && talked[s.Conversation.ID]
		if s.PreviousResponseID != nil {
			continued[*s.PreviousResponseID] = true
		}
		if s.Conversation != nil {
			talked[s.Conversation.ID] = true
		}
		if later || continued[s.ID] || s.Status != berth.StatusCompleted {
			continue
		}
		asks, known := v.console.asked.get(s.ID)
		if !known {
			var r berth.Response
			err := v.get("/v1/responses/"+url.PathEscape(string(s.ID)), &r)
			if refused(err) {
				continue // deleted since
			}
			if err != nil {
				return nil, err
			}
			asks = len(approvalsOf(&r)) > 0
			v.console.asked.set(s.ID, asks)
		}
		if asks {
			waiting = append(waiting, s)
		}
	}
	return waiting, nil
}

// A waitingPage is the count of what waits, which pages ask for while they are open.
type waitingPage struct{}

// show serves GET /console/waiting: a number as text, which is empty for none.
func (waitingPage) show(v *visit) error {
	n := 0
	if !v.admin() {
		waiting, err := readWaiting(v)
		if err != nil {
			return err
		}
		n = len(waiting)
	}
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.w.WriteHeader(http.StatusOK)
	if n > 0 {
		_, _ = v.w.Write([]byte(strconv.Itoa(n))) // fails if the browser is gone
	}
	return nil
}
