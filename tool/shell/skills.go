package shell

import (
	_ "embed"
	"encoding/json"
	"strings"
	"text/template"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

//go:embed skills.md
var aboutSkills string

// describe returns a description of the tool in an environment with contents, which may be
// nil, and skills. What their authors wrote is in a
// fence, one line of JSON for each, so that it cannot pass as a part of the description.
func describe(description *template.Template, contents *berth.TemplateContents, skills []berth.LocalSkill) string {
	about := struct {
		Shell, Installed string
		Sudo             bool
	}{"bash", tool.Installed(contents), tool.HasProgram(contents, "sudo")}
	if !tool.HasProgram(contents, "bash") {
		about.Shell = "shell (sh)"
	}
	var text strings.Builder
	if err := description.Execute(&text, about); err != nil {
		panic(err) // a template of strings, written to memory
	}
	if len(skills) == 0 {
		return text.String()
	}
	var list strings.Builder
	for _, s := range skills {
		line, _ := json.Marshal(s) // strings always marshal
		list.Write(line)
		list.WriteByte('\n')
	}
	return strings.TrimRight(text.String(), "\n") + "\n\n" + strings.TrimRight(aboutSkills, "\n") + "\n" +
		tool.FenceAs("the names, descriptions and folders of skills, by their authors", strings.TrimRight(list.String(),
			"\n"))
}

// shown returns what a model sees of the skills in a container.
func shown(skills []berth.ContainerSkill) []berth.LocalSkill {
	list := make([]berth.LocalSkill, len(skills))
	for i, s := range skills {
		list[i] = berth.LocalSkill{Name: s.Name, Description: s.Description, Path: s.Path}
	}
	return list
}
