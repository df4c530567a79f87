package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// maxTurns is the number of responses of a chain on one page.
const maxTurns = 20

// A turnView is a response on the page of its chain.
type turnView struct {
	*berth.Response
	Input  []*entry
	Output []*entry
	Time   waterfall // where its time went
}

// A responsePage is the page of a response: the end of its chain.
type responsePage struct {
	Turns     []*turnView // the oldest first; the last is the response
	Earlier   berth.ResponseID
	Container berth.ContainerID // the last one used; "" if none
	Live      bool              // the response has not ended
	Form      string
	Next      nextForm
}

// Last returns the response of the page.
func (p responsePage) Last() *turnView { return p.Turns[len(p.Turns)-1] }

// A head is the data of the line above the output of a response. Without Form it has no
// button.
type head struct {
	*berth.Response
	Form string
}

// show serves GET /console/responses/{response}.
func (p *responsePage) show(v *visit) error {
	turns, earlier, err := readTurns(v)
	if err != nil {
		return err
	}
	*p = responsePage{Turns: turns, Earlier: earlier, Container: containerOf(turns), Form: v.formToken()}
	p.Live = !p.Last().Status.Final()
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	p.Next = nextForm{p.Last().Response, p.Form, models}
	p.Last().Time.Open = true
	return v.show(http.StatusOK, "response", title(turns), p)
}

// showEarlier serves GET /console/responses/{response}/earlier: the part of the chain that ends with the
// response, which a page of later ones puts above them.
func (p *responsePage) showEarlier(v *visit) error {
	turns, earlier, err := readTurns(v)
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "earlier", "", responsePage{Turns: turns, Earlier: earlier})
}

// readTurns returns the end of the chain of the visit's response, the oldest first, and the response before
// it, which is "" at the start.
func readTurns(v *visit) (turns []*turnView, earlier berth.ResponseID, err error) {
	id := berth.ResponseID(v.r.PathValue("response"))
	for id != "" && len(turns) < maxTurns {
		turn, err := readTurn(v, id)
		if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusNotFound && len(turns) > 0 {
			id = "" // an earlier response was deleted
			break
		}
		if err != nil {
			return nil, "", err
		}
		turns = append(turns, turn)
		id = ""
		if turn.PreviousResponseID != nil {
			id = *turn.PreviousResponseID
		}
	}
	slices.Reverse(turns)
	var entries []*entry
	for _, turn := range turns {
		entries = slices.Concat(entries, turn.Input, turn.Output)
	}
	render(v.r.Context(), entries)
	return turns, id, addTimes(v, turns)
}

// readTurn returns a response with its input.
func readTurn(v *visit, id berth.ResponseID) (*turnView, error) {
	path := "/v1/responses/" + url.PathEscape(string(id))
	turn := turnView{Response: &berth.Response{}}
	if err := v.get(path, turn.Response); err != nil {
		return nil, err
	}
	var input list[berth.Item]
	if err := v.get(path+"/input_items?order=asc&limit=100", &input); err != nil {
		return nil, err
	}
	turn.Input, turn.Output = entriesOf(input.Data), entriesOf(turn.Response.Output)
	return &turn, nil
}

func entriesOf(items []berth.Item) []*entry {
	var entries []*entry
	for _, it := range items {
		entries = append(entries, &entry{Item: it})
	}
	return entries
}

// containerOf returns the container that the last shell call of a chain used.
func containerOf(turns []*turnView) (id berth.ContainerID) {
	for _, turn := range turns {
		for _, e := range turn.Output {
			var call struct {
				ContainerID berth.ContainerID       `json:"container_id"` // of a code interpreter's call
				Environment *berth.ShellEnvironment `json:"environment"`
			}
			if e.Decode(&call) != nil {
				continue
			}
			if call.Environment != nil && call.Environment.ContainerID != "" {
				id = call.Environment.ContainerID
			} else if call.ContainerID != "" {
				id = call.ContainerID
			}
		}
	}
	return id
}

// title returns the first line of the user.
func title(turns []*turnView) string {
	const most = 80
	for _, turn := range turns {
		for _, e := range turn.Input {
			if e.Role() != "user" {
				continue
			}
			for line := range strings.Lines(e.Text()) {
				line = strings.TrimSpace(line)
				if words := []rune(line); len(words) > most {
					return string(words[:most]) + "…"
				}
				if line != "" && !strings.HasPrefix(line, "```") {
					return line
				}
			}
		}
	}
	return "Response"
}

// cancel serves POST /console/responses/{response}/cancel.
func (*responsePage) cancel(v *visit) error {
	id := url.PathEscape(v.r.PathValue("response"))
	if err := v.post("/v1/responses/"+id+"/cancel", struct{}{}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect("/console/responses/" + id)
}
