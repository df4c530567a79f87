package gemini

import (
	"encoding/json"

	"google.golang.org/genai"
)

// A request is the body of streamGenerateContent. Its configuration has the vendor's
// types, its contents our own: the vendor's types drop a text that is empty but
// signed, and decode arguments as floats.
type request struct {
	Contents          []content               `json:"contents"`
	SystemInstruction *content                `json:"systemInstruction,omitempty"`
	Tools             []*genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig,omitempty"`
}

type content struct {
	Role  string `json:"role,omitempty"` // user or model
	Parts []part `json:"parts"`
}

// A part has one of Text, InlineData, FileData, FunctionCall and FunctionResponse.
type part struct {
	Text             *string           `json:"text,omitempty"`
	InlineData       *blob             `json:"inlineData,omitempty"`
	FileData         *fileData         `json:"fileData,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`

	Thought          bool   `json:"thought,omitempty"`
	ThoughtSignature string `json:"thoughtSignature,omitempty"` // base64, as it came
}

type blob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"` // base64
}

type fileData struct {
	MIMEType string `json:"mimeType,omitempty"`
	FileURI  string `json:"fileUri"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type functionResponse struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`        // output or error
	Parts    []part            `json:"parts,omitempty"` // InlineData only
}

// A chunk is an event of the stream. It has only the fields that are used, so that
// others cannot make it invalid.
type chunk struct {
	Candidates []struct {
		Index         int                `json:"index"`
		Content       content            `json:"content"`
		FinishReason  genai.FinishReason `json:"finishReason"`
		FinishMessage string             `json:"finishMessage"`
		Logprobs      *logprobs          `json:"logprobsResult"`
	} `json:"candidates"`
	PromptFeedback *struct {
		BlockReason        genai.BlockedReason `json:"blockReason"`
		BlockReasonMessage string              `json:"blockReasonMessage"`
	} `json:"promptFeedback"`
	UsageMetadata *usage          `json:"usageMetadata"`
	ModelVersion  string          `json:"modelVersion"`
	ResponseID    string          `json:"responseId"`
	Error         json.RawMessage `json:"error"`
}

// essential holds the fields of a chunk that carry the answer.
type essential struct {
	Candidates []struct {
		Content struct {
			Parts []struct {
				Text         *string `json:"text"`
				FunctionCall *struct {
					Name string `json:"name"`
				} `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
}

type usage struct {
	Prompt     int `json:"promptTokenCount"` // including cached tokens
	Cached     int `json:"cachedContentTokenCount"`
	Candidates int `json:"candidatesTokenCount"` // excluding thoughts
	Thoughts   int `json:"thoughtsTokenCount"`
	ToolUse    int `json:"toolUsePromptTokenCount"`
	Total      int `json:"totalTokenCount"`
}

// logprobs holds the chosen token and the top candidates of each step.
type logprobs struct {
	Chosen []logprob `json:"chosenCandidates"`
	Top    []struct {
		Candidates []logprob `json:"candidates"`
	} `json:"topCandidates"`
}

type logprob struct {
	Token          string  `json:"token"`
	LogProbability float64 `json:"logProbability"`
}

// topLogprob and tokenLogprob are in the form of Responses.
type topLogprob struct {
	Token   string  `json:"token"`
	Bytes   []int   `json:"bytes"`
	Logprob float64 `json:"logprob"`
}

type tokenLogprob struct {
	topLogprob
	TopLogprobs []topLogprob `json:"top_logprobs"`
}

func (l logprob) wire() topLogprob {
	out := topLogprob{Token: l.Token, Bytes: []int{}, Logprob: l.LogProbability}
	for _, b := range []byte(l.Token) {
		out.Bytes = append(out.Bytes, int(b))
	}
	return out
}

// wire converts the probabilities to Responses, which has lists and never null.
func (l *logprobs) wire() []json.RawMessage {
	if l == nil {
		return nil
	}
	var out []json.RawMessage
	for i, chosen := range l.Chosen {
		token := tokenLogprob{topLogprob: chosen.wire(), TopLogprobs: []topLogprob{}}
		if i < len(l.Top) {
			for _, other := range l.Top[i].Candidates {
				token.TopLogprobs = append(token.TopLogprobs, other.wire())
			}
		}
		raw, _ := json.Marshal(token) // numbers decoded from JSON always marshal
		out = append(out, raw)
	}
	return out
}
