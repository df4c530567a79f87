package console

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A runBar is the summary of a chain, which stays in view.
type runBar struct {
	ID        berth.ResponseID // of the last response
	Title     string
	Status    string // of the last response, for a badge
	Model     string
	CreatedAt int64 // of the last response
	Live      bool
	Step      string // the latest step of a live response
	Steps     int
	Took      int64 // of all responses that have ended, in milliseconds
	Tokens    int
	Cost      *berth.Cost
	Responses int
	Earlier   bool // there are earlier responses, which are not counted
	Container berth.ContainerID
	Form      formToken
	Drawer    string // path of the list beside which the run is shown; "" on a page of its own
	Codes     []codeView
	Tags      []chip // the metadata of the last response
}

// Path returns the path of the run's page.
func (b runBar) Path() string { return "/console/responses/" + url.PathEscape(string(b.ID)) }

// summaryBar returns the summary of the responses of a page, the oldest first.
func summaryBar(turns []*turnView, title string, form formToken) runBar {
	last := turns[len(turns)-1]
	b := runBar{ID: last.ID, Title: title, Status: string(last.Status), Model: last.Model, CreatedAt: last.CreatedAt,
		Live: !last.Status.Final(), Responses: len(turns), Container: containerOf(turns), Form: form}
	for _, name := range slices.Sorted(maps.Keys(last.Metadata)) {
		tag := name + ":" + last.Metadata[name]
		b.Tags = append(b.Tags, chip{Label: name + ": " + last.Metadata[name], Path: chainsPage{Tag: tag}.List()})
	}
	if len(approvalsOf(last.Response)) > 0 && last.Status == berth.StatusCompleted {
		b.Status = "waiting"
	}
	for _, turn := range turns {
		b.Tokens += turn.tokens()
		if c := cost(turn.Response); c != nil {
			if b.Cost == nil {
				b.Cost = &berth.Cost{Currency: c.Currency}
			}
			b.Cost.Value += c.Value
		}
		b.Took += turn.took()
	}
	if steps := stepsOf(turns[len(turns)-1:]); b.Live && len(steps) > 0 {
		b.Step, b.Steps = steps[len(steps)-1].Label, len(steps)
	}
	return b
}

// tokens returns the tokens of the response. While it runs, those are of its turns that have ended.
func (t *turnView) tokens() (sum int) {
	if t.Usage != nil {
		return t.Usage.TotalTokens
	}
	if t.Berth == nil {
		return 0
	}
	for _, timing := range t.Berth.Timings {
		if timing.Usage != nil {
			sum += timing.Usage.TotalTokens
		}
	}
	return sum
}

// took returns how long the response ran, in milliseconds; 0 while it runs.
func (t *turnView) took() int64 {
	if !t.Status.Final() {
		return 0
	}
	if t.Time.Took > 0 {
		return t.Time.Took
	}
	if t.CompletedAt == nil {
		return 0
	}
	return max(0, *t.CompletedAt-t.CreatedAt) * 1000
}

// maxCode is the number of bytes of a program that a page offers to copy.
const maxCode = 32 << 10

// codesOf returns programs that send the request of a response again.
func codesOf(turn *turnView, base string) []codeView {
	req := map[string]any{"model": turn.Model}
	var input []any
	for _, e := range turn.Input {
		var it map[string]any
		if json.Unmarshal(e.Raw(), &it) != nil {
			return nil
		}
		delete(it, "id")
		delete(it, "status")
		input = append(input, it)
	}
	req["input"] = input
	if text := turn.Input; len(text) == 1 && text[0].Role() == "user" {
		req["input"] = text[0].Text()
	}
	if len(turn.Tools) > 0 {
		req["tools"] = plainJSON(turn.Tools)
	}
	if text := textOf(turn.Instructions); text != "" && !strings.HasPrefix(text, "[") {
		req["instructions"] = text
	}
	if turn.PreviousResponseID != nil {
		req["previous_response_id"] = string(*turn.PreviousResponseID)
	}
	codes, err := codeOf(req, base)
	if err != nil || len(codes) == 0 || len(codes[0].Text) > maxCode {
		return nil
	}
	return codes
}

// plainJSON returns a value as decoded JSON; nil if it is none.
func plainJSON(value any) (plain any) {
	raw, err := json.Marshal(value)
	if err != nil || json.Unmarshal(raw, &plain) != nil {
		return nil
	}
	return plain
}

// newChainTime returns where the time of a chain went: a row for each response, one after the other, without the
// time between them.
func newChainTime(turns []*turnView) waterfall {
	if len(turns) < 2 {
		return waterfall{}
	}
	var bars []bar
	var at int64
	for _, turn := range turns {
		b := bar{Kind: "response", Name: titleOfTurn(turn), Link: "#head-" + string(turn.ID), Start: at,
			Took: turn.took()}
		if turn.Usage != nil {
			b.Tokens = count(turn.Usage.InputTokens) + " in, " + count(turn.Usage.OutputTokens) + " out"
		}
		if c := cost(turn.Response); c != nil {
			b.Cost = money(c)
		}
		if turn.Status == berth.StatusFailed {
			b.Error = "failed"
		}
		at += b.Took
		bars = append(bars, b)
	}
	w := newWaterfall("time-chain", bars, true)
	w.Name = "Where the chain's time went"
	return w
}

// titleOfTurn returns what the user said in a response.
func titleOfTurn(turn *turnView) string {
	for _, e := range turn.Input {
		if e.Role() == "user" {
			return titleOf(e.Text())
		}
	}
	return short(string(turn.ID))
}
