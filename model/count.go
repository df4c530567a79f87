package model

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/tokens"
)

// A Counter is a Provider that can count the input tokens of a request. Estimate
// serves for the others.
type Counter interface {
	CountTokens(ctx context.Context, req *Request) (int, error)
}

// Tokens that an Estimate adds for parts that are not text. The figures of messages and
// images are those that OpenAI published for its models.
const (
	tokensPerMessage = 3   // role, start and end of a message
	tokensOfReply    = 3   // the start of the model's reply
	tokensPerTool    = 8   // around a function's name, description and schema
	tokensPerCall    = 6   // around a call's name and arguments
	tokensPerPicture = 765 // an image of 1024 × 1024 in high detail
	tokensPerGlance  = 85  // an image in low detail
	bytesPerToken    = 50  // of a file that is not text; typical for the pages of a PDF
)

const (
	// maxExact bounds the text tokenized for one estimate, in bytes. The rest is
	// extrapolated, so that a huge request costs at most a tenth of a second.
	maxExact = 1 << 20
	// pieceSize is how much text the tokenizer gets in one call, in bytes.
	pieceSize = 64 << 10
)

// Estimate returns about how many tokens a request's instructions, tools and items
// have. It counts text with o200k_base, the vocabulary of OpenAI's models since
// GPT-4o. Other vocabularies differ by some percent, and by more for scripts other
// than Latin.
func Estimate(req *Request) int {
	if req.Forwarded != nil {
		return req.Forwarded.Tokens()
	}
	var m measure
	if req.Instructions != "" {
		m.tokens += tokensPerMessage
		m.text(req.Instructions)
	}
	for _, t := range req.Tools {
		m.tokens += tokensPerTool
		m.text(t.Name)
		m.text(t.Description)
		m.text(string(t.Parameters))
	}
	var format struct{ Schema json.RawMessage }
	if json.Unmarshal(req.Text.Format, &format) == nil {
		m.text(string(format.Schema))
	}
	for _, it := range req.Items {
		m.item(it)
	}
	return m.total() + tokensOfReply
}

// EstimateItem returns the tokens that an item adds to an Estimate.
func EstimateItem(it berth.Item) int {
	var m measure
	m.item(it)
	return m.total()
}

// A measure is a running count of tokens.
type measure struct {
	tokens  int // of content other than text
	exact   int // bytes of tokenized text
	counted int // tokens in that text
	rest    int // bytes of text beyond maxExact
}

func (m *measure) total() int {
	n := m.tokens + m.counted
	if m.rest > 0 {
		n += int(float64(m.rest) * float64(m.counted) / float64(m.exact))
	}
	return n
}

func (m *measure) item(it berth.Item) {
	switch it.Type() {
	case berth.ItemMessage, "":
		var msg berth.Message
		if it.Decode(&msg) != nil {
			return
		}
		m.tokens += tokensPerMessage
		m.content(msg.Content)
	case berth.ItemReasoning:
		var r berth.Reasoning
		if it.Decode(&r) != nil {
			return
		}
		m.content(r.Content)
		if len(r.Content) == 0 { // only its vendor can read it
			m.tokens += len(r.EncryptedContent) / 4 * 3 / 4
		}
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if it.Decode(&c) != nil {
			return
		}
		m.tokens += tokensPerCall
		m.text(c.Name)
		m.text(c.Arguments)
	case berth.ItemFunctionCallOutput:
		m.output(it)
	case berth.ItemImageGenerationCall, berth.ItemComputerCallOutput: // an image
		m.tokens += tokensPerMessage + tokensPerPicture
	default:
		m.tokens += tokensPerMessage
		m.text(string(it.Raw()))
	}
}

func (m *measure) output(it berth.Item) {
	var o berth.FunctionCallOutput
	if it.Decode(&o) != nil {
		return
	}
	m.tokens += tokensPerMessage
	var text string
	var content []berth.Content
	switch {
	case json.Unmarshal(o.Output, &text) == nil:
		m.text(text)
	case json.Unmarshal(o.Output, &content) == nil:
		m.content(content)
	default:
		m.text(string(o.Output))
	}
}

func (m *measure) content(parts []berth.Content) {
	for _, c := range parts {
		m.text(c.Text)
		m.text(c.Refusal)
		switch {
		case c.Type == "input_image" && c.Detail == "low":
			m.tokens += tokensPerGlance
		case c.Type == "input_image":
			m.tokens += tokensPerPicture
		case c.Type == "input_file":
			m.text(c.Filename)
			m.file(c.FileData)
		}
	}
}

// file counts the text of a text file; other files count by their size.
func (m *measure) file(url string) {
	kind, data := "", url
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		kind, data, _ = strings.Cut(rest, ",")
	}
	if strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "application/json") {
		if text, err := base64.StdEncoding.DecodeString(data); err == nil {
			m.text(string(text))
			return
		}
	}
	m.tokens += len(data) / 4 * 3 / bytesPerToken
}

func (m *measure) text(s string) {
	for s != "" {
		if m.exact >= maxExact {
			m.rest += len(s)
			return
		}
		piece := s
		if len(s) > pieceSize {
			end := pieceSize
			for end > pieceSize-utf8.UTFMax && !utf8.RuneStart(s[end]) {
				end--
			}
			piece = s[:end]
		}
		m.exact += len(piece)
		m.counted += tokens.O200k().Count(piece)
		s = s[len(piece):]
	}
}
