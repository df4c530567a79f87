package console

import (
	"context"
	"encoding/json"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/console/markdown"
	"github.com/berth-run/berth/internal/jsonscan"
)

// An entry is what a page shows of an item: of its JSON, or while the item grows, of the
// deltas so far.
type entry struct {
	berth.Item
	Took int64 // of a shell call, in milliseconds; 0 is unknown

	// Container has the files that the call changed; "" if the visitor cannot open them
	Container berth.ContainerID

	growing  bool
	text     strings.Builder
	commands []string
	outputs  []berth.ShellContent
	html     template.HTML // of Markdown of a complete item; "" until it is rendered
}

// A page shows the end of a longer text.
const (
	shown        = 256 << 10 // bytes of a complete text
	shownGrowing = 32 << 10  // bytes of one that grows, which is sent again and again
)

// clip returns the last bytes of a text.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return "…" + strings.ToValidUTF8(text[len(text)-most:], "")
}

// HTML returns what a page shows of the Markdown of a message, or of reasoning. It is empty if
// there is none. Before render, and while the item grows, only cheap texts are converted.
func (e *entry) HTML() template.HTML {
	text := e.markdown()
	if text == "" || e.html != "" {
		return e.html
	}
	return markdown.RenderCheap(text)
}

// markdown returns the text of a message or of reasoning.
func (e *entry) markdown() string {
	switch e.Type() {
	case berth.ItemMessage:
		return e.Text()
	case berth.ItemReasoning:
		return e.Thoughts()
	}
	return ""
}

// render sets the HTML of complete entries, with one child process at most.
func render(ctx context.Context, entries []*entry) {
	var texts []string
	var of []*entry
	for _, e := range entries {
		if e.growing || e.html != "" {
			continue
		}
		if text := e.markdown(); text != "" {
			texts, of = append(texts, text), append(of, e)
		}
	}
	for i, html := range markdown.Render(ctx, texts) {
		of[i].html = html
	}
}

// lastOf returns the last parts of an item that grows, which together have about shownGrowing
// bytes. The item is drawn again with each delta.
func lastOf[T any](parts []T, length func(T) int) []T {
	const tags = 100 // about the bytes around a part
	room := shownGrowing
	for i := len(parts) - 1; i >= 0; i-- {
		if room -= length(parts[i]) + tags; room < 0 && i < len(parts)-1 {
			return parts[i+1:]
		}
	}
	return parts
}

// Text returns the text of a message, in Markdown, with a line for each image and file.
func (e *entry) Text() string {
	if e.growing {
		return clip(e.text.String(), shownGrowing)
	}
	var m berth.Message
	if e.Decode(&m) != nil {
		return ""
	}
	var parts []string
	for _, c := range m.Content {
		switch {
		case c.Text != "" || c.Refusal != "":
			parts = append(parts, c.Text+c.Refusal)
		case strings.HasSuffix(c.Type, "image"):
			parts = append(parts, "(an image)")
		case strings.HasSuffix(c.Type, "file"):
			parts = append(parts, "(the file "+c.Filename+c.FileID+")")
		}
	}
	return clip(strings.Join(parts, "\n\n"), shown)
}

// Thoughts returns the text of reasoning; it is empty if the provider hides it.
func (e *entry) Thoughts() string {
	if e.growing {
		return clip(e.text.String(), shownGrowing)
	}
	var r berth.Reasoning
	if e.Decode(&r) != nil {
		return ""
	}
	var parts []string
	for _, c := range append(r.Summary, r.Content...) {
		parts = append(parts, c.Text)
	}
	return clip(strings.Join(parts, "\n\n"), shown)
}

// Commands returns the commands of a shell call.
func (e *entry) Commands() []string {
	if e.growing {
		return lastOf(e.commands, func(command string) int { return len(command) })
	}
	var call berth.ShellCall
	if e.Decode(&call) != nil {
		return nil
	}
	return call.Action.Commands
}

// A commandOutput is what one command printed.
type commandOutput struct {
	Stdout, Stderr string
	Outcome        *berth.ShellOutcome // nil while it runs
}

// Outputs returns what the commands of a shell call have printed, and the changed files.
func (e *entry) Outputs() (outputs []commandOutput) {
	contents := lastOf(e.outputs, func(c berth.ShellContent) int { return len(c.Stdout) + len(c.Stderr) })
	var out berth.ShellCallOutput
	if !e.growing && e.Decode(&out) == nil {
		contents = out.Output
	}
	for _, c := range contents {
		o := commandOutput{Stdout: clip(c.Stdout, shown), Stderr: clip(c.Stderr, shown)}
		if c.Outcome.Type != "" {
			o.Outcome = &c.Outcome
		}
		outputs = append(outputs, o)
	}
	return outputs
}

// A changedFile is a file that a call changed.
type changedFile struct {
	berth.FileChange
	Link string // to the file; "" if it cannot be opened
}

// Files returns the files that a call of the shell or of the code interpreter changed.
func (e *entry) Files() (files []changedFile) {
	var call struct {
		Berth struct {
			Files []berth.FileChange `json:"files"`
		} `json:"berth"`
	}
	if e.growing || e.Decode(&call) != nil {
		return nil
	}
	for _, f := range call.Berth.Files {
		changed := changedFile{FileChange: f}
		if e.Container != "" && f.Type != "deleted" {
			query := url.Values{"path": {f.Path}}
			changed.Link = pathTo("/console/containers", e.Container) + "/files?" + query.Encode()
		}
		files = append(files, changed)
	}
	return files
}

// findFiles sets where the files are that calls of a response changed: in its containers that run, as far as is known.
func findFiles(entries []*entry, ended func(berth.ContainerID) bool) {
	of := map[string]berth.ContainerID{} // by the id that joins a call to its output
	for _, e := range entries {
		call, id := e.call()
		if id == "" {
			id = of[call]
		}
		if of[call] = id; id != "" && !ended(id) {
			e.Container = id
		}
	}
}

// call returns the id that joins a call to its output, and the container that it names.
func (e *entry) call() (id string, container berth.ContainerID) {
	var call struct {
		CallID      string                  `json:"call_id"`
		ContainerID berth.ContainerID       `json:"container_id"` // of a code interpreter's call
		Environment *berth.ShellEnvironment `json:"environment"`
	}
	switch e.Type() {
	case berth.ItemShellCall, berth.ItemShellCallOutput, berth.ItemCodeInterpreterCall:
	default:
		return "", ""
	}
	if e.Decode(&call) != nil {
		return "", ""
	}
	if call.Environment != nil && call.Environment.ContainerID != "" {
		return call.CallID, call.Environment.ContainerID
	}
	return call.CallID, call.ContainerID
}

// Code returns the code of a code interpreter's call.
func (e *entry) Code() string {
	var call berth.CodeInterpreterCall
	if e.growing || e.Decode(&call) != nil {
		return clip(e.text.String(), shownGrowing)
	}
	return call.Code
}

// Printed returns what the code of a code interpreter's call printed.
func (e *entry) Printed() string {
	var call berth.CodeInterpreterCall
	if e.growing || e.Decode(&call) != nil {
		return ""
	}
	var b strings.Builder
	for _, o := range call.Outputs {
		b.WriteString(o.Logs)
	}
	return clip(b.String(), shown)
}

const (
	maxPictures = 20      // of a call that a page shows
	maxPicture  = 4 << 20 // bytes of its URL
)

// pictureURL matches the URLs of pictures, which the page may load because they hold no script.
var pictureURL = regexp.MustCompile(`^data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$`)

// Pictures returns the pictures that a code interpreter's call made, as data: URLs.
func (e *entry) Pictures() (urls []template.URL) {
	var call berth.CodeInterpreterCall
	if e.growing || e.Decode(&call) != nil {
		return nil
	}
	for _, o := range call.Outputs {
		if len(urls) < maxPictures && len(o.URL) <= maxPicture && pictureURL.MatchString(o.URL) {
			urls = append(urls, template.URL(o.URL))
		}
	}
	return urls
}

// Details returns an item of another type as indented JSON, or its text so far.
func (e *entry) Details() string {
	if e.growing {
		return clip(e.text.String(), shownGrowing)
	}
	return clip(string(jsonscan.Indent(e.Raw())), shown)
}

// Pending reports whether the item asks for an approval.
func (e *entry) Pending() bool { return e.Type() == berth.ItemApprovalRequest }

// Running reports whether the item is not complete.
func (e *entry) Running() bool { return e.growing || e.Status() == berth.StatusInProgress }

// A story is a response that is followed: its object, and its items as they grow.
type story struct {
	berth.Response
	entries []*entry
	changed map[int]bool // indexes of entries that changed since the last call of drain
	head    bool         // the response itself changed
}

// apply adds an event to the story.
func (s *story) apply(ev *berth.Event) error {
	if err := s.Response.Apply(ev); err != nil {
		return err
	}
	if ev.Response != nil {
		s.head = true
	}
	for i := len(s.entries); i < len(s.Output); i++ {
		s.entries = append(s.entries, &entry{Item: s.Output[i], growing: !s.Output[i].Status().Final()})
		s.touch(i)
	}
	if ev.OutputIndex == nil || *ev.OutputIndex < 0 || *ev.OutputIndex >= len(s.entries) {
		return nil
	}
	i := *ev.OutputIndex
	e := s.entries[i]
	s.touch(i)
	if ev.Type == berth.EventOutputItemDone {
		s.entries[i] = &entry{Item: *ev.Item}
		return nil
	}
	e.grow(ev)
	return nil
}

func (s *story) touch(i int) {
	if s.changed == nil {
		s.changed = map[int]bool{}
	}
	s.changed[i] = true
}

// grow adds an event of the entry's item.
func (e *entry) grow(ev *berth.Event) {
	command := 0
	if ev.CommandIndex != nil {
		command = *ev.CommandIndex
	}
	const most = 1000 // commands of one call
	if command < 0 || command >= most {
		return
	}
	text, isText := ev.DeltaText()
	switch ev.Type {
	case berth.EventShellCommandAdded, berth.EventShellCommandDelta, berth.EventShellCommandDone:
		for len(e.commands) <= command {
			e.commands = append(e.commands, "")
		}
		if ev.Command != nil {
			e.commands[command] = clip(*ev.Command, shownGrowing)
		} else {
			e.commands[command] = clip(e.commands[command]+text, shownGrowing)
		}
	case berth.EventShellOutputDelta:
		for len(e.outputs) <= command {
			e.outputs = append(e.outputs, berth.ShellContent{})
		}
		var delta berth.ShellDelta
		if json.Unmarshal(ev.Delta, &delta) == nil {
			e.outputs[command].Stdout = clip(e.outputs[command].Stdout+delta.Stdout, shownGrowing)
			e.outputs[command].Stderr = clip(e.outputs[command].Stderr+delta.Stderr, shownGrowing)
		}
	default:
		if isText {
			e.text.WriteString(text)
		}
	}
}
