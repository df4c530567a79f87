package berth

// A File is an uploaded file, kept apart from any container.
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

// A Model is a name that a request may ask for.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`

	Berth *ModelBerth `json:"berth,omitempty"`
}

// ModelBerth is what Berth tells of a model beyond OpenAI's contract, as far as its
// configuration says.
type ModelBerth struct {
	Provider      string   `json:"provider"`                 // how it is spoken to: chat, anthropic, gemini, scripted …
	ContextWindow int      `json:"context_window,omitempty"` // tokens that it takes and answers with together
	Modalities    []string `json:"modalities,omitempty"`     // what it takes: text, image, file or audio
	Tools         *bool    `json:"tools,omitempty"`          // whether it can call any
}
