package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

const (
	paletteRuns = "50" // responses, among whose titles the palette searches
	paletteMost = 12   // entries that it shows
)

// A palettePage is the list of places to go to.
type palettePage struct{ Places []place }

// A place is a page, run or container that the palette leads to.
type place struct{ Icon, Label, Path, Kind string }

// palettePages are the pages of a project, and operatorPages those of an admin key.
var (
	palettePages = []place{{"house", "Home", Path, "page"}, {"list-tree", "Runs", "/console/responses", "page"},
		{"hand", "Runs that need approval", "/console/responses?status=waiting", "page"},
		{"circle-x", "Runs that failed", "/console/responses?status=failed", "page"},
		{"arrow-right", "Compare two runs", "/console/compare", "page"},
		{"box", "Containers", "/console/containers", "page"}, {"square-pen", "New run", "/console/new", "page"},
		{"messages-square", "Conversations", "/console/conversations", "page"},
		{"text-quote", "Prompts", "/console/prompts", "page"}, {"book-open", "Skills", "/console/skills", "page"},
		{"files", "Files", "/console/files", "page"},
		{"library", "Vector stores", "/console/vector-stores", "page"},
		{"list-checks", "Batches", "/console/batches", "page"},
		{"timer", "Schedules", "/console/schedules", "page"},
		{"plug", "Connect a client", "/console/connect", "page"},
		{"waypoints", "Traces", "/console/traces", "page"}, {"database", "Storage", "/console/storage", "page"},
		{"layers", "Snapshots", "/console/snapshots", "page"},
		{"history", "Retention and legal holds", "/console/retention", "page"},
		{"ban", "Refused connections", "/console/refused", "page"},
		{"webhook", "Webhooks", "/console/webhooks", "page"},
		{"users", "End users", "/console/end-users", "page"},
		{"chart-column", "Usage", "/console/usage", "page"}}
	operatorPages = []place{{"house", "Home", Path, "page"}, {"folder-kanban", "Projects", "/console/projects", "page"},
		{"chart-column", "Usage", "/console/usage", "page"},
		{"triangle-alert", "Health", "/console/health", "page"},
		{"ban", "Refused connections", "/console/refused", "page"},
		{"key-round", "Admin keys", "/console/admin-keys", "page"}, {"scroll-text", "Audit", "/console/audit", "page"}}
)

// show serves GET /console/palette: the places whose names or ids contain the words of the query, as elements.
func (p *palettePage) show(v *visit) error {
	words := strings.ToLower(strings.TrimSpace(v.r.URL.Query().Get("q")))
	add := func(of place, also string) {
		found := strings.Contains(strings.ToLower(of.Label), words) || strings.Contains(also, words)
		if found && len(p.Places) < paletteMost {
			p.Places = append(p.Places, of)
		}
	}
	pages := palettePages
	if v.admin() {
		pages = operatorPages
	}
	for _, of := range pages {
		add(of, of.Path)
	}
	if words != "" && !v.admin() {
		if err := addPlaces(v, add); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "palette", "", p)
}

// addPlaces adds the latest runs and containers.
func addPlaces(v *visit, add func(of place, also string)) error {
	var containers list[berth.Container]
	if err := v.get("/v1/containers?order=desc&limit=100", &containers); err != nil {
		return err
	}
	for _, c := range containers.Data {
		name := short(string(c.ID))
		if c.Name != "" && c.Name != autoName {
			name = c.Name + " " + name
		}
		add(place{"box", name, "/console/containers/" + url.PathEscape(string(c.ID)), "container"}, string(c.ID))
	}
	var latest list[*summary]
	if err := v.get("/v1/responses?order=desc&limit="+paletteRuns, &latest); err != nil {
		return err
	}
	chains := chainsOf(latest.Data)
	if err := addChainTitles(v, chains, map[berth.ResponseID]string{}); err != nil {
		return err
	}
	for _, c := range chains {
		add(place{"list-tree", c.Title, c.Path(), badgeOf(c.State()).Label}, string(c.Last.ID))
	}
	return nil
}
