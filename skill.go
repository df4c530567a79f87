package berth

// A Skill is a folder of instructions, scripts and other files that a model reads when a
// task needs it. It has immutable versions.
type Skill struct {
	ID             SkillID `json:"id"`
	Object         string  `json:"object"`      // "skill"
	Name           string  `json:"name"`        // of its default version
	Description    string  `json:"description"` // of its default version
	CreatedAt      int64   `json:"created_at"`
	DefaultVersion string  `json:"default_version"`
	LatestVersion  string  `json:"latest_version"`
}

// A SkillVersion is a version of a skill. The first is "1".
type SkillVersion struct {
	ID          SkillVersionID `json:"id"`
	Object      string         `json:"object"` // "skill.version"
	SkillID     SkillID        `json:"skill_id"`
	Version     string         `json:"version"`
	CreatedAt   int64          `json:"created_at"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
}

// The types of a SkillParam.
const (
	SkillReference = "skill_reference" // a stored skill
	SkillInline    = "inline"          // a skill in the request itself
)

// A SkillParam is a skill that a request puts into a container.
type SkillParam struct {
	Type    string  `json:"type"`
	SkillID SkillID `json:"skill_id,omitempty"` // skill_reference
	// skill_reference: a number or "latest"; empty means the default version
	Version string `json:"version,omitempty"`

	Name        string       `json:"name,omitempty"`        // inline
	Description string       `json:"description,omitempty"` // inline
	Source      *SkillSource `json:"source,omitempty"`      // inline
}

// A SkillSource is the content of an inline skill.
type SkillSource struct {
	Type      string `json:"type"`       // "base64"
	MediaType string `json:"media_type"` // "application/zip"
	Data      string `json:"data"`       // a zip archive in base64
}

// A LocalSkill is a skill on the machine of a client that runs the commands itself. The
// server has none of its files.
type LocalSkill struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Path        string `json:"path"`
}

// A ContainerSkill is a skill whose files are in a container.
type ContainerSkill struct {
	SkillID     SkillID `json:"skill_id,omitempty"` // empty for an inline skill
	Version     string  `json:"version,omitempty"`  // empty for an inline skill
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Path        string  `json:"path"` // of its folder, below SkillsDir
}

// SkillsDir holds the skills of a container, as in the hosted ones.
const SkillsDir = "/home/oai/skills"
