package berth

// A Template is a root file system that containers start from. Templates are made
// by who runs the server and belong to no project.
type Template struct {
	ID        string         `json:"id"`     // its digest, sha256:…
	Object    string         `json:"object"` // "template"
	CreatedAt int64          `json:"created_at"`
	Names     []string       `json:"names"` // that stand for it now
	Bytes     int64          `json:"bytes"` // in its files
	Source    TemplateSource `json:"source"`
}

// A TemplateSource says what a template was last made of.
type TemplateSource struct {
	Type     string `json:"type"`               // recipe, image or snapshot
	Image    string `json:"image,omitempty"`    // what the image is called where it is from
	Digest   string `json:"digest,omitempty"`   // of the image, or of an index that has it; of the recipe; of the snapshot's content
	Platform string `json:"platform,omitempty"` // of the image, such as linux/amd64
	Template string `json:"template,omitempty"` // what the snapshot lies above
}
