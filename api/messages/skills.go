package messages

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/skills"
)

const skillPath = "/v1/skills"

// storedSkills serves skills and their versions.
type storedSkills struct{ service *skills.Service }

// routes returns the routes of skills for Anthropic's clients. The skills are those of OpenAI's API.
func (h *storedSkills) routes() []exchange.Route {
	const versions = skillPath + "/{skill}/versions"
	return []exchange.Route{
		versioned("POST "+skillPath, h.createSkill),
		versioned("GET "+skillPath, h.listSkills),
		versioned("GET "+skillPath+"/{skill}", h.getSkill),
		versioned("DELETE "+skillPath+"/{skill}", h.deleteSkill),
		versioned("POST "+versions, h.createVersion),
		versioned("GET "+versions, h.listVersions),
		versioned("GET "+versions+"/{version}", h.getVersion),
		versioned("DELETE "+versions+"/{version}", h.deleteVersion),
		versioned("GET "+versions+"/{version}/content", h.versionContent),
	}
}

// A skillInfo is a skill in Anthropic's form.
type skillInfo struct {
	ID              berth.SkillID        `json:"id"`
	Type            string               `json:"type"` // "skill"
	DisplayName     string               `json:"display_name"`
	LatestVersionID berth.SkillVersionID `json:"latest_version_id"`
	Source          skillSource          `json:"source"`
	CreatedAt       string               `json:"created_at"`
	UpdatedAt       string               `json:"updated_at"`

	latest string // number of the latest version
}

type skillSource struct {
	Type string `json:"type"` // "custom"
}

// A versionInfo is a version of a skill in Anthropic's form.
type versionInfo struct {
	ID          berth.SkillVersionID `json:"id"`
	Type        string               `json:"type"` // "skill_version"
	SkillID     berth.SkillID        `json:"skill_id"`
	Name        string               `json:"name"`
	Description string               `json:"description"`
	CreatedAt   string               `json:"created_at"`
}

func newVersionInfo(v *berth.SkillVersion) versionInfo {
	return versionInfo{ID: v.ID, Type: "skill_version", SkillID: v.SkillID, Name: v.Name, Description: v.Description,
		CreatedAt: date(v.CreatedAt)}
}

// skillInfo returns a skill with the id of its latest version.
func (h *storedSkills) skillInfo(ctx context.Context, c berth.Caller, s *berth.Skill) (skillInfo, error) {
	latest, err := h.service.Version(ctx, c.Project, s.ID, s.LatestVersion)
	if err != nil {
		return skillInfo{}, err
	}
	return skillInfo{ID: s.ID, Type: "skill", DisplayName: s.Name, LatestVersionID: latest.ID,
		Source: skillSource{"custom"}, CreatedAt: date(s.CreatedAt), UpdatedAt: date(latest.CreatedAt),
		latest: latest.Version}, nil
}

// answerSkill answers with a skill.
func (h *storedSkills) answerSkill(x *exchange.Exchange, r *http.Request, c berth.Caller, s *berth.Skill) error {
	info, err := h.skillInfo(r.Context(), c, s)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, skillFor(r.Header, info))
}

func skillID(r *http.Request) berth.SkillID { return berth.SkillID(r.PathValue("skill")) }

// createSkill serves POST /v1/skills. The name of a skill is that of its SKILL.md, whatever the client calls it.
func (h *storedSkills) createSkill(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.FormFiles(r, "files", "display_name", "display_title")
	if err != nil {
		return err
	}
	s, err := h.service.Create(r.Context(), c.Project, f)
	if err != nil {
		return err
	}
	return h.answerSkill(x, r, c, s)
}

// listSkills serves GET /v1/skills.
func (h *storedSkills) listSkills(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := readPage(q, 20)
	source := q.Text("source")
	if err := q.End(); err != nil {
		return err
	}
	infos, more := []skillInfo{}, false
	if source == "" || source == "custom" {
		list, further, err := h.service.List(r.Context(), c.Project, page.Page)
		if err != nil {
			return page.error(err)
		}
		more = further
		for _, s := range inOrder(page, list, func(s *berth.Skill) *berth.Skill { return s }) {
			info, err := h.skillInfo(r.Context(), c, s)
			if berth.ErrorCode(err) == berth.CodeNotFound {
				continue // it was deleted after it was listed
			}
			if err != nil {
				return err
			}
			infos = append(infos, info)
		}
	}
	listed := newCursorList(infos, more, func(s skillInfo) string { return string(s.ID) })
	return x.JSON(http.StatusOK, convertList(listed, func(s skillInfo) any { return skillFor(r.Header, s) }))
}

// getSkill serves GET /v1/skills/{skill}.
func (h *storedSkills) getSkill(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	s, err := h.service.Get(r.Context(), c.Project, skillID(r))
	if err != nil {
		return err
	}
	return h.answerSkill(x, r, c, s)
}

// deleteSkill serves DELETE /v1/skills/{skill}.
func (h *storedSkills) deleteSkill(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := skillID(r)
	if err := h.service.Delete(r.Context(), c.Project, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, deletion{string(id), "skill_deleted"})
}

// createVersion serves POST /v1/skills/{skill}/versions. The newest version is the one that messages use, so that it
// becomes the default one.
func (h *storedSkills) createVersion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := x.FormFiles(r, "files")
	if err != nil {
		return err
	}
	v, err := h.service.CreateVersion(r.Context(), c.Project, skillID(r), f, func() (bool, error) { return true, nil })
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, versionFor(r.Header, v))
}

// listVersions serves GET /v1/skills/{skill}/versions.
func (h *storedSkills) listVersions(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := readPage(q, 20)
	if err := q.End(); err != nil {
		return err
	}
	all, err := h.service.Versions(r.Context(), c.Project, skillID(r))
	if err != nil {
		return err
	}
	list, more, err := exchange.PageOf(all, page.Page, func(v *berth.SkillVersion) string { return string(v.ID) })
	if err != nil {
		return page.error(err)
	}
	ordered := inOrder(page, list, func(v *berth.SkillVersion) *berth.SkillVersion { return v })
	listed := newCursorList(ordered, more, func(v *berth.SkillVersion) string { return string(v.ID) })
	inForm := func(v *berth.SkillVersion) any { return versionFor(r.Header, v) }
	return x.JSON(http.StatusOK, convertList(listed, inForm))
}

// version returns a version of a skill by its id, its number or "latest".
func (h *storedSkills) version(ctx context.Context, c berth.Caller, skill berth.SkillID,
	id string) (*berth.SkillVersion, error) {
	if _, err := strconv.Atoi(id); err == nil {
		return h.service.Version(ctx, c.Project, skill, id)
	}
	all, err := h.service.Versions(ctx, c.Project, skill)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(v *berth.SkillVersion) bool { return string(v.ID) == id })
	if id == latest {
		s, err := h.service.Get(ctx, c.Project, skill)
		if err != nil {
			return nil, err
		}
		return h.service.Version(ctx, c.Project, skill, s.LatestVersion)
	}
	if i < 0 {
		return nil, berth.NotFound("Skill version", rule.Clip(id))
	}
	return all[i], nil
}

// latest names the newest version of a skill.
const latest = "latest"

// getVersion serves GET /v1/skills/{skill}/versions/{version}.
func (h *storedSkills) getVersion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	v, err := h.version(r.Context(), c, skillID(r), r.PathValue("version"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, versionFor(r.Header, v))
}

// deleteVersion serves DELETE /v1/skills/{skill}/versions/{version}.
func (h *storedSkills) deleteVersion(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	v, err := h.version(r.Context(), c, skillID(r), r.PathValue("version"))
	if err == nil {
		v, err = h.service.DeleteVersion(r.Context(), c.Project, v.SkillID, v.Version)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, deletion{versionName(r.Header, v), "skill_version_deleted"})
}

// versionContent serves GET /v1/skills/{skill}/versions/{version}/content: a zip archive.
func (h *storedSkills) versionContent(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	v, err := h.version(r.Context(), c, skillID(r), r.PathValue("version"))
	if err != nil {
		return err
	}
	content, _, err := h.service.Open(r.Context(), c.Project, v.SkillID, v.Version)
	if err != nil {
		return err
	}
	defer content.Close()
	size, err := content.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = content.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("measure archive: %w", err)
	}
	return x.DownloadAs(r, "application/zip", v.Name+".zip", size, content)
}

// pin replaces the ids of versions in a request by their numbers, which containers know.
func (h *storedSkills) pin(ctx context.Context, c berth.Caller, m *messageRequest) error {
	for i := range m.Container.Skills {
		s := &m.Container.Skills[i]
		if s.Type != "custom" || !strings.HasPrefix(s.Version, berth.PrefixSkillVersion) {
			continue
		}
		v, err := h.version(ctx, c, berth.SkillID(s.SkillID), s.Version)
		if berth.ErrorCode(err) == berth.CodeNotFound {
			return berth.Invalid(fmt.Sprintf("container.skills[%d]", i), "%s", err.Error())
		}
		if err != nil {
			return err
		}
		s.Version = v.Version
	}
	return nil
}
