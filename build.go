package berth

// DocsURL is the directory of the documentation's pages, to which messages for users point.
const DocsURL = "https://github.com/berth-run/berth/blob/main/docs/"

// A Build describes a binary of Berth.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // since the commit
	Go       string `json:"go"`                 // version
	Platform string `json:"platform"`           // linux/amd64
	GVisor   string `json:"gvisor,omitempty"`   // version of the gVisor that it contains
}
