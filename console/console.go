// Package console serves the web console: pages that show containers and responses.
//
// A page shows what the API answers to the key of its user, and beside it only the name of the
// key's project: the console sends requests to the API's handler in this process. So the walls
// between projects are those of the API.
//
// A page is a struct: its fields are the data of its template, and its methods are the handlers
// of its requests. Each page has three files: page.go, page.html and page_test.go.
package console

import (
	"context"
	"crypto/rand"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/console/assets"
)

// Path is the path of the console.
const Path = "/console/"

//go:embed *.html
var content embed.FS

// A Console serves the pages below Path. It is safe for concurrent use. It does nothing
// between requests.
type Console struct {
	api      http.Handler
	log      *slog.Logger
	sessions sessions
	secret   []byte // of the tokens in forms
	origins  *http.CrossOriginProtection
	asked    askedCache
	mux      *http.ServeMux
	signIn   SignIn // with which people sign in; nil if they do not
	logins   Logins // of programs on the computers of people; nil with signIn

	// Names returns the name of a project, for the user of one of its keys. It may be nil.
	Names func(context.Context, berth.ProjectID) string

	// Keys returns the names of keys by their ids. Pages name only keys whose ids the API has shown to the visitor.
	// It may be nil.
	Keys func(context.Context) map[berth.KeyID]string

	// People returns what others see of the person with an id, such as an address; "" for nobody. It may be nil.
	People func(ctx context.Context, id string) string

	// Access tells what visitors may do, so that pages have no form that the API would refuse. Nil: pages have all.
	Access Access
}

// New returns a console that shows what api answers. It logs its own failures to log.
func New(api http.Handler, log *slog.Logger, options ...Option) *Console {
	c := &Console{api: api, log: log, secret: []byte(rand.Text()), origins: http.NewCrossOriginProtection(),
		mux: http.NewServeMux()}
	c.on("GET /console/{$}", handle((*homePage).show))
	c.on("GET /console/overview", func(v *visit) error { return v.redirect(Path) })
	c.on("GET /console/waiting", handle((*waitingPage).show))
	c.on("POST /console/approvals/{approval}", handle((*waitingPage).answer))
	c.on("GET /console/palette", handle((*palettePage).show))
	c.on("GET /console/containers", handle((*containersPage).show))
	c.on("GET /console/containers/{container}", handle((*containerPage).show))
	c.on("GET /console/containers/{container}/files", handle((*filesPage).show))
	c.onUpload("POST /console/containers/{container}/files", maxUpload, handle((*filesPage).change))
	c.on("GET /console/containers/{container}/files/raw", handle((*filesPage).raw))
	c.on("GET /console/containers/{container}/files/download", handle((*filesPage).download))
	c.on("GET /console/containers/{container}/terminals", handle((*terminalsPage).show))
	c.on("POST /console/containers/{container}/terminals", handle((*terminalsPage).create))
	c.on("POST /console/containers/{container}/terminals/{terminal}/end", handle((*terminalsPage).end))
	c.on("GET /console/containers/{container}/terminals/{terminal}/socket", handle((*terminalsPage).join))
	c.on("GET /console/containers/{container}/resources", handle((*resourcesPage).show))
	c.on("GET /console/containers/{container}/resources/events", handle((*resourcesPage).follow))
	c.on("GET /console/containers/{container}/network", handle((*networkPage).show))
	c.on("GET /console/containers/{container}/snapshots", handle((*timelinePage).show))
	c.on("GET /console/containers/{container}/ports", handle((*portsPage).show))
	c.on("POST /console/containers/{container}/ports", handle((*portsPage).open))
	c.on("POST /console/containers/{container}", handle((*containerPage).change))
	c.on("GET /console/snapshots", handle((*snapshotsPage).show))
	c.on("POST /console/snapshots/{snapshot}", handle((*snapshotsPage).change))
	c.on("GET /console/responses", handle((*chainsPage).show))
	c.on("GET /console/responses/events", handle((*chainsPage).follow))
	c.on("GET /console/responses/{response}", handle((*responsePage).show))
	c.on("GET /console/responses/{response}/events", handle((*responsePage).follow))
	c.on("GET /console/responses/{response}/bundle", exportRun)
	c.on("GET /console/responses/{response}/earlier", handle((*responsePage).showEarlier))
	c.on("GET /console/responses/{response}/branches", handle((*branchesPage).show))
	c.on("POST /console/responses/{response}/cancel", handle((*responsePage).cancel))
	c.on("POST /console/responses/{response}/continue", handle((*responsePage).extend))
	c.on("POST /console/responses/{response}/approvals", handle((*responsePage).answer))
	c.on("GET /console/compare", handle((*comparePage).show))
	c.on("GET /console/new", handle((*newPage).show))
	c.onUpload("POST /console/new", maxUpload, handle((*newPage).create))
	c.on("GET /console/conversations", handle((*conversationsPage).show))
	c.on("GET /console/conversations/{conversation}", handle((*conversationPage).show))
	c.on("POST /console/conversations/{conversation}", handle((*conversationPage).change))
	c.on("GET /console/prompts", handle((*promptsPage).show))
	c.on("POST /console/prompts", handle((*promptsPage).create))
	c.on("GET /console/prompts/{prompt}", handle((*promptPage).show))
	c.on("POST /console/prompts/{prompt}", handle((*promptPage).change))
	c.on("GET /console/skills", handle((*skillsPage).show))
	c.onUpload("POST /console/skills", maxUpload, handle((*skillsPage).create))
	c.on("GET /console/skills/{skill}", handle((*skillPage).show))
	c.on("GET /console/skills/{skill}/download", handle((*skillPage).download))
	c.onUpload("POST /console/skills/{skill}", maxUpload, handle((*skillPage).change))
	c.on("GET /console/files", handle((*storedFilesPage).show))
	c.onUpload("POST /console/files", maxUpload, handle((*storedFilesPage).create))
	c.on("GET /console/files/{file}", handle((*storedFilePage).show))
	c.on("GET /console/files/{file}/raw", handle((*storedFilePage).raw))
	c.on("GET /console/files/{file}/download", handle((*storedFilePage).download))
	c.on("POST /console/files/{file}", handle((*storedFilePage).change))
	c.on("GET /console/vector-stores", handle((*vectorStoresPage).show))
	c.on("POST /console/vector-stores", handle((*vectorStoresPage).create))
	c.on("GET /console/vector-stores/{store}", handle((*vectorStorePage).show))
	c.onUpload("POST /console/vector-stores/{store}", maxUpload, handle((*vectorStorePage).change))
	c.on("GET /console/batches", handle((*batchesPage).show))
	c.onUpload("POST /console/batches", maxUpload, handle((*batchesPage).create))
	c.on("GET /console/batches/{batch}", handle((*batchPage).show))
	c.on("POST /console/batches/{batch}", handle((*batchPage).change))
	c.on("GET /console/schedules", handle((*schedulesPage).show))
	c.on("POST /console/schedules", handle((*schedulesPage).create))
	c.on("GET /console/schedules/{schedule}", handle((*schedulePage).show))
	c.on("POST /console/schedules/{schedule}", handle((*schedulePage).change))
	c.on("GET /console/connect", handle((*connectPage).show))
	c.on("GET /console/health", handle((*healthPage).show))
	c.on("GET /console/refused", handle((*refusedPage).show))
	c.on("GET /console/usage", handle((*usagePage).show))
	c.on("GET /console/usage.csv", handle((*usagePage).export))
	c.on("GET /console/storage", handle((*storagePage).show))
	c.on("POST /console/storage", handle((*storagePage).change))
	c.on("GET /console/retention", handle((*retentionPage).show))
	c.on("POST /console/retention", handle((*retentionPage).change))
	c.on("GET /console/templates/{template}", handle((*templatePage).show))
	c.on("POST /console/templates/{template}", handle((*templatePage).create))
	c.on("GET /console/webhooks", handle((*webhooksPage).show))
	c.on("POST /console/webhooks", handle((*webhooksPage).create))
	c.on("GET /console/webhooks/{webhook}", handle((*webhookPage).show))
	c.on("POST /console/webhooks/{webhook}/delete", handle((*webhookPage).delete))
	c.on("POST /console/webhooks/{webhook}/test", handle((*webhookPage).test))
	c.on("POST /console/webhooks/{webhook}/redeliver", handle((*webhookPage).redeliver))
	c.on("GET /console/traces", handle((*tracesPage).show))
	c.on("GET /console/traces/{trace}", handle((*tracePage).show))
	c.on("POST /console/traces/{trace}/delete", handle((*tracePage).delete))
	c.on("GET /console/end-users", handle((*endUsersPage).show))
	c.on("GET /console/end-users/{user}", handle((*endUserPage).show))
	c.on("POST /console/end-users/{user}/delete", handle((*endUserPage).delete))
	c.on("GET /console/projects", handle((*projectsPage).show))
	c.on("POST /console/projects", handle((*projectsPage).create))
	c.on("GET /console/projects/{project}", handle((*keysPage).show))
	c.on("POST /console/projects/{project}", handle((*keysPage).create))
	c.on("POST /console/projects/{project}/limit", handle((*projectPage).limit))
	c.on("POST /console/projects/{project}/archive", handle((*projectPage).archive))
	c.on("POST /console/projects/{project}/delete-key", handle((*keysPage).delete))
	c.on("GET /console/admin-keys", handle((*keysPage).show))
	c.on("POST /console/admin-keys", handle((*keysPage).create))
	c.on("POST /console/admin-keys/delete-key", handle((*keysPage).delete))
	c.on("GET /console/audit", handle((*auditPage).show))
	c.on("POST /console/audit", handle((*auditPage).verify))
	c.on("POST /console/switch", switchKey)
	c.on("GET /console/sign-in", handle((*signInPage).show))
	c.on("POST /console/sign-in", handle((*signInPage).signIn))
	c.on("POST /console/sign-out", signOut)
	c.on("/console/", notFound)

	files := http.StripPrefix("/console/assets/", http.FileServerFS(assets.Files))
	c.mux.HandleFunc("GET /console/assets/{file}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache") // the files change with the program
		files.ServeHTTP(w, r)
	})
	c.mux.HandleFunc("GET /console/assets/vendor/{file}", serveVendor)
	for _, option := range options {
		option(c)
	}
	return c
}

// policy allows a page its own files and nothing else: no script, style or handler in its
// text, and no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	c.mux.ServeHTTP(w, r)
}

// handle returns the handler of a page, which gets a new page for each visit.
func handle[P any](serve func(*P, *visit) error) func(*visit) error {
	return func(v *visit) error { return serve(new(P), v) }
}

// on registers the handler of a pattern. A POST is refused unless it comes from a form of
// the console.
func (c *Console) on(pattern string, handle func(*visit) error) { c.onUpload(pattern, maxForm, handle) }

// onUpload is on for a form of at most a number of bytes.
func (c *Console) onUpload(pattern string, most int64, handle func(*visit) error) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v, err := c.visit(w, r)
		if err == nil {
			err = v.checkForm(most)
		}
		if err == nil {
			err = handle(v)
		}
		if err != nil {
			_ = v.form.finish() // many browsers show no answer before they have sent all; what fails is the connection
			v.fail(err)
		}
	})
}

// templates returns the templates of all pages, which are parsed when the first is shown.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(content, "*.html"))
})
