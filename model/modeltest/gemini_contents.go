package modeltest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// geminiContents decodes a conversation and checks its order.
type geminiContents struct {
	*check
	model string

	waiting []geminiCall // calls whose responses must come next, in order
}

type geminiTurn struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

type geminiPart struct {
	Text             *string         `json:"text"`
	InlineData       *geminiBlob     `json:"inlineData"`
	FileData         *geminiFile     `json:"fileData"`
	FunctionCall     *geminiCall     `json:"functionCall"`
	FunctionResponse *geminiResponse `json:"functionResponse"`
	Thought          bool            `json:"thought"`
	ThoughtSignature string          `json:"thoughtSignature"`
}

type geminiBlob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type geminiFile struct {
	MIMEType string `json:"mimeType"`
	FileURI  string `json:"fileUri"`
}

type geminiCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiResponse struct {
	ID       string                     `json:"id"`
	Name     string                     `json:"name"`
	Response map[string]json.RawMessage `json:"response"`
	Parts    []struct {
		InlineData *geminiBlob `json:"inlineData"`
	} `json:"parts"`
}

func (g *geminiContents) read(raw []json.RawMessage, got *Request) {
	g.want(len(raw) > 0, "GenerateContentRequest.contents: contents is not specified")
	var turns []geminiTurn
	var parts [][]geminiPart
	current := 0 // where the turn in progress starts
	for i, one := range raw {
		var t geminiTurn
		if !g.strictly(one, "contents", &t) {
			return
		}
		g.want(len(t.Parts) > 0, "GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.", i)
		g.want(contains(t.Role, "user", "model"), "Please use a valid role: user, model.")
		g.want(i > 0 || t.Role == "user", "Please ensure that the first content is the user's")
		g.want(i == 0 || t.Role == "user" || turns[i-1].Role == "user",
			"Please ensure that multiturn requests alternate between user and model.")
		var list []geminiPart
		for _, p := range t.Parts {
			list = append(list, g.part(i, &t, p))
		}
		if g.refusal != nil {
			return
		}
		if t.Role == "user" && list[0].FunctionResponse == nil {
			current = i
		}
		turns, parts = append(turns, t), append(parts, list)
	}
	for i, t := range turns {
		if t.Role == "model" {
			g.assistant(i, parts[i], i > current, got)
		} else {
			g.user(i, parts[i], got)
		}
	}
	g.want(len(g.waiting) == 0,
		"Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
	g.want(len(turns) > 0 && turns[len(turns)-1].Role == "user", "Please ensure that the last content is the user's")
}

// part checks that a part has one datum, of a kind allowed for its role.
func (g *geminiContents) part(i int, t *geminiTurn, raw json.RawMessage) (p geminiPart) {
	if !g.strictly(raw, "contents.parts", &p) {
		return p
	}
	data := 0
	for _, has := range []bool{p.Text != nil, p.InlineData != nil, p.FileData != nil, p.FunctionCall != nil,
		p.FunctionResponse != nil} {
		if has {
			data++
		}
	}
	g.want(data == 1, "contents[%d].parts: required oneof field 'data' must have one initialized field", i)
	g.want(p.Text == nil || *p.Text != "" || p.ThoughtSignature != "",
		"Unable to submit request because it must have a text parameter.")
	g.want(t.Role == "model" || p.FunctionCall == nil && !p.Thought && p.ThoughtSignature == "",
		"contents[%d]: a function call or thought of the user's", i)
	g.want(t.Role == "user" || p.FunctionResponse == nil && p.InlineData == nil && p.FileData == nil,
		"contents[%d]: a function response or media of the model's", i)
	if p.InlineData != nil {
		g.blob(i, p.InlineData)
	}
	if p.FileData != nil {
		g.want(strings.HasPrefix(p.FileData.FileURI, "https://"), "Invalid or unsupported file uri: %s",
			p.FileData.FileURI)
	}
	return p
}

func (g *geminiContents) blob(i int, b *geminiBlob) {
	_, err := base64.StdEncoding.DecodeString(b.Data)
	g.want(strings.Contains(b.MIMEType, "/") && err == nil && b.Data != "",
		"contents[%d].parts.inline_data: Base64 decoding failed, or an unsupported MIME type: %q", i, b.MIMEType)
}

func (g *geminiContents) user(i int, parts []geminiPart, got *Request) {
	if parts[0].FunctionResponse != nil {
		g.want(len(parts) == len(g.waiting),
			"Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
		for n, p := range parts {
			if g.want(p.FunctionResponse != nil && n < len(g.waiting),
				"contents[%d]: function responses beside other parts", i) {
				got.Messages = append(got.Messages, g.response(i, g.waiting[n], p.FunctionResponse))
			}
		}
		g.waiting = nil
		return
	}
	g.want(len(g.waiting) == 0,
		"Please ensure that function call turn comes immediately before a function response turn.")
	msg := Message{Role: "user"}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Text != nil:
			texts = append(texts, *p.Text)
		case p.FileData != nil:
			msg.Images = append(msg.Images, p.FileData.FileURI)
		case p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "image/"):
			msg.Images = append(msg.Images, "data:"+p.InlineData.MIMEType+";base64,"+p.InlineData.Data)
		case p.InlineData != nil:
			msg.Files = append(msg.Files, p.InlineData.MIMEType)
		default:
			g.want(false, "contents[%d]: function responses after other parts", i)
		}
	}
	msg.Text = strings.Join(texts, "\n")
	got.Messages = append(got.Messages, msg)
}

func (g *geminiContents) response(i int, call geminiCall, r *geminiResponse) Message {
	g.want(r.Name == call.Name && r.ID == call.ID, "contents[%d]: a function response of %s %q for a call of %s %q", i,
		r.Name, r.ID, call.Name, call.ID)
	g.want(r.Response != nil, "contents[%d]: function_response.response: required", i)
	msg := Message{Role: "tool", CallID: r.ID}
	for _, word := range []string{"output", "error"} {
		if v := r.Response[word]; v != nil && json.Unmarshal(v, &msg.Text) != nil {
			msg.Text = string(v)
		}
	}
	for _, p := range r.Parts {
		if g.want(p.InlineData != nil && geminiSince(g.model, 300),
			"contents[%d]: multimodal function responses are not supported", i) {
			g.blob(i, p.InlineData)
			msg.Images = append(msg.Images, "data:"+p.InlineData.MIMEType+";base64,"+p.InlineData.Data)
		}
	}
	return msg
}

// assistant decodes the model's content. From Gemini 3 on, the first call of the turn
// in progress needs a signature.
func (g *geminiContents) assistant(i int, parts []geminiPart, current bool, got *Request) {
	g.want(len(g.waiting) == 0,
		"Please ensure that function call turn comes immediately before a function response turn.")
	msg := Message{Role: "assistant"}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Thought:
			msg.Thought += *p.Text
			g.signature(i, &p, &msg, "thought", *p.Text)
		case p.Text != nil:
			if *p.Text != "" {
				texts = append(texts, *p.Text)
			}
			g.signature(i, &p, &msg, "text")
		case p.FunctionCall != nil:
			c := p.FunctionCall
			missing := p.ThoughtSignature == "" && len(msg.Calls) == 0 && current && geminiSince(g.model, 300)
			g.want(!missing,
				"Function call is missing a thought_signature in functionCall parts. Function call `%s` in contents[%d].",
				c.Name, i)
			g.want(geminiName.MatchString(c.Name), "contents[%d]: function_call.name: %q", i, c.Name)
			g.want(c.Args == nil || bytes.HasPrefix(bytes.TrimSpace(c.Args), []byte("{")),
				"contents[%d]: function_call.args: not an object", i)
			g.signature(i, &p, &msg, "call", c.Name, canonical(c.Args))
			g.waiting = append(g.waiting, *c)
			msg.Calls = append(msg.Calls, Call{c.ID, c.Name, string(c.Args)})
		}
	}
	msg.Text = strings.Join(texts, "\n\n")
	got.Messages = append(got.Messages, msg)
}

// signature checks that a part's signature is empty or belongs to the model's family.
func (g *geminiContents) signature(i int, p *geminiPart, msg *Message, of ...string) {
	switch p.ThoughtSignature {
	case "", "skip_thought_signature_validator":
		return
	case sign(append([]string{"gemini", geminiFamily(g.model)}, of...)...):
		msg.Seals++
		return
	}
	if len(of) == 3 && of[2] == "{}" && p.ThoughtSignature == sign("gemini", geminiFamily(g.model), of[0], of[1], "") {
		msg.Seals++ // a call without arguments
		return
	}
	g.want(false, "contents[%d]: Thought signature is not valid.", i)
}

// canonical returns JSON in a canonical form.
func canonical(raw []byte) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	out, _ := json.Marshal(v) // valid JSON always marshals
	return string(out)
}
