package skills

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
)

// manifestName is the name of the file that describes a skill, in any case.
const manifestName = "SKILL.md"

// Limits of a manifest.
const (
	maxManifest    = 1 << 20
	maxFrontMatter = 64 << 10
	maxDescription = 1024 // characters
)

// A manifest is the front matter of a SKILL.md. Other fields are ignored.
type manifest struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
}

// nameForm is the form of a skill's name. Agent Skills allow lowercase letters and single
// hyphens only; folders made for other tools have more.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?$`)

// parseManifest reads the front matter of a SKILL.md: YAML between two lines "---".
func parseManifest(text []byte) (*manifest, error) {
	front, err := frontMatter(text)
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := yaml.Unmarshal(front, m); err != nil {
		return nil, fmt.Errorf(
			"the front matter of its SKILL.md is not valid YAML with the texts 'name' and 'description': %.300s",
			strings.ToValidUTF8(strings.TrimPrefix(err.Error(), "yaml: "), ""))
	}
	m.Description = strings.TrimSpace(m.Description)
	if err := checkName(m.Name); err != nil {
		return nil, err
	}
	if m.Description == "" {
		return nil, errors.New("the front matter of its SKILL.md has no 'description'")
	}
	return m, checkDescription(m.Description)
}

func frontMatter(text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("its SKILL.md is not UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	rest, open := text, false
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		isMark := string(bytes.TrimRight(line, " \t\r")) == "---"
		switch {
		case !open && !isMark:
			return nil, errors.New("its SKILL.md does not start with front matter; its first line must be ---")
		case open && isMark:
			_, front, _ := bytes.Cut(text[:len(text)-len(rest)], []byte("\n"))
			if len(front) > maxFrontMatter {
				return nil, fmt.Errorf("the front matter of its SKILL.md is larger than %d bytes", maxFrontMatter)
			}
			return front, nil
		}
		open, rest = true, after
	}
	return nil, errors.New("its SKILL.md has no front matter between two lines of ---")
}

func checkName(name string) error {
	if name == "" {
		return errors.New("the front matter of its SKILL.md has no 'name'")
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf(
			"its name %.100q is not valid. A name has at most 64 letters, digits, hyphens and underscores, and starts and ends with a letter or digit",
			name)
	}
	return nil
}

func checkDescription(text string) error {
	if utf8.RuneCountInString(text) > maxDescription {
		return fmt.Errorf("its description is longer than %d characters", maxDescription)
	}
	if strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
	}) {
		return errors.New("its description contains control characters")
	}
	return nil
}

// Check returns an error unless a skill of a container is one that this package can have put
// there. A session's bundle may claim others.
func Check(skill berth.ContainerSkill) error {
	if err := checkName(skill.Name); err != nil {
		return err
	}
	if err := checkDescription(skill.Description); err != nil {
		return err
	}
	mark, ok := strings.CutPrefix(skill.Path, berth.SkillsDir+"/"+skill.Name+"-")
	if !ok || !markForm.MatchString(mark) {
		return fmt.Errorf("its path %.300q is not that of a skill", skill.Path)
	}
	if len(skill.SkillID) > 64 || len(skill.Version) > 20 {
		return errors.New("its id or version is too long")
	}
	return nil
}

// markForm is the form of the mark after a skill's name in the name of its folder.
var markForm = regexp.MustCompile(`^[0-9a-f]{32}$`)
