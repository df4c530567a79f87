package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
)

func newUsage() *cobra.Command {
	var name string
	var since, width time.Duration
	var asJSON, full bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show the usage of projects",
		Long: `Show the usage of projects: responses, tokens and cost by key and model, the same by key
and upstream for upstreams with a name in the configuration, containers and their seconds by
key and memory limit, what projects and keys have spent in the present month (UTC) with the
limits that were set for them, and the stored bytes as the storage limit counts them. With
--config (BERTH_CONFIG), the limits of the configuration are shown, too.
GET /v1/organization/usage/completions returns the usage of one project.`,
		Args: cobra.NoArgs,
	}
	open := stateFlag(cmd)
	configFlag(cmd)
	cmd.Flags().StringVar(&name, "project", "", "show one project only")
	durationFlag(cmd, &since, "since", "", 30*day, "how far to go back, such as 90d or 12h")
	durationFlag(cmd, &width, "width", "", 0, "group by periods of this width, such as 1h or 1d")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each line as a JSON object")
	cmd.Flags().BoolVar(&full, "no-trunc", false,
		"print full ids and names, exact numbers, and cached and reasoning tokens")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if width%time.Minute != 0 || width < 0 || since < time.Minute {
			return badUsage("--since and --width must be whole minutes")
		}
		var config *config.Config
		if cmd.Flags().Lookup("config").Value.String() != "" {
			var err error
			if config, err = loadConfig(cmd); err != nil {
				return err
			}
		}
		return open.with(cmd.Context(), func(state *state.Dir) error {
			now := time.Now()
			var p berth.ProjectID
			if name != "" {
				var err error
				if p, err = findProject(cmd.Context(), state, name); err != nil {
					return err
				}
			}
			names, err := readProjectNames(cmd.Context(), state)
			if err != nil {
				return err
			}
			r := usageReport{state: state, config: config, names: names, out: cmd.OutOrStdout(), wide: width != 0,
				listing: &listing{json: asJSON, full: full},
				query: store.UsageQuery{Project: p, From: now.Add(-since).Truncate(time.Minute),
					To:    now.Add(time.Minute),
					Width: cmp.Or(width, 1<<26*time.Minute)}} // one period covers all of history
			return r.write(cmd.Context())
		})
	}
	return cmd
}

// A usageReport prints the output of berth usage.
type usageReport struct {
	state  *state.Dir
	out    io.Writer
	wide   bool // group by time
	query  store.UsageQuery
	config *config.Config // nil if it is not known
	names  projectNames
	*listing
}

// usageName is how much of a name of a model or upstream the table shows.
const usageName = 14

func (r *usageReport) name(u *store.Usage) string { return r.cut(inLine(u.Name), usageName) }

// rounded returns a number as the table shows it: 1234, 123k, 12M.
func rounded(n int64) string {
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	}
	return strconv.FormatInt(n/1_000_000, 10) + "M"
}

func (r *usageReport) write(ctx context.Context) error {
	r.query.Kind = store.UsageResponse
	heading := "TOKENS IN\tTOKENS OUT\t" + r.cost()
	tokens := func(u *store.Usage) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", r.name(u), rounded(u.Count), rounded(u.InputTokens),
			rounded(u.OutputTokens), u.Cost)
	}
	if r.full {
		heading = "TOKENS IN\tCACHED\tTOKENS OUT\tREASONING\t" + r.cost()
		tokens = func(u *store.Usage) string {
			return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%s", r.name(u), u.Count, u.InputTokens, u.CachedTokens,
				u.OutputTokens, u.ReasoningTokens, u.Cost)
		}
	}
	if err := r.table(ctx, "MODEL\tRESPONSES\t"+heading, tokens); err != nil {
		return err
	}
	for _, k := range []struct {
		kind    store.UsageKind
		heading string
	}{{store.UsageEmbedding, "EMBEDDINGS"}, {store.UsageModeration, "MODERATIONS"}, {store.UsageImage, "IMAGES"}} {
		r.query.Kind = k.kind
		err := r.tableUnlessEmpty(ctx, "MODEL\t"+k.heading+"\tTOKENS IN\t"+r.cost(), func(u *store.Usage) string {
			return fmt.Sprintf("%s\t%d\t%d\t%s", r.name(u), u.Count, u.InputTokens, u.Cost)
		})
		if err != nil {
			return err
		}
	}
	r.query.Kind = store.UsageUpstream
	if err := r.table(ctx, "UPSTREAM\tTURNS\t"+heading, tokens); err != nil {
		return err
	}
	r.query.Kind = store.UsageTool
	if err := r.tableUnlessEmpty(ctx, "TOOL\tCALLS", func(u *store.Usage) string {
		return fmt.Sprintf("%s\t%d", r.name(u), u.Count)
	}); err != nil {
		return err
	}
	r.query.Kind = store.UsageContainer
	err := r.table(ctx, "MEMORY\tCONTAINERS\tSECONDS", func(u *store.Usage) string {
		return fmt.Sprintf("%s\t%d\t%d", u.Name, u.Count, u.Seconds)
	})
	if err != nil {
		return err
	}
	if err := r.spending(ctx); err != nil {
		return err
	}
	return r.storage(ctx)
}

// cost returns the heading of costs, with the currency of the prices if the configuration is known.
func (r *usageReport) cost() string {
	if r.config == nil || !r.config.Priced() {
		return "COST"
	}
	return "COST " + strings.ToUpper(r.config.Currency)
}

// spending prints what was spent in the present month, unless nothing was and there are no
// limits.
func (r *usageReport) spending(ctx context.Context) error {
	spent, err := r.state.Spending(ctx, r.query.Project, r.config)
	if err != nil {
		return err
	}
	spent = slices.DeleteFunc(spent, func(s project.Spend) bool { return s.Used == 0 && s.Limit == nil })
	if r.json {
		for _, s := range spent {
			if err := r.object(map[string]any{"kind": "spend", "project": s.Project, "key": s.Key, "cost": s.Used,
				"limit": s.Limit, "project_name": r.names[s.Project]}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(spent) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROJECT\tKEY\tSPENT THIS MONTH\tLIMIT")
	for _, s := range spent {
		limit := "-"
		if s.Limit != nil {
			limit = s.Limit.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.names.shown(r.listing, s.Project),
			cmp.Or(r.id(string(s.Key)), "all"), s.Used, limit)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// table prints the usage of one kind.
func (r *usageReport) table(ctx context.Context, heading string, line func(*store.Usage) string) error {
	used, err := r.state.Store.Usage(ctx, r.query)
	if err != nil {
		return err
	}
	return r.print(used, heading, line)
}

// tableUnlessEmpty is like table, but prints nothing if there is no usage.
func (r *usageReport) tableUnlessEmpty(ctx context.Context, heading string, line func(*store.Usage) string) error {
	used, err := r.state.Store.Usage(ctx, r.query)
	if err != nil || len(used) == 0 {
		return err
	}
	return r.print(used, heading, line)
}

func (r *usageReport) print(used []*store.Usage, heading string, line func(*store.Usage) string) error {
	if r.json {
		for _, u := range used {
			if !r.wide {
				u.Start = r.query.From.Unix()
			}
			if err := r.object(newUsageLine(u, r.names)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	if r.wide {
		fmt.Fprint(w, "START\t")
	}
	fmt.Fprintf(w, "PROJECT\tKEY\t%s\n", heading)
	for _, u := range used {
		if r.wide {
			fmt.Fprint(w, utc(u.Start)+"\t")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.names.shown(r.listing, u.Project), cmp.Or(r.id(string(u.Key)), "-"), line(u))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// A usageLine is a store.Usage in JSON.
type usageLine struct {
	Project         berth.ProjectID `json:"project"`
	Kind            store.UsageKind `json:"kind"`
	Key             berth.KeyID     `json:"key"`
	Name            string          `json:"name"`
	Start           int64           `json:"start"`
	Count           int64           `json:"count"`
	InputTokens     int64           `json:"input_tokens"`
	CachedTokens    int64           `json:"cached_tokens"`
	OutputTokens    int64           `json:"output_tokens"`
	ReasoningTokens int64           `json:"reasoning_tokens"`
	Seconds         int64           `json:"seconds"`
	Cost            berth.Amount    `json:"cost"`
	ProjectName     string          `json:"project_name"`
}

func newUsageLine(u *store.Usage, names projectNames) usageLine {
	return usageLine{u.Project, u.Kind, u.Key, u.Name, u.Start, u.Count, u.InputTokens, u.CachedTokens, u.OutputTokens,
		u.ReasoningTokens, u.Seconds, u.Cost, names[u.Project]}
}

// bytes returns a number of bytes as the table shows it.
func (r *usageReport) bytes(n int64) string {
	if r.full {
		return strconv.FormatInt(n, 10)
	}
	return size(n)
}

// storage prints the bytes stored now.
func (r *usageReport) storage(ctx context.Context) error {
	ids := []berth.ProjectID{r.query.Project}
	if r.query.Project == "" {
		ids = nil
		all, err := r.state.Projects.ListAll(ctx)
		if err != nil {
			return err
		}
		for _, p := range all {
			ids = append(ids, p.ID)
		}
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	if !r.json {
		fmt.Fprintln(w, "PROJECT\tSTORED")
	}
	for _, id := range ids {
		n, err := r.state.StoredBytes(ctx, id)
		if err != nil {
			return err
		}
		if !r.json {
			fmt.Fprintf(w, "%s\t%s\n", r.names.shown(r.listing, id), r.bytes(n))
		} else if err := r.object(map[string]any{"kind": "storage", "project": id, "bytes": n,
			"project_name": r.names[id]}); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (r *usageReport) object(v any) error { return json.NewEncoder(r.out).Encode(v) }
