package messages

import (
	"net/http"
	"strings"

	"github.com/berth-run/berth"
)

// formerSkillsBeta is the beta that clients name who expect the first form of skills. Those of Python and TypeScript
// send it with each request about skills; the form is that of their types.
const formerSkillsBeta = "skills-2025-10-02"

// hasBeta reports whether a request names a beta.
func hasBeta(h http.Header, beta string) bool {
	for _, line := range h.Values(betaHeader) {
		for name := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(name) == beta {
				return true
			}
		}
	}
	return false
}

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
	if !hasBeta(h, formerSkillsBeta) {
		return s
	}
	return formerSkill{ID: s.ID, Type: s.Type, DisplayTitle: s.DisplayName, LatestVersion: s.latest,
		Source: s.Source.Type, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
}

// versionFor returns a version of a skill in the form that a client expects. Archives have one directory, which is
// called like the skill.
func versionFor(h http.Header, v *berth.SkillVersion) any {
	if !hasBeta(h, formerSkillsBeta) {
		return newVersionInfo(v)
	}
	return formerVersion{newVersionInfo(v), v.Name, v.Version}
}

// versionName returns how a client names a version.
func versionName(h http.Header, v *berth.SkillVersion) string {
	if hasBeta(h, formerSkillsBeta) {
		return v.Version
	}
	return string(v.ID)
}
