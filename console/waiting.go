package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode"

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
		a.Text = visible(a.Text)
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

// A waitingCall is a call of a client that cannot ask its own user.
type waitingCall struct {
	ID        berth.ApprovalID `json:"id"`
	Status    string           `json:"status"`
	Tool      string           `json:"tool"`
	Title     string           `json:"title"`
	Arguments json.RawMessage  `json:"arguments"`
	Container string           `json:"container"`
	CreatedAt int64            `json:"created_at"`

	Form formToken `json:"-"`
}

// Text returns the arguments as a person reads them: a command or code first, then all of them.
func (c waitingCall) Text() string {
	var shown struct{ Command, Code string }
	var all map[string]json.RawMessage
	if json.Unmarshal(c.Arguments, &all) == nil && json.Unmarshal(c.Arguments, &shown) == nil {
		if text := cmp.Or(shown.Command, shown.Code); text != "" && len(all) == 1 {
			return visible(text)
		}
	}
	var b bytes.Buffer
	if json.Indent(&b, c.Arguments, "", "  ") != nil {
		return visible(string(c.Arguments))
	}
	return visible(b.String())
}

// visible returns a text whose invisible characters are shown as \u{…}. Some of them change the order in which a
// browser shows the others: a person would approve something else than what is read.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			fmt.Fprintf(&b, "\\u{%04X}", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// readCalls returns the calls of clients that wait for a person, the newest first.
func readCalls(v *visit) (waiting []waitingCall, err error) {
	var all list[waitingCall]
	if err := v.get("/v1/approvals?order=desc&limit=100", &all); refused(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, c := range all.Data {
		if c.Status == "pending" {
			c.Form = v.formToken()
			waiting = append(waiting, c)
		}
	}
	return waiting, nil
}

// countWaiting returns how many responses and calls of clients wait.
func countWaiting(v *visit) (int, error) {
	waiting, err := readWaiting(v)
	if err != nil {
		return 0, err
	}
	calls, err := readCalls(v)
	return len(waiting) + len(calls), err
}

// A waitingPage is the count of what waits, which pages ask for while they are open.
type waitingPage struct{}

// show serves GET /console/waiting: a number as text, which is empty for none.
func (waitingPage) show(v *visit) error {
	n := 0
	if !v.admin() {
		var err error
		if n, err = countWaiting(v); err != nil {
			return err
		}
	}
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.w.WriteHeader(http.StatusOK)
	if n > 0 {
		_, _ = v.w.Write([]byte(strconv.Itoa(n))) // fails if the browser is gone
	}
	return nil
}

// answer serves POST /console/approvals/{approval}: it approves or denies a call.
func (waitingPage) answer(v *visit) error {
	answer := v.form.fields.Get("all")
	if answer != "approve" && answer != "deny" {
		return &failure{Status: http.StatusBadRequest, Message: "The form has no answer. Go back and approve or deny."}
	}
	body := map[string]any{"approve": answer == "approve"}
	if reason := strings.TrimSpace(v.form.fields.Get("reason")); reason != "" && answer == "deny" {
		body["reason"] = reason
	}
	if err := v.post("/v1/approvals/"+url.PathEscape(v.r.PathValue("approval")), body, &struct{}{}); err != nil {
		return err
	}
	return v.redirect(Path)
}
