package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A conversationsPage is the list of conversations.
type conversationsPage struct {
	rows[*conversationRow]
}

// A conversationRow is a conversation of the list.
type conversationRow struct {
	berth.Conversation
	Title string `json:"-"` // the first words of its user, or its id
}

// show serves GET /console/conversations.
func (p *conversationsPage) show(v *visit) error {
	text := func(c *conversationRow) (string, error) {
		err := c.read(v)
		return strings.Join(append(slices.Collect(maps.Values(c.Metadata)), c.Title, string(c.ID)), "\n"), err
	}
	if err := p.find(v, "/v1/conversations", text); err != nil {
		return err
	}
	for _, c := range p.Rows {
		if c.Title != "" {
			continue
		}
		if err := c.read(v); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "conversations", "Conversations", p)
}

// read reads the title of the conversation.
func (c *conversationRow) read(v *visit) error {
	var first list[berth.Item]
	err := v.get(pathTo("/v1/conversations", c.ID)+"/items?order=asc&limit=3", &first)
	if err != nil && !refused(err) { // one that was deleted just now has no items
		return err
	}
	c.Title = conversationTitle(c.Conversation, entriesOf(first.Data))
	return nil
}

// conversationTitle returns the first words of the user of a conversation, or its id.
func conversationTitle(c berth.Conversation, entries []*entry) string {
	for _, e := range entries {
		if title := titleOf(e.Text()); e.Role() == "user" && title != "" {
			return title
		}
	}
	return cmp.Or(c.Metadata["title"], c.Metadata["topic"], short(string(c.ID)))
}

// maxItems is the number of items of a conversation that its page shows.
const maxItems = "50"

// A conversationPage is the page of a conversation.
type conversationPage struct {
	berth.Conversation
	Title  string
	Items  []*entry
	Next   string // path of the page of later items; "" at the end
	Form   formToken
	Models []string
	Model  string // that the form selects
}

// show serves GET /console/conversations/{conversation}: its items, the oldest first.
func (p *conversationPage) show(v *visit) error {
	from := pathTo("/v1/conversations", v.r.PathValue("conversation"))
	if err := v.get(from, &p.Conversation); err != nil {
		return err
	}
	query := url.Values{"order": {"asc"}, "limit": {maxItems}}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[berth.Item]
	if err := v.get(from+"/items?"+query.Encode(), &found); err != nil {
		return err
	}
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	p.Items, p.Form = entriesOf(found.Data), v.formToken()
	p.Models, p.Model = models, firstModel(models)
	render(v.r.Context(), p.Items)
	p.Title = conversationTitle(p.Conversation, p.Items)
	if found.HasMore {
		p.Next = v.r.URL.Path + "?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return v.show(http.StatusOK, "conversation", p.Title, p)
}

// change serves POST /console/conversations/{conversation}: it creates a response in the conversation, or deletes
// the conversation.
func (*conversationPage) change(v *visit) error {
	id := v.r.PathValue("conversation")
	switch v.form.fields.Get("do") {
	case "continue":
		text := strings.TrimSpace(v.text("text"))
		if text == "" {
			return &failure{Status: http.StatusBadRequest, Message: "The message is empty. Go back and write one."}
		}
		return createResponse(v, map[string]any{"model": v.form.fields.Get("model"), "conversation": id, "input": text,
			"background": true})
	case "delete":
		if err := v.delete(pathTo("/v1/conversations", id)); err != nil {
			return err
		}
		return v.redirect("/console/conversations")
	}
	return &failure{http.StatusBadRequest, "The form is incomplete."}
}
