// Package console serves the web console: pages that show containers and responses.
//
// A page shows what the API answers to the key of its user, and nothing else: the console
// sends requests to the API's handler in this process. So the walls between projects are
// those of the API.
//
// Each page has three files: page.go, page.html and page_test.go.
package console

import (
	"crypto/rand"
	"embed"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
)

// Path is the path of the console.
const Path = "/console/"

//go:embed *.html assets
var content embed.FS

// A Console serves the pages below Path. It is safe for concurrent use. It does nothing
// between requests.
type Console struct {
	api      http.Handler
	log      *slog.Logger
	sessions sessions
	secret   []byte // of the tokens in forms
	origins  *http.CrossOriginProtection
	mux      *http.ServeMux
}

// New returns a console that shows what api answers. It logs its own failures to log.
func New(api http.Handler, log *slog.Logger) *Console {
	c := &Console{api: api, log: log, secret: []byte(rand.Text()), origins: http.NewCrossOriginProtection(), mux: http.NewServeMux()}
	c.on("GET /console/{$}", (*visit).showContainers)
	c.on("GET /console/containers/{container}", (*visit).showContainer)
	c.on("GET /console/containers/{container}/files", (*visit).showFiles)
	c.onUpload("POST /console/containers/{container}/files", maxUpload, (*visit).changeFiles)
	c.on("GET /console/containers/{container}/files/raw", (*visit).rawFile)
	c.on("GET /console/containers/{container}/files/download", (*visit).downloadFile)
	c.on("GET /console/containers/{container}/terminals", (*visit).showTerminals)
	c.on("POST /console/containers/{container}/terminals", (*visit).createTerminal)
	c.on("POST /console/containers/{container}/terminals/{terminal}/end", (*visit).endTerminal)
	c.on("GET /console/containers/{container}/terminals/{terminal}/socket", (*visit).joinTerminal)
	c.on("GET /console/containers/{container}/resources", (*visit).showResources)
	c.on("GET /console/containers/{container}/resources/events", (*visit).followResources)
	c.on("GET /console/containers/{container}/ports", (*visit).showPorts)
	c.on("POST /console/containers/{container}/ports", (*visit).openPort)
	c.on("POST /console/containers/{container}", (*visit).changeContainer)
	c.on("GET /console/snapshots", (*visit).showSnapshots)
	c.on("POST /console/snapshots/{snapshot}", (*visit).changeSnapshot)
	c.on("GET /console/responses", (*visit).showChains)
	c.on("GET /console/responses/events", (*visit).followChains)
	c.on("GET /console/responses/{response}", (*visit).showResponse)
	c.on("GET /console/responses/{response}/events", (*visit).followResponse)
	c.on("GET /console/responses/{response}/earlier", (*visit).showEarlier)
	c.on("GET /console/responses/{response}/branches", (*visit).showBranches)
	c.on("POST /console/responses/{response}/cancel", (*visit).cancelResponse)
	c.on("POST /console/responses/{response}/continue", (*visit).continueResponse)
	c.on("POST /console/responses/{response}/approvals", (*visit).answerApprovals)
	c.on("GET /console/new", (*visit).showNew)
	c.onUpload("POST /console/new", maxUpload, (*visit).createNew)
	c.on("GET /console/overview", (*visit).showOverview)
	c.on("GET /console/usage", (*visit).showUsage)
	c.on("GET /console/storage", (*visit).showStorage)
	c.on("GET /console/webhooks", (*visit).showWebhooks)
	c.on("POST /console/webhooks", (*visit).createWebhook)
	c.on("GET /console/webhooks/{webhook}", (*visit).showWebhook)
	c.on("POST /console/webhooks/{webhook}/delete", (*visit).deleteWebhook)
	c.on("POST /console/webhooks/{webhook}/test", (*visit).testWebhook)
	c.on("POST /console/webhooks/{webhook}/redeliver", (*visit).redeliver)
	c.on("GET /console/traces", (*visit).showTraces)
	c.on("GET /console/traces/{trace}", (*visit).showTrace)
	c.on("POST /console/traces/{trace}/delete", (*visit).deleteTrace)
	c.on("GET /console/projects", (*visit).showProjects)
	c.on("POST /console/projects", (*visit).createProject)
	c.on("GET /console/projects/{project}", (*visit).showKeys)
	c.on("POST /console/projects/{project}", (*visit).createKey)
	c.on("POST /console/projects/{project}/delete-key", (*visit).deleteKey)
	c.on("GET /console/admin-keys", (*visit).showKeys)
	c.on("POST /console/admin-keys", (*visit).createKey)
	c.on("POST /console/admin-keys/delete-key", (*visit).deleteKey)
	c.on("GET /console/audit", (*visit).showAudit)
	c.on("POST /console/audit", (*visit).verifyAudit)
	c.on("POST /console/switch", (*visit).switchKey)
	c.on("GET /console/sign-in", (*visit).showSignIn)
	c.on("POST /console/sign-in", (*visit).signIn)
	c.on("POST /console/sign-out", (*visit).signOut)
	c.on("/console/", (*visit).notFound)

	assets, err := fs.Sub(content, "assets")
	if err != nil {
		panic(err) // the name is valid
	}
	files := http.StripPrefix("/console/assets/", http.FileServerFS(assets))
	c.mux.HandleFunc("GET /console/assets/{file}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache") // the files change with the program
		files.ServeHTTP(w, r)
	})
	c.mux.HandleFunc("GET /console/assets/vendor/{file}", serveVendor)
	return c
}

// policy allows a page its own files and nothing else: no script, style or handler in its
// text, and no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
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
