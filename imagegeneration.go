package berth

// An ImageGenerationTool lets the model generate images.
type ImageGenerationTool struct {
	Type              string `json:"type"`            // "image_generation"
	Model             string `json:"model,omitempty"` // default: the server's
	Quality           string `json:"quality,omitempty"`
	Size              string `json:"size,omitempty"`
	Background        string `json:"background,omitempty"`
	Moderation        string `json:"moderation,omitempty"`
	OutputFormat      string `json:"output_format,omitempty"`      // png, webp or jpeg
	OutputCompression *int   `json:"output_compression,omitempty"` // percent
	PartialImages     int    `json:"partial_images,omitempty"`     // shown while the image is made

	Action         string     `json:"action,omitempty"`           // ImageGenerate, ImageEdit or auto, the default
	InputFidelity  string     `json:"input_fidelity,omitempty"`   // of an edit: high or low
	InputImageMask *ImageMask `json:"input_image_mask,omitempty"` // of an edit: its transparent area is changed
}

// The values of ImageGenerationTool.Action besides auto.
const (
	ImageGenerate = "generate"
	ImageEdit     = "edit"
)

// An ImageMask is an image: a URL, which may be a data: URL, or a file.
type ImageMask struct {
	ImageURL string `json:"image_url,omitempty"`
	FileID   FileID `json:"file_id,omitempty"`
}

// An ImageGenerationCall is an image that the model requested.
type ImageGenerationCall struct {
	ID            string   `json:"id,omitempty"`
	Type          ItemType `json:"type"`   // "image_generation_call"
	Status        string   `json:"status"` // in_progress, generating, completed or failed
	Background    string   `json:"background,omitempty"`
	OutputFormat  string   `json:"output_format,omitempty"`
	Quality       string   `json:"quality,omitempty"`
	Size          string   `json:"size,omitempty"` // 1024x1536
	RevisedPrompt string   `json:"revised_prompt,omitempty"`
	Result        *string  `json:"result"` // in base64; nil before the image is made, and if it is not

	Berth *ImageGenerationBerth `json:"berth,omitempty"`
}

// ImageGenerationBerth extends OpenAI's image_generation_call.
type ImageGenerationBerth struct {
	CallBerth
	Error  string `json:"error,omitempty"`  // why there is no image
	Images []int  `json:"images,omitempty"` // the edited ones: their numbers in the conversation, from 1
}
