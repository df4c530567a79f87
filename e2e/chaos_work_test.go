package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/berth-run/berth"
)

// A worker is a client that does one kind of work for as long as the chaos lasts, and
// remembers what it was answered. Its random numbers are its own.
type worker struct {
	*persistent
	name string
	rand *rand.Rand
	stop <-chan struct{} // closed when it should begin nothing new
	done *tally
}

// tally counts finished pieces of work, by kind.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *tally) add(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[kind]++
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprint(t.counts)
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func shell(environment map[string]any, input string) map[string]any {
	return map[string]any{"model": "scripted", "input": input,
		"tools": []any{map[string]any{"type": "shell", "environment": environment}}}
}

func inContainer(id string) map[string]any {
	return map[string]any{"type": "container_reference", "container_id": id}
}

// persist returns a command that repeats another one until it succeeds. While the volume is full, the
// kernel refuses the writes of commands, and a program has to repeat them.
func persist(command string) string {
	return "until { " + command + "; } 2>/dev/null; do sleep 0.1; done;"
}

// chain writes a line to a file of its container with each command of a chain of
// responses. At the end the file has each line once, in order.
func (w *worker) chain() error {
	var c berth.Container
	if err := w.post("/containers", map[string]any{"name": w.name}, &c); err != nil {
		return err
	}
	var want strings.Builder
	var previous berth.ResponseID
	ask := []func(map[string]any) (*outcome, error){w.background, w.stream, w.foreground}
	for turn := 0; !w.stopped(); turn++ {
		var commands, outputs []string
		for n := range 1 + w.rand.IntN(3) {
			line := fmt.Sprintf("%s.%d.%d", w.name, turn, n)
			commands = append(commands,
				fmt.Sprintf(
					persist("echo %s >>log")+" for i in 1 2 3; do echo $i %s; sleep 0.0%d; done; echo $LAST; export LAST=%s",
					line, line, w.rand.IntN(10), line))
			last := lastLine(want.String())
			outputs = append(outputs, fmt.Sprintf("1 %[1]s\n2 %[1]s\n3 %[1]s\n%[2]s\n", line, last))
			fmt.Fprintln(&want, line)
		}
		req := shell(inContainer(string(c.ID)), fence(commands...))
		if previous != "" {
			req["previous_response_id"] = previous
		}
		r, err := ask[turn%len(ask)](req)
		if err != nil {
			return err
		}
		if err := r.want(outputs...); err != nil {
			return err
		}
		previous = r.ID
		w.done.add("responses in chains")
	}
	r, err := w.foreground(shell(inContainer(string(c.ID)), fence("cat log")))
	if err != nil {
		return err
	}
	if err := r.want(want.String()); err != nil && want.Len() > 0 {
		return fmt.Errorf("%s: %w", c.ID, err)
	}
	return w.remove("/containers/" + string(c.ID))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// begin asks for responses whose containers have to be started for them: with a file,
// and a command that leaves a trace.
func (w *worker) begin() error {
	for n := 0; !w.stopped(); n++ {
		content := fmt.Sprintf("%s.%d\n", w.name, n)
		file, err := w.upload("given", []byte(content))
		if err != nil {
			return err
		}
		req := shell(map[string]any{"type": "container_auto", "file_ids": []berth.FileID{file}},
			fence(persist("echo ran >>trace")+" cat given", "cat trace"))
		r, err := w.background(req)
		if err != nil {
			return err
		}
		if err := r.want(content, "ran\n"); err != nil {
			return err
		}
		if err := w.remove("/containers/" + r.Tools[0].Environment.ContainerID); err != nil {
			return err
		}
		if err := w.remove("/files/" + string(file)); err != nil {
			return err
		}
		w.done.add("containers begun")
	}
	return nil
}

// files uploads and deletes. What was acknowledged is there, whole, and what was deleted
// is not.
func (w *worker) files() error {
	there := map[berth.FileID][]byte{}
	var gone []berth.FileID
	for !w.stopped() {
		content := make([]byte, 1+w.rand.IntN(200_000))
		for i := range content {
			content[i] = byte(w.rand.Uint32())
		}
		id, err := w.upload("random", content)
		if err != nil {
			return err
		}
		there[id] = content
		w.done.add("files uploaded")
		if len(there) < 8 {
			continue
		}
		for id := range there { // any of them
			if err := w.remove("/files/" + string(id)); err != nil {
				return err
			}
			delete(there, id)
			gone = append(gone, id)
			break
		}
	}
	for id, content := range there {
		got, err := w.do("GET", "/files/"+string(id)+"/content", "", nil)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, content) {
			return fmt.Errorf("%s holds %d other bytes than the %d that were uploaded", id, len(got), len(content))
		}
		if err := w.remove("/files/" + string(id)); err != nil {
			return err
		}
	}
	for _, id := range gone {
		if _, err := w.do("GET", "/files/"+string(id), "", nil); err == nil {
			return fmt.Errorf("%s was deleted and is there", id)
		}
	}
	return nil
}

// copies makes snapshots and forks of a container that stays in use. Each copy has
// what the container had when it was asked for.
func (w *worker) copies() error {
	var c berth.Container
	if err := w.post("/containers", map[string]any{"name": w.name}, &c); err != nil {
		return err
	}
	for n := 0; !w.stopped(); n++ {
		word := fmt.Sprintf("%s.%d", w.name, n)
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(word)))
		r, err := w.foreground(shell(inContainer(string(c.ID)),
			fence(fmt.Sprintf(persist("printf %s >word && head -c 300000 /dev/urandom >noise && sync"), word))))
		if err != nil {
			return err
		}
		if err := r.want(""); err != nil {
			return err
		}
		var made berth.Container
		if n%2 == 0 {
			err = w.post("/containers/"+string(c.ID)+"/fork", map[string]any{}, &made)
		} else {
			var s berth.Snapshot
			if err = w.post("/containers/"+string(c.ID)+"/snapshots", map[string]any{}, &s); err == nil {
				err = w.post("/containers", map[string]any{"name": w.name,
					"berth": map[string]any{"snapshot_id": s.ID}}, &made)
			}
			defer func() { _ = w.remove("/snapshots/" + string(s.ID)) }() // others may use it until then
		}
		if err != nil {
			return err
		}
		if r, err = w.foreground(shell(inContainer(string(made.ID)), fence("sha256sum <word"))); err != nil {
			return err
		}
		if err := r.want(sum + "  -\n"); err != nil {
			return fmt.Errorf("copy %d of %s: %w", n, c.ID, err)
		}
		if err := w.remove("/containers/" + string(made.ID)); err != nil {
			return err
		}
		w.done.add("copies of containers")
	}
	return w.remove("/containers/" + string(c.ID))
}

// messages sends messages by Anthropic's API.
func (w *worker) messages() error {
	for n := 0; !w.stopped(); n++ {
		word := fmt.Sprintf("%s.%d", w.name, n)
		var answer struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
			StopReason string `json:"stop_reason"`
		}
		if err := w.post("/messages", map[string]any{"model": "scripted", "max_tokens": 100,
			"messages": []any{map[string]any{"role": "user", "content": word}}}, &answer); err != nil {
			return err
		}
		if len(answer.Content) != 1 || answer.Content[0].Text != word || answer.StopReason != "end_turn" {
			return fmt.Errorf("the answer to %s is %+v", word, answer)
		}
		w.done.add("messages")
	}
	return nil
}

// talk adds to a conversation. At the end its items are there once, in order.
func (w *worker) talk() error {
	var conversation struct {
		ID string `json:"id"`
	}
	if err := w.post("/conversations", map[string]any{}, &conversation); err != nil {
		return err
	}
	var want []string
	for n := 0; !w.stopped(); n++ {
		word := fmt.Sprintf("%s.%d", w.name, n)
		r, err := w.background(map[string]any{"model": "scripted", "input": word, "conversation": conversation.ID})
		if err != nil {
			return err
		}
		if r.Status != berth.StatusCompleted {
			return fmt.Errorf("%s is %s: %s", r.ID, r.Status, r.Error)
		}
		want = append(want, word, word)
		w.done.add("messages in conversations")
	}
	var got []string
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				ID      string       `json:"id"`
				Status  berth.Status `json:"status"`
				Content []struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"data"`
			HasMore bool   `json:"has_more"`
			LastID  string `json:"last_id"`
		}
		if err := w.get("/conversations/"+conversation.ID+"/items?order=asc&limit=100"+cursor, &page); err != nil {
			return err
		}
		for _, it := range page.Data {
			if it.Status == berth.StatusIncomplete {
				continue // half said when the server was killed; the whole message follows
			}
			got = append(got, it.Content[0].Text)
		}
		if !page.HasMore {
			break
		}
		cursor = "&after=" + page.LastID
	}
	if !equalStrings(got, want) {
		return fmt.Errorf("%s has %d items %q, want %d %q", conversation.ID, len(got), got, len(want), want)
	}
	return w.remove("/conversations/" + conversation.ID)
}
