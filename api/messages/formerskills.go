package messages

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// formerSkillsBeta is the beta of the first form of skills. Anthropic's clients of Python and TypeScript name it in
// each request about skills; their types have the form.
const formerSkillsBeta = "skills-2025-10-02"

// wantsFormer reports whether a request names that beta.
func wantsFormer(h http.Header) bool { return exchange.HeaderHas(h, betaHeader, formerSkillsBeta) }

// A formerSkill is a skill in its first form. Versions are named by their number.
type formerSkill struct {
	ID            berth.SkillID `json:"id"`
	Type          string        `json:"type"` // "skill"
	DisplayTitle  string        `json:"display_title"`
	LatestVersion string        `json:"latest_version"`
	Source        string        `json:"source"` // "custom"
	CreatedAt     string        `json:"created_at"`
	UpdatedAt     string        `json:"updated_at"`
}

// A formerVersion is a version of a skill in its first form.
type formerVersion struct {
	versionInfo
	Directory string `json:"directory"`
	Version   string `json:"version"`
}

// skillFor returns a skill in the form that a client expects.
func skillFor(h http.Header, s skillInfo) any {
	if !wantsFormer(h) {
		return s
	}
	return formerSkill{ID: s.ID, Type: s.Type, DisplayTitle: s.DisplayName, LatestVersion: s.latest,
		Source: s.Source.Type, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
}

// versionFor returns a version of a skill in the form that a client expects. Archives have one directory, which is
// called like the skill.
func versionFor(h http.Header, v *berth.SkillVersion) any {
	if !wantsFormer(h) {
		return newVersionInfo(v)
	}
	return formerVersion{newVersionInfo(v), v.Name, v.Version}
}

// versionName returns how a client names a version.
func versionName(h http.Header, v *berth.SkillVersion) string {
	if wantsFormer(h) {
		return v.Version
	}
	return string(v.ID)
}
