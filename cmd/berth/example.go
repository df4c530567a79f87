package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// examples has one call of each command with arguments, for its help and for errors in its arguments.
var examples = map[string]string{
	"berth attach":              "berth attach box",
	"berth batch cancel":        "berth batch cancel batch_5c0b6f7d",
	"berth batch create":        "berth batch create requests.jsonl",
	"berth batch get":           "berth batch get batch_5c0b6f7d",
	"berth batch output":        "berth batch output batch_5c0b6f7d",
	"berth conversation get":    "berth conversation get --items conv_5c0b6f7d",
	"berth prompt create":       "berth prompt create greeting greeting.json",
	"berth prompt get":          "berth prompt get greeting",
	"berth prompt rm":           "berth prompt rm greeting",
	"berth schedule get":        "berth schedule get nightly",
	"berth schedule pause":      "berth schedule pause nightly",
	"berth schedule resume":     "berth schedule resume nightly",
	"berth schedule rm":         "berth schedule rm nightly",
	"berth schedule run":        "berth schedule run nightly",
	"berth schedule runs":       "berth schedule runs nightly",
	"berth skill create":        "berth skill create charts.zip",
	"berth skill get":           "berth skill get charts",
	"berth skill rm":            "berth skill rm charts",
	"berth trace get":           "berth trace get --spans trace_5c0b6f7d",
	"berth trace rm":            "berth trace rm trace_5c0b6f7d",
	"berth vector-store add":    "berth vector-store add manuals pump.pdf",
	"berth vector-store create": "berth vector-store create manuals pump.pdf valve.md",
	"berth vector-store get":    "berth vector-store get manuals",
	"berth vector-store rm":     "berth vector-store rm manuals",
	"berth vector-store search": "berth vector-store search manuals pressure",
	"berth backup":              "berth backup /backup/monday",
	"berth config check":        "berth config check berth.yaml",
	"berth config init":         "berth config init berth.yaml",
	"berth config show":         "berth config show berth.yaml",
	"berth context rm":          "berth context rm work",
	"berth context use":         "berth context use work",
	"berth conversation rm":     "berth conversation rm conv_5c0b6f7d",
	"berth cp":                  "berth cp report.csv box:",
	"berth create":              "berth create box --memory 4g",
	"berth desktop":             "berth desktop box",
	"berth exec":                "berth exec box ls -la",
	"berth file cat":            "berth file cat sales.csv",
	"berth file rm":             "berth file rm sales.csv",
	"berth file upload":         "berth file upload sales.csv",
	"berth fork":                "berth fork --memory box",
	"berth image build":         "berth image build full",
	"berth image inspect":       "berth image inspect base",
	"berth image pull":          "berth image pull python:3.12-slim --name base",
	"berth image rm":            "berth image rm python-3.12-slim",
	"berth image save":          "berth image save base -o base.tar",
	"berth inspect":             "berth inspect box",
	"berth key limit":           "berth key limit key_5c0b6f7d --cost-per-month 20",
	"berth key rm":              "berth key rm key_5c0b6f7d",
	"berth login":               "berth login https://berth.example.com",
	"berth logout":              "berth logout work",
	"berth logs":                "berth logs --follow box",
	"berth man":                 "berth man /usr/local/share/man/man1",
	"berth pause":               "berth pause box",
	"berth port":                "berth port box 8080:80",
	"berth end-user export":     "berth end-user export ann ann-2026-11",
	"berth end-user forget":     "berth end-user forget ann",
	"berth end-user get":        "berth end-user get ann",
	"berth end-user usage":      "berth end-user usage ann --month 2026-11",
	"berth hold rm":             "berth hold rm hold_5c0b6f7d --project proj_research",
	"berth retention set":       "berth retention set responses=30d files=90d",
	"berth retention records":   "berth retention records retrec_5c0b6f7d",
	"berth project archive":     "berth project archive research",
	"berth project export":      "berth project export research-2026-11",
	"berth project limit":       "berth project limit research --containers 10",
	"berth response cancel":     "berth response cancel resp_5c0b6f7d",
	"berth response get":        "berth response get resp_5c0b6f7d",
	"berth response rm":         "berth response rm resp_5c0b6f7d",
	"berth resume":              "berth resume box",
	"berth rm":                  "berth rm box",
	"berth run":                 `berth run "Chart the monthly totals."`,
	"berth session export":      "berth session export resp_5c0b6f7d -o chain.tar",
	"berth session import":      "berth session import chain.tar",
	"berth session replay":      "berth session replay resp_5c0b6f7d --model qwen3-32b",
	"berth snapshot create":     "berth snapshot create box --name before",
	"berth snapshot prune":      "berth snapshot prune --older 30d",
	"berth snapshot rm":         "berth snapshot rm snap_5c0b6f7d",
	"berth ssh-key add":         "berth ssh-key add key.pub",
	"berth ssh-key rm":          "berth ssh-key rm sshkey_5c0b6f7d",
	"berth ssh-proxy":           "berth ssh-proxy box",
	"berth volume create":       "berth volume create data --size 20g",
	"berth volume rm":           "berth volume rm data",
	"berth webhook create":      "berth webhook create https://example.com/hook --event response.completed",
	"berth webhook log":         "berth webhook log whe_5c0b6f7d",
	"berth webhook rm":          "berth webhook rm whe_5c0b6f7d",
	"berth user activate":       "berth user activate user_5c0b6f7d",
	"berth user deactivate":     "berth user deactivate user_5c0b6f7d",
	"berth user sign-out":       "berth user sign-out user_5c0b6f7d",
}

// withUsage adds to an error in flags or arguments how the command is used, with an example.
func withUsage(cmd *cobra.Command, err error) error {
	example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if example != "" {
		example = "\nexample: " + example
	}
	return fmt.Errorf("%w\nusage: %s%s\nberth%s --help shows more", err, cmd.UseLine(), example,
		strings.TrimPrefix(cmd.CommandPath(), "berth"))
}

// countError matches the errors of Cobra about the number of arguments.
var countError = regexp.MustCompile(
	`^(accepts .* arg\(s\), received|requires at least \d+ arg\(s\)|unknown command .* for )`)

// argumentError returns an error about the number of arguments that names the missing or the
// superfluous ones. It returns other errors unchanged.
func argumentError(cmd *cobra.Command, args []string, err error) error {
	if !countError.MatchString(err.Error()) {
		return err
	}
	required, most := placeholders(cmd)
	switch missing := required[min(len(args), len(required)):]; {
	case len(missing) == 1:
		return fmt.Errorf("%s is missing", missing[0])
	case len(missing) > 1:
		last := len(missing) - 1
		return fmt.Errorf("%s and %s are missing", strings.Join(missing[:last], ", "), missing[last])
	case most < len(args):
		return fmt.Errorf("unexpected argument %q", args[most])
	}
	return err
}

// placeholders returns the names of a command's required arguments, and how many arguments it
// accepts unless the last one may be repeated.
func placeholders(cmd *cobra.Command) (required []string, most int) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		optional := strings.HasPrefix(word, "[")
		if word == "[flags]" || strings.HasPrefix(word, "-") {
			continue
		}
		most++
		if !optional || strings.HasPrefix(word, "[LOCAL:]") {
			required = append(required, strings.TrimSuffix(word, "..."))
		}
	}
	return required, most
}
