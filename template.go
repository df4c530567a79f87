package berth

// A Template is a root file system that containers start from. The operator builds
// templates; they belong to no project.
type Template struct {
	ID        string         `json:"id"`     // its digest, sha256:…
	Object    string         `json:"object"` // "template"
	CreatedAt int64          `json:"created_at"`
	Names     []string       `json:"names"` // its current names
	Bytes     int64          `json:"bytes"` // total size of its files
	Source    TemplateSource `json:"source"`
}

// TemplateContents are what a template contains, as far as a model should know it. The names
// are safe to show to a model.
type TemplateContents struct {
	Programs []string // "Python", "Node.js", "git"
	Python   []string // Python packages
	Kernels  []string // Jupyter kernels
}

// A TemplateSource is the origin of a template's last build.
type TemplateSource struct {
	Type  string `json:"type"`            // recipe, image or snapshot
	Image string `json:"image,omitempty"` // the image's reference in its registry
	// of the image or its index, of the recipe, or of the snapshot's content
	Digest   string `json:"digest,omitempty"`
	Platform string `json:"platform,omitempty"` // of the image, such as linux/amd64
	Template string `json:"template,omitempty"` // digest of the template below the snapshot
}
