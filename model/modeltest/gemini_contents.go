package modeltest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// geminiContents reads a conversation and watches over its order.
type geminiContents struct {
	*check
	model string

	waiting []geminiCall // calls that must be answered next, in their order
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

func (g *geminiContents) read(raw []json.RawMessage, heard *Heard) {
	g.want(len(raw) > 0, "GenerateContentRequest.contents: contents is not specified")
	var turns []geminiTurn
	var parts [][]geminiPart
	current := 0 // where the turn begins that goes on now
	for i, one := range raw {
		var t geminiTurn
		if !g.strictly(one, "contents", &t) {
			return
		}
		g.want(len(t.Parts) > 0, "GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.", i)
		g.want(contains(t.Role, "user", "model"), "Please use a valid role: user, model.")
		g.want(i > 0 || t.Role == "user", "Please ensure that the first content is the user's")
		g.want(i == 0 || t.Role == "user" || turns[i-1].Role == "user", "Please ensure that multiturn requests alternate between user and model.")
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
			g.said(i, parts[i], i > current, heard)
		} else {
			g.user(i, parts[i], heard)
		}
	}
	g.want(len(g.waiting) == 0, "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
	g.want(len(turns) > 0 && turns[len(turns)-1].Role == "user", "Please ensure that the last content is the user's")
}

// part checks that a part has one datum, of a kind that its role may have.
func (g *geminiContents) part(i int, t *geminiTurn, raw json.RawMessage) (p geminiPart) {
	if !g.strictly(raw, "contents.parts", &p) {
		return p
	}
	data := 0
	for _, has := range []bool{p.Text != nil, p.InlineData != nil, p.FileData != nil, p.FunctionCall != nil, p.FunctionResponse != nil} {
		if has {
			data++
		}
	}
	g.want(data == 1, "contents[%d].parts: required oneof field 'data' must have one initialized field", i)
	g.want(p.Text == nil || *p.Text != "" || p.ThoughtSignature != "", "Unable to submit request because it must have a text parameter.")
	g.want(t.Role == "model" || p.FunctionCall == nil && !p.Thought && p.ThoughtSignature == "", "contents[%d]: a function call or thought of the user's", i)
	g.want(t.Role == "user" || p.FunctionResponse == nil && p.InlineData == nil && p.FileData == nil, "contents[%d]: a function response or media of the model's", i)
	if p.InlineData != nil {
		g.blob(i, p.InlineData)
	}
	if p.FileData != nil {
		g.want(strings.HasPrefix(p.FileData.FileURI, "https://"), "Invalid or unsupported file uri: %s", p.FileData.FileURI)
	}
	return p
}

func (g *geminiContents) blob(i int, b *geminiBlob) {
	_, err := base64.StdEncoding.DecodeString(b.Data)
	g.want(strings.Contains(b.MIMEType, "/") && err == nil && b.Data != "", "contents[%d].parts.inline_data: Base64 decoding failed, or an unsupported MIME type: %q", i, b.MIMEType)
}

func (g *geminiContents) user(i int, parts []geminiPart, heard *Heard) {
	if parts[0].FunctionResponse != nil {
		g.want(len(parts) == len(g.waiting), "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
		for n, p := range parts {
			if g.want(p.FunctionResponse != nil && n < len(g.waiting), "contents[%d]: function responses beside other parts", i) {
				heard.Messages = append(heard.Messages, g.response(i, g.waiting[n], p.FunctionResponse))
			}
		}
		g.waiting = nil
		return
	}
	g.want(len(g.waiting) == 0, "Please ensure that function call turn comes immediately before a function response turn.")
	said := Message{Role: "user"}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Text != nil:
			texts = append(texts, *p.Text)
		case p.FileData != nil:
			said.Images = append(said.Images, p.FileData.FileURI)
		case p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "image/"):
			said.Images = append(said.Images, "data:"+p.InlineData.MIMEType+";base64,"+p.InlineData.Data)
		case p.InlineData != nil:
			said.Files = append(said.Files, p.InlineData.MIMEType)
		default:
			g.want(false, "contents[%d]: function responses after other parts", i)
		}
	}
	said.Text = strings.Join(texts, "\n")
	heard.Messages = append(heard.Messages, said)
}

func (g *geminiContents) response(i int, call geminiCall, r *geminiResponse) Message {
	g.want(r.Name == call.Name && r.ID == call.ID, "contents[%d]: a function response of %s %q for a call of %s %q", i, r.Name, r.ID, call.Name, call.ID)
	g.want(r.Response != nil, "contents[%d]: function_response.response: required", i)
	said := Message{Role: "tool", CallID: r.ID}
	for _, word := range []string{"output", "error"} {
		if v := r.Response[word]; v != nil && json.Unmarshal(v, &said.Text) != nil {
			said.Text = string(v)
		}
	}
	for _, p := range r.Parts {
		if g.want(p.InlineData != nil && geminiSince(g.model, 300), "contents[%d]: multimodal function responses are not supported", i) {
			g.blob(i, p.InlineData)
			said.Images = append(said.Images, "data:"+p.InlineData.MIMEType+";base64,"+p.InlineData.Data)
		}
	}
	return said
}

// said reads what the model said. The first of its calls in the turn that goes on
// needs a signature, from Gemini 3 on.
func (g *geminiContents) said(i int, parts []geminiPart, current bool, heard *Heard) {
	g.want(len(g.waiting) == 0, "Please ensure that function call turn comes immediately before a function response turn.")
	said := Message{Role: "assistant"}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Thought:
			said.Thought += *p.Text
			g.signature(i, &p, &said, "thought", *p.Text)
		case p.Text != nil:
			if *p.Text != "" {
				texts = append(texts, *p.Text)
			}
			g.signature(i, &p, &said, "text")
		case p.FunctionCall != nil:
			c := p.FunctionCall
			missing := p.ThoughtSignature == "" && len(said.Calls) == 0 && current && geminiSince(g.model, 300)
			g.want(!missing, "Function call is missing a thought_signature in functionCall parts. Function call `%s` in contents[%d].", c.Name, i)
			g.want(geminiName.MatchString(c.Name), "contents[%d]: function_call.name: %q", i, c.Name)
			g.want(c.Args == nil || bytes.HasPrefix(bytes.TrimSpace(c.Args), []byte("{")), "contents[%d]: function_call.args: not an object", i)
			g.signature(i, &p, &said, "call", c.Name, canonical(c.Args))
			g.waiting = append(g.waiting, *c)
			said.Calls = append(said.Calls, Call{c.ID, c.Name, string(c.Args)})
		}
	}
	said.Text = strings.Join(texts, "\n\n")
	heard.Messages = append(heard.Messages, said)
}

// signature checks the signature of a part: of this model's family, or none.
func (g *geminiContents) signature(i int, p *geminiPart, said *Message, of ...string) {
	switch p.ThoughtSignature {
	case "", "skip_thought_signature_validator":
		return
	case sign(append([]string{"gemini", geminiFamily(g.model)}, of...)...):
		said.Seals++
		return
	}
	if len(of) == 3 && of[2] == "{}" && p.ThoughtSignature == sign("gemini", geminiFamily(g.model), of[0], of[1], "") {
		said.Seals++ // a call without arguments
		return
	}
	g.want(false, "contents[%d]: Thought signature is not valid.", i)
}

// canonical is JSON in one of the forms that it can have.
func canonical(raw []byte) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	out, _ := json.Marshal(v) // it came as JSON
	return string(out)
}
