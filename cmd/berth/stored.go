package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

var (
	prompts = kind{"prompt", "/v1/prompts", berth.PrefixPrompt, 0}
	skills  = kind{"skill", "/v1/skills", berth.PrefixSkill, 0}
	traces  = kind{"trace", "/v1/traces", "trace_", 0}
)

func newPrompt() *cobra.Command {
	cmd := &cobra.Command{Use: "prompt", Short: "Create, list, show and delete prompts",
		Long: `A prompt is a template of a request with variables. See ` + berth.DocsURL + `prompts.md.`}
	cmd.AddCommand(newPromptCreate(), newLs(prompts, "name=greeting", "NAME\tVERSION\tVARIABLES\tCREATED",
		func(p *berth.Prompt) string { return string(p.ID) }, func(l *listing, p *berth.Prompt) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", l.cut(inLine(p.Name), 20), p.Version,
				l.cut(inLine(strings.Join(p.Variables, ",")), 20), l.since(time.Now(), p.CreatedAt))
		}), newGet(prompts, "PROMPT", "versions", "/versions"), newDelete(prompts, "PROMPT", " with their versions"))
	return cmd
}

func newPromptCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create NAME FILE", Short: "Create a prompt of a template and print its id",
		Long: `Create a prompt. FILE has the template: the fields of a request for a response, as JSON, in
which {{name}} stands for a variable. "-" is standard input.`, Args: cobra.ExactArgs(2)}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := cmd.InOrStdin()
		if args[1] != "-" {
			f, err := os.Open(args[1])
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		text, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return errors.New(args[1] + " is not JSON; expected the fields of a request for a response")
		}
		var made berth.Prompt
		if err := connect().call(cmd.Context(), http.MethodPost, prompts.path,
			map[string]any{"name": args[0], "template": json.RawMessage(text)}, &made); err != nil {
			return err
		}
		return created(string(made.ID), &made)
	}
	return cmd
}

func newSkill() *cobra.Command {
	cmd := &cobra.Command{Use: "skill", Short: "Create, list, show and delete skills",
		Long: `A skill is a folder with instructions and programs for a model. See ` + berth.DocsURL + `skills.md.`}
	cmd.AddCommand(newSkillCreate(), newLs(skills, "name=charts", "NAME\tVERSION\tDESCRIPTION\tCREATED",
		func(s *berth.Skill) string { return string(s.ID) }, func(l *listing, s *berth.Skill) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", l.cut(inLine(s.Name), 20), s.DefaultVersion,
				l.cut(inLine(s.Description), 24), l.since(time.Now(), s.CreatedAt))
		}), newGet(skills, "SKILL", "versions", "/versions"), newDelete(skills, "SKILL", " with their versions"))
	return cmd
}

func newSkillCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create ARCHIVE", Short: "Create a skill of a zip archive and print its id",
		Args: cobra.ExactArgs(1)}
	connect, created := clientFlags(cmd), createdFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var made berth.Skill
		if err := connect().sendFile(cmd.Context(), skills.path, nil, "files", args[0], &made); err != nil {
			return err
		}
		return created(string(made.ID), &made)
	}
	return cmd
}

func newTrace() *cobra.Command {
	cmd := &cobra.Command{Use: "trace", Short: "List, show and delete traces of the Agents SDK",
		Long: `A trace is what an agent did, as its SDK has reported it. See ` + berth.DocsURL + `monitoring.md.`}
	cmd.AddCommand(newLs(traces, "workflow_name=support", "WORKFLOW\tSPANS\tERRORS\tCREATED\tEXPIRES",
		func(t *berth.Trace) string { return t.ID }, func(l *listing, t *berth.Trace) string {
			now := time.Now()
			return fmt.Sprintf("%s\t%d\t%d\t%s\t%s", l.cut(inLine(t.WorkflowName), 20), t.Spans, t.Errors,
				l.since(now, t.CreatedAt), l.until(now, t.ExpiresAt))
		}), newGet(traces, "TRACE", "spans", "/spans"), newDelete(traces, "TRACE", " with their spans"))
	return cmd
}
