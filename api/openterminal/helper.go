package openterminal

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

//go:embed helper.py
var helper string

// Limits of the helper.
const (
	helperTime  = time.Minute
	archiveTime = time.Hour
	maxAnswer   = 32 << 20  // bytes
	inputPiece  = 256 << 10 // bytes of a request that are sent at a time
)

// exitNotFound is the exit code of a program that the container does not have.
const exitNotFound = 127

// statuses are what the helper may answer.
var statuses = []int{http.StatusOK, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound,
	http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
	http.StatusInsufficientStorage}

// An answer is what the helper prints. It comes from the container, so it is not trusted.
type answer struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// A task is what the helper is asked: the name of a task in "do", and its arguments.
type task map[string]any

// do has the helper carry out a task, and answers with its answer.
func (v *visit) do(t task) error {
	body, err := v.ask(t)
	if err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, body)
}

// ask has the helper carry out a task.
func (v *visit) ask(t task) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(v.r.Context(), helperTime)
	defer cancel()
	var out bytes.Buffer
	err := v.run(ctx, t, func(data []byte) error {
		if out.Len()+len(data) > maxAnswer {
			return berth.Errorf(berth.CodeTooLarge, "The answer is larger than %d bytes. Ask for less.", maxAnswer)
		}
		out.Write(data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return parse(out.Bytes())
}

// parse checks an answer of the helper.
func parse(line []byte) (json.RawMessage, error) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil || !slices.Contains(statuses, a.Status) || len(a.Body) == 0 {
		return nil, berth.Errorf(berth.CodeUnavailable,
			"The files of the container could not be used: its python3 does not work as expected.")
	}
	if a.Status != http.StatusOK {
		return nil, &plain{a.Status, a.Body}
	}
	return a.Body, nil
}

// run runs the helper and passes on what it prints. If print fails, or the client is gone, the helper ends.
func (v *visit) run(ctx context.Context, t task, print func([]byte) error) error {
	request, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode task: %w", err)
	}
	p, err := v.client.Start(ctx, guest.ProcessRequest{Cmd: "/bin/sh", Args: []string{"-c",
		`exec python3 -I -S -c "$0"`, helper}, Dir: "/", In: true})
	if err != nil {
		return v.guestError(err)
	}
	kill := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = p.Kill(ctx) // it has ended, or the container has
	}
	defer context.AfterFunc(ctx, kill)()
	sent := make(chan error, 1)
	go func() {
		for piece := range slices.Chunk(request, inputPiece) {
			if err := p.Write(ctx, piece); err != nil {
				sent <- err
				return
			}
		}
		sent <- p.CloseStdin(ctx)
	}()
	code, stderr := -1, []byte(nil)
	for ev, eventErr := range p.Events() {
		switch {
		case eventErr != nil && err == nil:
			err = v.guestError(eventErr)
		case ev.Ended:
			code = ev.ExitCode
		}
		if room := 1024 - len(stderr); room > 0 {
			stderr = append(stderr, ev.Stderr[:min(room, len(ev.Stderr))]...)
		}
		if len(ev.Stdout) > 0 && err == nil {
			if err = print(ev.Stdout); err != nil {
				kill()
			}
		}
	}
	switch {
	case err != nil:
	case ended(v.r.Context()) != nil:
		return ended(v.r.Context())
	case ctx.Err() != nil:
		return berth.Errorf(berth.CodeUnavailable, "This took longer than a minute. Ask for less, or use run_command.")
	case code == exitNotFound:
		return &plain{http.StatusNotImplemented, detail{"The template of the container has no python3, which this needs."}}
	case code != 0:
		v.door.Log.Debug("the helper of a container failed", "container", v.owner.Container, "stderr", string(stderr))
		return berth.Errorf(berth.CodeUnavailable, "The files of the container could not be used.")
	}
	if sendErr := <-sent; sendErr != nil && err == nil && code != 0 {
		err = v.guestError(sendErr)
	}
	return err
}
