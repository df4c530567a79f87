package container

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/skills"
)

// maxSkills is the maximum number of skills in a container.
const maxSkills = 200

// planSkills resolves the skills of a request. They are added to those that the snapshot or the
// forked container has, and are copied again: its commands may have changed their files.
func (pn *planner) planSkills(ctx context.Context, p berth.ProjectID, pl *plan, req CreateRequest) error {
	pl.skills = req.resolved
	if pl.skills == nil && len(req.Skills) > 0 {
		if err := pn.checkSkills(); err != nil {
			return err
		}
		var err error
		if pl.skills, err = pn.opts.Skills.Resolve(ctx, p, req.Skills); err != nil {
			return err
		}
	}
	var err error
	pl.body.Berth.Skills, err = mergeSkills(pl.body.Berth.Skills, pl.skills)
	return err
}

// checkSkills returns an error for the client if containers cannot have skills.
func (pn *planner) checkSkills() error {
	if pn.opts.Skills == nil {
		return berth.Invalid("skills", "This server does not store skills.")
	}
	if pn.opts.Driver.Features().Isolation == "none" {
		return berth.Invalid("skills",
			"This server's driver runs commands without a file system of their own, so its containers cannot have skills. Use another driver.")
	}
	return nil
}

// mergeSkills returns the skills of a container after an installation. A new skill replaces one
// of the same name.
func mergeSkills(have []berth.ContainerSkill, more []*skills.Install) ([]berth.ContainerSkill, error) {
	if len(more) == 0 {
		return have, nil
	}
	merged := slices.Clone(have)
	for _, it := range more {
		i := slices.IndexFunc(merged, func(old berth.ContainerSkill) bool {
			return strings.EqualFold(old.Name, it.Skill.Name)
		})
		if i < 0 {
			merged = append(merged, it.Skill)
		} else {
			merged[i] = it.Skill
		}
	}
	if len(merged) > maxSkills {
		return nil, berth.Invalid("skills", "A container has at most %d skills; this one would have %d.", maxSkills,
			len(merged))
	}
	return merged, nil
}

// stageSkills stores the inline skills of a plan until the container has started, so that a
// start can be repeated.
func (st *starter) stageSkills(ctx context.Context, p berth.ProjectID, pl *plan) error {
	if len(pl.skills) == 0 {
		return nil
	}
	return st.opts.Skills.Stage(ctx, p, pl.skills)
}

// discardSkills deletes what stageSkills stored.
func (st *starter) discardSkills(p berth.ProjectID, pl *plan) {
	if len(pl.skills) > 0 && st.opts.Skills != nil {
		st.opts.Skills.Discard(p, pl.skills)
	}
}

// installSkills copies skills into the sandbox of a container that starts.
func (st *starter) installSkills(ctx context.Context, s *instance, list []*skills.Install) error {
	if len(list) > 0 && st.opts.Skills == nil { // the record of an earlier server has some
		return berth.Errorf(berth.CodeInvalid, "This server does not store skills.")
	}
	return copySkills(ctx, st.opts, st.snapshots, s, list)
}

// copySkills writes the folders of skills into a sandbox.
func copySkills(ctx context.Context, opts *Options, sn *Snapshots, s *instance, list []*skills.Install) error {
	if len(list) == 0 {
		return nil
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(opts.Skills.WriteLayer(ctx, s.project, w, list))
	}()
	err := sn.apply(ctx, s, r)
	r.Close()
	<-done
	return err
}

// skillParams decodes the skills of a shell's environment.
func skillParams(env berth.ShellToolEnvironment) ([]berth.SkillParam, error) {
	if len(env.Skills) == 0 {
		return nil, nil
	}
	var list []berth.SkillParam
	if err := json.Unmarshal(env.Skills, &list); err != nil {
		return nil, &berth.Error{Code: berth.CodeInvalid, Param: "skills", Err: err,
			Message: "Invalid 'skills': expected a list of skills."}
	}
	return list, nil
}
