package console

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
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
	Turns   []*turnView // the oldest first; the last is the response
	Earlier berth.ResponseID
	Live    bool // the response has not ended
	Form    formToken
	Next    nextForm
	Time    waterfall // of the chain
	Base    string    // URL of the API
	Drawer  string    // path of the list beside which the run is shown; "" on a page of its own
}

// Last returns the response of the page.
func (p responsePage) Last() *turnView { return p.Turns[len(p.Turns)-1] }

// Bar returns the summary of the chain.
func (p responsePage) Bar() runBar {
	b := summaryBar(p.Turns, title(p.Turns), p.Form)
	b.Earlier, b.Drawer, b.Codes = p.Earlier != "", p.Drawer, codesOf(p.Last(), p.Base)
	return b
}

// Steps returns the steps of the responses before the last.
func (p responsePage) Steps() []step { return stepsOf(p.Turns[:len(p.Turns)-1]) }

// LastSteps returns the steps of the last response.
func (p responsePage) LastSteps() []step { return stepsOf(p.Turns[len(p.Turns)-1:]) }

// NextForm returns the forms that continue the response.
func (p responsePage) NextForm() nextForm {
	n := p.Next
	if p.Drawer != "" {
		n.Back = "runs"
	}
	return n
}

// A head is the data of the line above the output of a response.
type head struct {
	*berth.Response
	Waits bool // a person may answer its calls
}

// State returns the state of the response, for a badge.
func (h head) State() string {
	if h.Status == berth.StatusCompleted && len(approvalsOf(h.Response)) > 0 && h.Waits {
		return "waiting"
	}
	return string(h.Status)
}

// show serves GET /console/responses/{response}.
func (p *responsePage) show(v *visit) error {
	if err := p.read(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "response", title(p.Turns), p)
}

// read reads the end of the chain of the visit's response.
func (p *responsePage) read(v *visit) error {
	turns, earlier, err := readTurns(v)
	if err != nil {
		return err
	}
	*p = responsePage{Turns: turns, Earlier: earlier, Form: v.formToken(), Time: newChainTime(turns),
		Base: baseURL(v)}
	p.Live = !p.Last().Status.Final()
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	p.Next = nextForm{Response: p.Last().Response, Form: p.Form, Models: models}
	p.Last().Time.Open = true
	return nil
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

// noTitle is the title of responses without a text of the user.
const noTitle = "Response"

// title returns the first line of the user, without marks of Markdown.
func title(turns []*turnView) string {
	for _, turn := range turns {
		for _, e := range turn.Input {
			if e.Role() != "user" {
				continue
			}
			if t := titleOf(e.Text()); t != "" {
				return t
			}
		}
	}
	return noTitle
}

// marks are the characters of Markdown that a title does not show: the heads of lines, and emphasis and code
// around words.
var marks = regexp.MustCompile("^(#{1,6}\\s+|[-*+]\\s+|>\\s*)+|\\*\\*|__|`")

// link is a link or a picture in Markdown, of which a title shows the text.
var link = regexp.MustCompile(`!?\[([^\[\]]*)\]\([^()]*\)`)

// titleOf returns the first line of a text in Markdown, without its marks. A text of code alone has the code's
// first line.
func titleOf(text string) string {
	const most = 80
	code := ""
	fenced := false
	for text := range strings.Lines(text) {
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			if code == "" {
				code = text
			}
			continue
		}
		if text = strings.TrimSpace(marks.ReplaceAllString(link.ReplaceAllString(text, "$1"), "")); text != "" {
			return clipped(text, most)
		}
	}
	return clipped(code, most)
}

// cancel serves POST /console/responses/{response}/cancel.
func (*responsePage) cancel(v *visit) error {
	id := url.PathEscape(v.r.PathValue("response"))
	if err := v.post("/v1/responses/"+id+"/cancel", struct{}{}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect("/console/responses/" + id)
}

// exportRun serves GET /console/responses/{response}/bundle: the chain with its container, as one file.
func exportRun(v *visit) error {
	id := v.r.PathValue("response")
	return passFile(v, pathTo("/v1/responses", id)+"/bundle", "application/x-tar", "attachment", short(id)+".tar")
}
