package api_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// The vendor's client uploads a file, uses it in a message, reads and deletes it.
func TestMessagesFiles(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(stopped))
	h.key("sk-mine", "proj_mine")
	client := h.claude()
	made, err := client.Beta.Files.Upload(t.Context(), anthropic.BetaFileUploadParams{
		File: anthropic.File(strings.NewReader("hi"), "dir/a.txt", "text/plain"), ExpiresInSeconds: anthropic.Int(3600)})
	check(t, err)
	conforms[anthropic.BetaFileMetadata](t, []byte(made.RawJSON()))
	if made.Filename != "a.txt" || made.MimeType != "text/plain" || made.SizeBytes != 2 || !made.Downloadable ||
		made.ExpiresAt.Sub(made.CreatedAt).Seconds() != 3600 {
		t.Errorf("uploaded: got %s", made.RawJSON())
	}
	got, err := client.Beta.Files.GetMetadata(t.Context(), made.ID, anthropic.BetaFileGetMetadataParams{})
	if err != nil || got.ID != made.ID {
		t.Errorf("metadata: got %v, %v", got, err)
	}
	content, err := client.Beta.Files.Download(t.Context(), made.ID, anthropic.BetaFileDownloadParams{})
	check(t, err)
	defer content.Body.Close()
	if text, err := io.ReadAll(content.Body); err != nil || string(text) != "hi" ||
		!strings.HasPrefix(content.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("content: got %s, %v", text, err)
	}
	h.message(`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"` + made.ID + `"}}]}]`)
	if s := m.asked[0].Items[0].String(); !strings.Contains(s, "aGk=") {
		t.Errorf("the model got %s", s)
	}
	list, err := client.Beta.Files.List(t.Context(), anthropic.BetaFileListParams{})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != made.ID || list.NextPage != "" {
		t.Errorf("list: got %v, %v", list, err)
	}
	list, err = client.Beta.Files.List(t.Context(), anthropic.BetaFileListParams{IDs: []string{made.ID, "file_none"}})
	if err != nil || len(list.Data) != 1 {
		t.Errorf("list of ids: got %v, %v", list, err)
	}
	h.key("sk-theirs", "proj_theirs")
	theirs := h.claude()
	if _, err := theirs.Beta.Files.GetMetadata(t.Context(), made.ID,
		anthropic.BetaFileGetMetadataParams{}); statusOf(err) != http.StatusNotFound {
		t.Errorf("another project: got %v", err)
	}
	if _, err := theirs.Beta.Files.Delete(t.Context(), made.ID, anthropic.BetaFileDeleteParams{}); statusOf(err) != 404 {
		t.Errorf("another project: got %v", err)
	}
	gone, err := client.Beta.Files.Delete(t.Context(), made.ID, anthropic.BetaFileDeleteParams{})
	check(t, err)
	conforms[anthropic.BetaDeletedFile](t, []byte(gone.RawJSON()))
	if _, err := client.Beta.Files.Download(t.Context(), made.ID, anthropic.BetaFileDownloadParams{}); statusOf(err) != 404 {
		t.Errorf("deleted: got %v", err)
	}
}

// readsOutput checks a file that a command has made, with the vendor's client.
func (h *house) readsOutput(id, name, want string) {
	h.t.Helper()
	client := h.claude()
	info, err := client.Beta.Files.GetMetadata(h.t.Context(), id, anthropic.BetaFileGetMetadataParams{})
	check(h.t, err)
	conforms[anthropic.BetaFileMetadata](h.t, []byte(info.RawJSON()))
	content, err := client.Beta.Files.Download(h.t.Context(), id, anthropic.BetaFileDownloadParams{})
	check(h.t, err)
	defer content.Body.Close()
	text, err := io.ReadAll(content.Body)
	if err != nil || string(text) != want || info.Filename != name || info.SizeBytes != int64(len(want)) {
		h.t.Errorf("the file is %s with %q, %v", info.RawJSON(), text, err)
	}
	if _, err := client.Beta.Files.GetMetadata(h.t.Context(), id+"0",
		anthropic.BetaFileGetMetadataParams{}); statusOf(err) != 404 {
		h.t.Errorf("an unknown container: got %v", err)
	}
}

// statusOf returns the status of an error of the vendor's client.
func statusOf(err error) int {
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

// Pages of files follow one another by their cursor.
func TestMessagesFilePages(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for range 5 {
		form, kind := upload("a.txt", strings.NewReader("a"), "purpose", "user_data")
		h.call(200, "POST", "/v1/files", form, kind)
	}
	client := h.claude()
	seen := map[string]bool{}
	pages := client.Beta.Files.ListAutoPaging(t.Context(), anthropic.BetaFileListParams{Limit: anthropic.Int(2)})
	for pages.Next() {
		seen[pages.Current().ID] = true
	}
	if pages.Err() != nil || len(seen) != 5 {
		t.Errorf("got %d files, %v", len(seen), pages.Err())
	}
}

// The vendor's client creates a skill and versions, which messages can name.
func TestMessagesSkills(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	client := h.claude()
	manifest := func(about string) []io.Reader {
		return []io.Reader{anthropic.File(strings.NewReader("---\nname: tides\ndescription: "+about+"\n---\n"),
			"tides/SKILL.md", "text/markdown")}
	}
	made, err := client.Beta.Skills.New(t.Context(), anthropic.BetaSkillNewParams{Files: manifest("one")})
	check(t, err)
	conforms[anthropic.BetaSkill](t, []byte(made.RawJSON()))
	second, err := client.Beta.Skills.Versions.New(t.Context(), made.ID,
		anthropic.BetaSkillVersionNewParams{Files: manifest("two")})
	check(t, err)
	conforms[anthropic.BetaSkillVersion](t, []byte(second.RawJSON()))
	got, err := client.Beta.Skills.Get(t.Context(), made.ID, anthropic.BetaSkillGetParams{})
	if err != nil || got.LatestVersionID != second.ID || got.DisplayName != "tides" || got.Source.Type != "custom" {
		t.Errorf("skill: got %s, %v", got.RawJSON(), err)
	}
	first, err := client.Beta.Skills.Versions.Get(t.Context(), made.LatestVersionID,
		anthropic.BetaSkillVersionGetParams{SkillID: made.ID})
	if err != nil || first.Description != "one" {
		t.Errorf("first version: got %v, %v", first, err)
	}
	versions, err := client.Beta.Skills.Versions.List(t.Context(), made.ID, anthropic.BetaSkillVersionListParams{})
	if err != nil || len(versions.Data) != 2 {
		t.Errorf("versions: got %v, %v", versions, err)
	}
	skills, err := client.Beta.Skills.List(t.Context(), anthropic.BetaSkillListParams{})
	if err != nil || len(skills.Data) != 1 || skills.Data[0].ID != made.ID {
		t.Errorf("skills: got %v, %v", skills, err)
	}
	former := func(path string) object {
		t.Helper()
		var o object
		check(t, client.Get(t.Context(), path, nil, &o, option.WithHeader("anthropic-beta",
			"code-execution-2025-08-25, skills-2025-10-02")))
		return o
	}
	if got := former("v1/skills/" + made.ID); got.at("display_title") != "tides" || got.at("latest_version") != "2" ||
		got.at("source") != "custom" || got.at("display_name") != nil {
		t.Errorf("the first form of a skill: got %v", got)
	}
	if got := former("v1/skills"); got.at("data", 0, "latest_version") != "2" || got.at("last_id") != made.ID {
		t.Errorf("the first form of a list: got %v", got)
	}
	if got := former("v1/skills/" + made.ID + "/versions/1"); got.at("version") != "1" ||
		got.at("directory") != "tides" || got.at("description") != "one" || got.at("id") != first.ID {
		t.Errorf("the first form of a version: got %v", got)
	}
	// Containers of this house have no skills, which is noticed after the version was found.
	for version, want := range map[string]string{first.ID: "containers cannot have skills",
		"latest": "containers cannot have skills", first.ID + "0": "Skill version with id"} {
		o := h.call(400, "POST", "/v1/messages", `{"model":"scripted","max_tokens":99,"container":{"skills":[{"type":"custom","skill_id":"`+
			made.ID+`","version":"`+version+`"}]},"tools":[{"type":"code_execution_20250825","name":"code_execution"}],`+hello+`}`)
		if got, _ := o.at("error", "message").(string); !strings.HasPrefix(got, "container.skills") ||
			!strings.Contains(got, want) {
			t.Errorf("version %s: got %s", version, got)
		}
	}
	_, err = client.Beta.Skills.Versions.Delete(t.Context(), first.ID,
		anthropic.BetaSkillVersionDeleteParams{SkillID: made.ID})
	check(t, err)
	_, err = client.Beta.Skills.Delete(t.Context(), made.ID, anthropic.BetaSkillDeleteParams{})
	check(t, err)
	if _, err := client.Beta.Skills.Get(t.Context(), made.ID, anthropic.BetaSkillGetParams{}); statusOf(err) != 404 {
		t.Errorf("deleted: got %v", err)
	}
}
