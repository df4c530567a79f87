package berth

// A File is an uploaded file. It belongs to no container.
type File struct {
	ID        FileID `json:"id"`
	Object    string `json:"object"` // "file"
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt *int64 `json:"expires_at,omitempty"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"` // "processed"
}

// A Model is a model name that requests may use.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`

	Berth *ModelBerth `json:"berth,omitempty"`
}

// ModelBerth extends OpenAI's model object with facts from the server's configuration.
type ModelBerth struct {
	Provider      string   `json:"provider"`                 // its protocol: chat, anthropic, gemini, scripted …
	ContextWindow int      `json:"context_window,omitempty"` // tokens of input and output together
	Modalities    []string `json:"modalities,omitempty"`     // of its input: text, image, file or audio
	Tools         *bool    `json:"tools,omitempty"`          // whether it can call tools
}
