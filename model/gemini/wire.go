package gemini

import "encoding/json"

// A request is the body of streamGenerateContent. It has only the fields that are sent;
// the tests compare them with the vendor's types. Those are not used here, because they
// drop a text that is empty but signed and decode arguments as floats, and because their
// package brings in 83 others.
type request struct {
	Contents          []content         `json:"contents"`
	SystemInstruction *content          `json:"systemInstruction,omitempty"`
	Tools             []functions       `json:"tools,omitempty"`
	ToolConfig        *toolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *generationConfig `json:"generationConfig,omitempty"`
}

// functions is a tool: all functions that the model may call.
type functions struct {
	Declarations []declaration `json:"functionDeclarations"`
}

// A declaration describes one function.
type declaration struct {
	Description string          `json:"description,omitempty"`
	Name        string          `json:"name"`
	Parameters  json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type toolConfig struct {
	FunctionCalling functionCalling `json:"functionCallingConfig"`
}

type functionCalling struct {
	AllowedNames []string `json:"allowedFunctionNames,omitempty"`
	Mode         string   `json:"mode"` // NONE or ANY
}

// A generationConfig holds the settings of one answer. A nil field means the vendor's
// default.
type generationConfig struct {
	ResponseSchema   json.RawMessage `json:"responseJsonSchema,omitempty"` // requires ResponseMIMEType
	FrequencyPenalty *float32        `json:"frequencyPenalty,omitempty"`
	Logprobs         *int32          `json:"logprobs,omitempty"` // candidates for each token, to 20
	MaxOutputTokens  int32           `json:"maxOutputTokens,omitempty"`
	PresencePenalty  *float32        `json:"presencePenalty,omitempty"`
	ResponseLogprobs bool            `json:"responseLogprobs,omitempty"`
	ResponseMIMEType string          `json:"responseMimeType,omitempty"`
	Seed             *int32          `json:"seed,omitempty"`
	StopSequences    []string        `json:"stopSequences,omitempty"`
	Temperature      *float32        `json:"temperature,omitempty"`
	Thinking         *thinkingConfig `json:"thinkingConfig,omitempty"`
	TopP             *float32        `json:"topP,omitempty"`
}

// A thinkingConfig has a budget in tokens or a level, or neither.
type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitempty"`
	Budget          *int32 `json:"thinkingBudget,omitempty"`
	Level           string `json:"thinkingLevel,omitempty"` // LOW, MEDIUM or HIGH
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
	ExecutableCode   *executableCode   `json:"executableCode,omitempty"` // only of an answer

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

// An executableCode is code that a model wrote for Google's tool codeExecution, which this provider never
// requests.
type executableCode struct {
	Code string `json:"code"`
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
		Index         int          `json:"index"`
		Content       content      `json:"content"`
		FinishReason  finishReason `json:"finishReason"`
		FinishMessage string       `json:"finishMessage"`
		Logprobs      *logprobs    `json:"logprobsResult"`
	} `json:"candidates"`
	PromptFeedback *struct {
		BlockReason        finishReason `json:"blockReason"`
		BlockReasonMessage string       `json:"blockReasonMessage"`
	} `json:"promptFeedback"`
	UsageMetadata *usage          `json:"usageMetadata"`
	ModelVersion  string          `json:"modelVersion"`
	ResponseID    string          `json:"responseId"`
	Error         json.RawMessage `json:"error"`
}

// A finishReason is why an answer ended, or why none began.
type finishReason string

// The reasons that mean something here. All others are failures.
const (
	finishUnspecified finishReason = "FINISH_REASON_UNSPECIFIED"
	finishStop        finishReason = "STOP"

	finishMaxTokens    finishReason = "MAX_TOKENS"
	finishContinuation finishReason = "CONTINUATION"

	finishSafety                 finishReason = "SAFETY"
	finishRecitation             finishReason = "RECITATION"
	finishLanguage               finishReason = "LANGUAGE"
	finishBlocklist              finishReason = "BLOCKLIST"
	finishProhibitedContent      finishReason = "PROHIBITED_CONTENT"
	finishSPII                   finishReason = "SPII"
	finishImageSafety            finishReason = "IMAGE_SAFETY"
	finishImageProhibitedContent finishReason = "IMAGE_PROHIBITED_CONTENT"
	finishImageRecitation        finishReason = "IMAGE_RECITATION"
)

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
