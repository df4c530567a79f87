package api_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/berth-run/berth"
)

const manifest = "---\nname: %s\ndescription: %s\n---\nRead more.md.\n"

// skillForm is a form with the files of a skill.
func skillForm(parts ...part) (io.Reader, string) {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "--edge\r\nContent-Disposition: form-data; name=\"%s\"", p.name)
		if p.filename != "" {
			fmt.Fprintf(&b, "; filename=\"%s\"\r\nContent-Type: %s", p.filename, p.kind)
		}
		fmt.Fprintf(&b, "\r\n\r\n%s\r\n", p.value)
	}
	b.WriteString("--edge--\r\n")
	return strings.NewReader(b.String()), "multipart/form-data; boundary=edge"
}

type part struct{ name, filename, kind, value string }

func folder(name, description string) []part {
	return []part{
		{"files[]", "tides/SKILL.md", "text/markdown", fmt.Sprintf(manifest, name, description)},
		{"files[]", "tides/scripts/run.sh", "text/x-sh", "#!/bin/sh\necho high\n"},
	}
}

func skillZip(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("any/SKILL.md")
	check(t, err)
	fmt.Fprintf(f, manifest, name, "Zipped.")
	check(t, w.Close())
	return b.Bytes()
}

// OpenAI's client creates a skill from files, and versions of it from an archive.
func TestSkills(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	client := h.client()
	skill, err := client.Skills.New(t.Context(),
		openai.SkillNewParams{Files: openai.SkillNewParamsFilesUnion{OfFileArray: []io.Reader{
			openai.File(strings.NewReader(fmt.Sprintf(manifest, "tides", "Compute tides.")), "tides/SKILL.md",
				"text/markdown"),
			openai.File(strings.NewReader("more"), "tides/more.md", "text/markdown"),
		}}})
	check(t, err)
	if skill.Name != "tides" || skill.Description != "Compute tides." || skill.DefaultVersion != "1" ||
		skill.LatestVersion != "1" || !strings.HasPrefix(skill.ID, "skill_") {
		t.Errorf("got %s", skill.RawJSON())
	}
	second, err := client.Skills.Versions.New(t.Context(), skill.ID,
		openai.SkillVersionNewParams{Files: openai.SkillVersionNewParamsFilesUnion{
			OfFile: openai.File(bytes.NewReader(skillZip(t, "tides-2")), "tides.zip", "application/zip")}})
	check(t, err)
	third, err := client.Skills.Versions.New(t.Context(), skill.ID,
		openai.SkillVersionNewParams{Default: openai.Bool(true), Files: openai.SkillVersionNewParamsFilesUnion{
			OfFile: openai.File(bytes.NewReader(skillZip(t, "tides-3")), "tides.zip", "application/zip")}})
	check(t, err)
	if second.Version != "2" || third.Version != "3" || third.SkillID != skill.ID || !strings.HasPrefix(third.ID,
		"skillver_") {
		t.Errorf("got %s and %s", second.RawJSON(), third.RawJSON())
	}
	got, err := client.Skills.Get(t.Context(), skill.ID)
	check(t, err)
	if got.Name != "tides-3" || got.DefaultVersion != "3" || got.LatestVersion != "3" {
		t.Errorf("got %s", got.RawJSON())
	}
	if got, err = client.Skills.Update(t.Context(), skill.ID,
		openai.SkillUpdateParams{DefaultVersion: "1"}); err != nil || got.DefaultVersion != "1" || got.Name != "tides" {
		t.Errorf("got %v, %v", got, err)
	}
	var order []string
	for pages := client.Skills.Versions.ListAutoPaging(t.Context(), skill.ID,
		openai.SkillVersionListParams{Limit: openai.Int(1), Order: "asc"}); pages.Next(); {
		order = append(order, pages.Current().Version)
	}
	if fmt.Sprint(order) != "[1 2 3]" {
		t.Errorf("got versions %v", order)
	}
	content, err := client.Skills.Versions.Content.Get(t.Context(), skill.ID, "2")
	check(t, err)
	if data, err := io.ReadAll(content.Body); err != nil || !bytes.Equal(data, skillZip(t, "tides-2")) ||
		content.Header.Get("Content-Type") != "application/zip" {
		t.Errorf("got %d bytes of %s, %v", len(data), content.Header.Get("Content-Type"), err)
	}
	if content, err = client.Skills.Content.Get(t.Context(), skill.ID); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(content.Body)
	check(t, err)
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	check(t, err)
	if len(archive.File) != 2 || archive.File[1].Name != "tides/more.md" {
		t.Errorf("got %d files", len(archive.File))
	}
	if _, err := client.Skills.Versions.Delete(t.Context(), skill.ID, "1"); status(err) != http.StatusBadRequest {
		t.Errorf("deleting the default version: got %v, want 400", err)
	}
	gone, err := client.Skills.Versions.Delete(t.Context(), skill.ID, "3")
	check(t, err)
	if gone.ID != third.ID || gone.Version != "3" || !gone.Deleted {
		t.Errorf("got %s", gone.RawJSON())
	}
	if got, err = client.Skills.Get(t.Context(), skill.ID); err != nil || got.LatestVersion != "2" {
		t.Errorf("got %v, %v, want 2 as the latest version", got, err)
	}
	// A number is not used twice.
	fourth, err := client.Skills.Versions.New(t.Context(), skill.ID,
		openai.SkillVersionNewParams{Files: openai.SkillVersionNewParamsFilesUnion{
			OfFile: openai.File(bytes.NewReader(skillZip(t, "tides-4")), "tides.zip", "application/zip")}})
	if err != nil || fourth.Version != "4" {
		t.Errorf("got %v, %v, want version 4", fourth, err)
	}
	if _, err := client.Skills.Delete(t.Context(), skill.ID); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"", "/content", "/versions", "/versions/2", "/versions/2/content"} {
		h.call(404, "GET", "/v1/skills/"+skill.ID+path, nil)
	}
	if list := h.call(200, "GET", "/v1/skills", nil); len(list["data"].([]any)) != 0 {
		t.Errorf("got %v, want no skills", list)
	}
}

func TestSkillPages(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	var ids []string
	for i := range 3 {
		form, kind := skillForm(folder(fmt.Sprint("s", i), "d")...)
		ids = append(ids, h.call(200, "POST", "/v1/skills", form, kind).id())
	}
	client := h.client()
	var got []string
	for pages := client.Skills.ListAutoPaging(t.Context(),
		openai.SkillListParams{Limit: openai.Int(2)}); pages.Next(); {
		got = append(got, pages.Current().ID)
	}
	if want := []string{ids[2], ids[1], ids[0]}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	h.call(400, "GET", "/v1/skills?after=skill_none", nil)
	h.call(400, "GET", "/v1/skills?limit=101", nil)
	h.call(400, "GET", "/v1/skills/"+ids[0]+"/versions?after=skillver_none", nil)
}

func TestSkillRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	form, kind := skillForm(folder("tides", "d")...)
	id := h.call(200, "POST", "/v1/skills", form, kind).id()
	archive := part{"files", "a.zip", "application/zip", string(skillZip(t, "a"))}
	for name, tt := range map[string]struct {
		parts []part
		want  string
	}{
		"nothing": {nil, "Missing required parameter: 'files'."},
		"another field": {append(folder("a", "d"), part{"color", "", "", "red"}),
			"Unknown parameter: 'color'."},
		"no SKILL.md": {[]part{{"files[]", "a/x", "", "x"}},
			"The skill is refused: it has no SKILL.md in its top folder."},
		"a path": {append(folder("a", "d"), part{"files[]", "a/../../x", "", "x"}),
			"The skill is refused: the path \"a/../../x\" has an empty part, '.' or '..'."},
		"an absolute path": {append(folder("a", "d"), part{"files[]", "/etc/x", "", "x"}),
			"The skill is refused: the path \"/etc/x\" is not relative."},
		"an archive and more": {[]part{archive, {"files", "x", "", "x"}},
			"Invalid 'files': a zip archive must be the only file. Send all files of the skill, or one archive of them."},
		"not an archive": {[]part{{"files", "a.zip", "application/zip", "PK"}},
			"The skill is refused: it is not a valid zip archive."},
		"a file without a name": {[]part{{"files", "", "", "x"}}, "Missing required parameter: 'files.filename'."},
	} {
		for _, path := range []string{"/v1/skills", "/v1/skills/" + id + "/versions"} {
			form, kind := skillForm(tt.parts...)
			if got := h.call(400, "POST", path, form, kind).at("error", "message"); got != tt.want {
				t.Errorf("%s: got %s, want %s", name, got, tt.want)
			}
		}
	}
	h.call(400, "POST", "/v1/skills", `{"files":["x"]}`)
	form, kind = skillForm(append(folder("a", "d"), part{"default", "", "", "maybe"})...)
	h.call(400, "POST", "/v1/skills/"+id+"/versions", form, kind)
	form, kind = skillForm(folder("a", "d")...)
	h.call(404, "POST", "/v1/skills/skill_none/versions", form, kind)
	for _, path := range []string{"/v1/skills/" + id + "/versions/2", "/v1/skills/" + id + "/versions/2/content",
		"/v1/skills/skill_none"} {
		h.call(404, "GET", path, nil)
	}
	h.call(400, "GET", "/v1/skills/"+id+"/versions/01", nil)
	h.call(400, "DELETE", "/v1/skills/"+id+"/versions/latest", nil)
	h.call(400, "DELETE", "/v1/skills/"+id+"/versions/1", nil)
	h.call(404, "POST", "/v1/skills/"+id, `{"default_version":"2"}`)
	h.call(400, "POST", "/v1/skills/"+id, `{}`)
	if v := h.call(200, "GET", "/v1/skills/"+id+"/versions", nil); len(v["data"].([]any)) != 1 {
		t.Errorf("refused uploads left %v", v)
	}
	// Containers of the test have no file system of their own.
	if got := h.call(400, "POST", "/v1/containers",
		`{"name":"x","skills":[{"type":"skill_reference","skill_id":"`+id+`"}]}`).at("error",
		"param"); got != "skills" {
		t.Errorf("got %v", got)
	}
}

// Skills count toward the storage of their project until they are deleted.
func TestStorageBoundsSkills(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"": {StorageBytes: number(64 << 10)}})
	h.key("sk-a", "proj_a")
	h.token = "sk-a"
	random, err := io.ReadAll(noise(60 << 10))
	check(t, err)
	large := append(folder("a", "d"), part{"files[]", "tides/noise", "", string(random)})
	form, kind := skillForm(large...)
	id := h.call(200, "POST", "/v1/skills", form, kind).id()
	form, kind = skillForm(large...)
	h.call(429, "POST", "/v1/skills", form, kind)
	h.call(200, "DELETE", "/v1/skills/"+id, nil)
	form, kind = skillForm(large...)
	h.call(200, "POST", "/v1/skills", form, kind)
}
