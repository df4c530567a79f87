package shell

import (
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

//go:embed skills.md
var aboutSkills string

// describe returns the description of the tool with skills. What their authors wrote is in a
// fence, one line of JSON for each, so that it cannot pass as a part of the description.
func describe(skills []berth.LocalSkill) string {
	if len(skills) == 0 {
		return description
	}
	var list strings.Builder
	for _, s := range skills {
		line, _ := json.Marshal(s) // strings always marshal
		list.Write(line)
		list.WriteByte('\n')
	}
	return strings.TrimRight(description, "\n") + "\n\n" + strings.TrimRight(aboutSkills, "\n") + "\n" +
		tool.FenceAs("the names, descriptions and folders of skills, by their authors", strings.TrimRight(list.String(), "\n"))
}

// shown returns what a model sees of the skills in a container.
func shown(skills []berth.ContainerSkill) []berth.LocalSkill {
	list := make([]berth.LocalSkill, len(skills))
	for i, s := range skills {
		list[i] = berth.LocalSkill{Name: s.Name, Description: s.Description, Path: s.Path}
	}
	return list
}
