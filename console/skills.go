package console

import (
	"archive/zip"
	"bytes"
	"cmp"
	"html/template"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/console/markdown"
)

// A skillsPage is the list of skills.
type skillsPage struct{ rows[berth.Skill] }

// show serves GET /console/skills.
func (p *skillsPage) show(v *visit) error {
	text := textIn(func(s berth.Skill) []string { return []string{s.Name, s.Description, string(s.ID)} })
	if err := p.find(v, "/v1/skills", text); err != nil {
		return err
	}
	return v.show(http.StatusOK, "skills", "Skills", p)
}

// create serves POST /console/skills: it uploads a skill.
func (*skillsPage) create(v *visit) error {
	var made berth.Skill
	if err := uploadSkill(v, "/v1/skills", nil, &made); err != nil {
		return err
	}
	return v.redirect(pathTo("/console/skills", made.ID))
}

// uploadSkill sends the file of the form, a zip archive or a SKILL.md, to a route of the API.
func uploadSkill(v *visit, to string, fields map[string]string, into any) error {
	file := v.form.next
	if file == nil {
		return errNoFile
	}
	name := file.FileName()
	if strings.EqualFold(path.Base(name), skillText) {
		name = "skill/" + skillText // a skill is a folder
	}
	if err := uploadAs(v, to, "files", name, fields, file, into); err != nil {
		return cmp.Or(file.err, err)
	}
	return v.form.advance()
}

const (
	skillText     = "SKILL.md"
	maxSkill      = 8 << 20 // bytes of an archive whose files are shown
	maxSkillFiles = 500
)

// A skillPage is the page of a version of a skill.
type skillPage struct {
	berth.Skill
	Version  string
	Versions []berth.SkillVersion // the newest first
	Files    []skillFile          // nil if the archive is too large to show
	Text     template.HTML        // of its SKILL.md
	Form     formToken
}

// A skillFile is a file of a skill.
type skillFile struct {
	Path  string
	Bytes int64
}

// Path returns the path of the page of the skill.
func (p skillPage) Path() string { return pathTo("/console/skills", p.ID) }

// show serves GET /console/skills/{skill}.
func (p *skillPage) show(v *visit) error {
	from := pathTo("/v1/skills", v.r.PathValue("skill"))
	if err := v.get(from, &p.Skill); err != nil {
		return err
	}
	p.Version, p.Form = cmp.Or(v.r.URL.Query().Get("version"), p.DefaultVersion), v.formToken()
	var versions list[berth.SkillVersion]
	if err := v.get(from+"/versions?order=desc&limit=100", &versions); err != nil {
		return err
	}
	p.Versions = versions.Data
	body, err := v.send(http.MethodGet, pathTo(from+"/versions", p.Version)+"/content", nil, "")
	if err != nil {
		return err
	}
	defer body.Close()
	archive, err := io.ReadAll(io.LimitReader(body, maxSkill+1))
	if err != nil {
		return err
	}
	if len(archive) <= maxSkill {
		p.read(v, archive)
	}
	return v.show(http.StatusOK, "skill", p.Name, p)
}

// read reads the files of an archive, and the text of its SKILL.md.
func (p *skillPage) read(v *visit, archive []byte) {
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return // the API stores only archives that can be read
	}
	for _, f := range files.File[:min(len(files.File), maxSkillFiles)] {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		p.Files = append(p.Files, skillFile{f.Name, int64(f.UncompressedSize64)})
		if path.Base(f.Name) != skillText || p.Text != "" {
			continue
		}
		content, err := f.Open()
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(content, maxPreview))
		content.Close()
		if err == nil {
			p.Text = markdown.Render(v.r.Context(), []string{withoutHead(string(text))})[0]
		}
	}
}

// withoutHead returns a SKILL.md without the fields at its start, which the page shows itself.
func withoutHead(text string) string {
	if rest, ok := strings.CutPrefix(text, "---\n"); ok {
		if _, body, ok := strings.Cut(rest, "\n---"); ok {
			return strings.TrimLeft(body, "-\n")
		}
	}
	return text
}

// download serves GET /console/skills/{skill}/download: the archive of a version.
func (*skillPage) download(v *visit) error {
	version := cmp.Or(v.r.URL.Query().Get("version"), "latest")
	return passFile(v, pathTo(pathTo("/v1/skills", v.r.PathValue("skill"))+"/versions", version)+"/content",
		"application/zip", "attachment", "skill.zip")
}

// change serves POST /console/skills/{skill}: it uploads a version, makes one the default, or deletes a version or
// the skill, as the form says.
func (*skillPage) change(v *visit) error {
	id := v.r.PathValue("skill")
	to := pathTo("/v1/skills", id)
	version := v.form.fields.Get("version")
	var err error
	switch v.form.fields.Get("do") {
	case "upload":
		err = uploadSkill(v, to+"/versions", map[string]string{"default": "true"}, &struct{}{})
	case "default":
		err = v.post(to, map[string]any{"default_version": version}, &struct{}{})
	case "delete-version":
		err = v.delete(pathTo(to+"/versions", version))
	case "delete":
		if err := v.delete(to); err != nil {
			return err
		}
		return v.redirect("/console/skills")
	default:
		return &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	if err != nil {
		return err
	}
	return v.redirect(pathTo("/console/skills", id))
}
