package bundle

import (
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/skills"
)

// maxSkills is the maximum number of skills in a bundle's container.
const maxSkills = 200

// withoutIDs returns skills as a bundle has them: the ids of the exporting server mean nothing
// elsewhere.
func withoutIDs(list []berth.ContainerSkill) []berth.ContainerSkill {
	list = slices.Clone(list)
	for i := range list {
		list[i].SkillID, list[i].Version = "", ""
	}
	return list
}

// maxFiles is the maximum number of users' files in a bundle's container.
const maxFiles = 1000

// check returns an error unless the container is valid. Export writes only valid ones.
func (k *ManifestContainer) check() error {
	switch {
	case k.Bytes < 0 || k.Bytes > maxLayer:
		return invalid("its layer has %d bytes", k.Bytes)
	case berth.MemoryLimits[k.MemoryLimit] == 0 || k.ExpiresAfter.Minutes < 1:
		return invalid("its container has no valid memory limit or expiry")
	case len(k.Files) > maxFiles:
		return invalid("its container has %d files of users", len(k.Files))
	}
	if len(k.Skills) > maxSkills {
		return invalid("its container has %d skills", len(k.Skills))
	}
	for _, s := range k.Skills {
		if err := skills.Check(s); err != nil || s.SkillID != "" || s.Version != "" {
			return invalid("a skill of its container is not valid")
		}
	}
	for _, f := range k.Files {
		if f == nil || !guest.Below("/", f.Path) || f.Bytes < 0 {
			return invalid("a file of its container has no valid path or size")
		}
	}
	return nil
}
