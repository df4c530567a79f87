package messages

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/request"
)

// A translation is a message request as a request for a response, with the places of its parts.
type translation struct {
	request    *berth.ResponseRequest
	itemPlaces []string          // by the index of the item
	toolPlaces []string          // by the index of the tool
	files      map[string]string // of history
}

// errNoThread is the answer to a client that continues a conversation without sending it. This server stores no
// messages, as if the conversation were lost. The vendor's clients send the whole conversation after this error.
var errNoThread = &berth.Error{Code: berth.CodeNotFound, Wire: threadNotFound, Param: "thread",
	Message: "This server does not store messages. Send all messages of the conversation."}

// threadNotFound is the code of errNoThread.
const threadNotFound = "thread_not_found"

// translate returns the request for the response of the message.
func (m *messageRequest) translate(items *request.Rules) (*translation, error) {
	if m.Thread.Type == "continue" {
		return nil, errNoThread
	}
	store := false
	r := &berth.ResponseRequest{Model: m.Model, MaxOutputTokens: m.MaxTokens, Temperature: m.Temperature,
		TopP: m.TopP, Store: &store, User: m.Metadata.UserID, Sampling: berth.Sampling{Stop: m.StopSequences}}
	t := &translation{request: r}
	if system := m.System.text("\n\n"); system != "" {
		r.Instructions = &system
	}
	if m.ServiceTier == "standard_only" {
		r.ServiceTier = "default"
	}
	m.setThinking(r)
	if err := m.setFormat(r); err != nil {
		return nil, err
	}
	if err := m.checkDeferred(); err != nil {
		return nil, err
	}
	if m.ContextManagement != nil {
		m.applied = append(m.applied, m.edit()...)
		r.ContextManagement = m.compaction()
	}
	h := &history{items: []berth.Item{}, files: map[string]string{}, functions: m.functions(),
		referenced: map[string]bool{}, programs: map[string]string{}}
	if err := h.read(m.Messages); err != nil {
		return nil, err
	}
	for i, it := range h.items {
		var err error
		if h.items[i], err = items.Normalize(it); err != nil {
			return nil, err
		}
	}
	r.Input, t.itemPlaces, t.files = h.items, h.places, h.files
	return t, t.setTools(m, h)
}

func (t *translation) setTools(m *messageRequest, h *history) error {
	r := t.request
	offered, err := m.offered(h)
	if err != nil {
		return err
	}
	r.Tools, t.toolPlaces = offered.tools, offered.places
	chosen, err := m.choose(len(r.Tools))
	if err != nil {
		return err
	}
	r.ToolChoice = chosen.raw
	if chosen.sequential {
		r.ParallelToolCalls = new(bool)
	}
	return nil
}

// efforts are the efforts that budgets of thinking amount to.
var efforts = []struct {
	most   int // tokens
	effort string
}{{4 << 10, "low"}, {16 << 10, "medium"}, {1 << 40, "high"}}

// setThinking asks for thoughts if the client can show them.
func (m *messageRequest) setThinking(r *berth.ResponseRequest) {
	effort := m.OutputConfig.Effort
	if m.thinks() {
		if m.Thinking.Type == "enabled" && effort == "" {
			for _, e := range efforts {
				if m.Thinking.BudgetTokens <= e.most {
					effort = e.effort
					break
				}
			}
		}
		summary := "auto"
		r.Reasoning = &berth.ReasoningConfig{Summary: &summary}
		r.Include = []string{"reasoning.encrypted_content"}
	}
	if effort == "" {
		return
	}
	if r.Reasoning == nil {
		r.Reasoning = &berth.ReasoningConfig{}
	}
	r.Reasoning.Effort = &effort
}

// setFormat sets the schema of the answer.
func (m *messageRequest) setFormat(r *berth.ResponseRequest) error {
	f, at := m.OutputConfig.Format, "output_config.format"
	if f == nil {
		f, at = m.OutputFormat, "output_format"
	}
	if f == nil {
		return nil
	}
	var schema map[string]any
	if err := json.Unmarshal(f.Schema, &schema); err != nil {
		return berth.Invalid(at+".schema", "Expected a JSON schema.")
	}
	if problem := berth.SchemaProblem(schema); problem != "" {
		return berth.Invalid(at+".schema", "%s", problem)
	}
	named := struct {
		Type   string          `json:"type"`
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	}{"json_schema", "answer", f.Schema, berth.StrictProblem(schema) == ""}
	raw, err := json.Marshal(named)
	r.Text = &berth.TextConfig{Format: raw}
	return err
}
