package computer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // the formats of screenshots
	"image/png"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/tool"
)

// The outcomes of a call that did not end well; see berth.ComputerOutputBerth.
const (
	outcomeFailed  = "failed"
	outcomeTimeout = "timeout"
)

// Bounds on what a container sends of a call.
const (
	maxScreenshot = 3 << 20 // bytes
	maxMessage    = 500     // bytes
)

// cancelGrace bounds the time to end a cancelled call.
const cancelGrace = 5 * time.Second

// blank is an empty image, for a call without a screenshot.
var blank = func() string {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 32))); err != nil {
		panic(err) // the image is valid
	}
	return dataURL("image/png", b.Bytes())
}()

func dataURL(media string, data []byte) string {
	return "data:" + media + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// A resumedOutput is an output item that an earlier process added.
type resumedOutput struct {
	id    string
	index int
}

// Run implements tool.Call. The guest identifies the call by the item's id, and carries out the
// actions of an id once.
func (c *call) Run(ctx context.Context, out tool.Emitter) error {
	item := berth.ComputerCallOutput{ID: berth.NewID(berth.PrefixComputerOutput), Type: berth.ItemComputerCallOutput,
		Status: berth.StatusInProgress,
		CallID: c.item.CallID, Output: berth.Screenshot{Type: "computer_screenshot", ImageURL: blank},
		AcknowledgedSafetyChecks: c.item.PendingSafetyChecks}
	index := 0
	if c.output != nil {
		item.ID, index = c.output.id, c.output.index
	} else {
		var err error
		if index, err = out.Add(ctx, berth.NewItem(item)); err != nil {
			return err
		}
	}
	shot, failure, err := c.exec(ctx)
	item.Status = berth.StatusCompleted
	if err != nil {
		if errors.Is(err, tool.ErrDetached) {
			return err
		}
		item.Status = berth.StatusIncomplete
		failure = &berth.ComputerOutputBerth{Outcome: outcomeFailed, Message: "The call was cancelled."}
	}
	if item.Berth = failure; shot != "" {
		item.Output.ImageURL = shot
	} else {
		item.Berth.Blank = true
	}
	done, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	if derr := out.Done(done, index, berth.NewItem(item)); derr != nil || err != nil {
		return errors.Join(err, derr)
	}
	c.tool.exec.Forget(ctx, c.item.ID)
	return nil
}

// exec carries out the actions. It returns the screenshot as a data: URL, or why there is none. If
// one action fails, the call may have both. An error means that the call has no result,
// because the server stops or the call was cancelled.
func (c *call) exec(ctx context.Context) (shot string, failure *berth.ComputerOutputBerth, err error) {
	actions, err := json.Marshal(allOf(c.item))
	if err != nil {
		return "", nil, fmt.Errorf("encode actions: %w", err)
	}
	desktop := c.tool.desktop()
	run := guest.ShellCall{CallID: c.item.ID, Commands: []string{string(actions)}, Timeout: c.tool.limits.Timeout,
		Desktop: &desktop}
	var picture, message []byte
	var end *guest.ShellEvent
	for ev, err := range c.tool.exec.Shell(ctx, run) {
		if err != nil {
			if ctx.Err() == nil {
				return "", failed("The call was interrupted. " + reason(err)), nil
			}
			return "", nil, c.cancel(ctx)
		}
		switch ev.Kind {
		case guest.ShellStdout:
			if len(picture)+len(ev.Data) <= maxScreenshot && ev.Skipped == 0 {
				picture = append(picture, ev.Data...)
			}
		case guest.ShellStderr:
			message = append(message, ev.Data[:min(len(ev.Data), maxMessage-len(message))]...)
		case guest.ShellExit, guest.ShellTimeout:
			end = &ev
		}
	}
	switch {
	case end == nil:
		return "", failed("The call was interrupted. The container stopped answering."), nil
	case end.Kind == guest.ShellTimeout:
		return "", &berth.ComputerOutputBerth{Outcome: outcomeTimeout,
			Message: fmt.Sprintf("The actions were ended after %v.", c.tool.limits.Timeout)}, nil
	}
	if end.ExitCode != 0 {
		text := strings.TrimSpace(strings.ToValidUTF8(string(message), ""))
		if text == "" {
			text = "the container gave no reason"
		}
		failure = failed("The call failed: " + text)
	}
	shot, err = screenshot(picture)
	if err != nil && failure == nil {
		failure = failed("The container sent no usable screenshot: " + err.Error() + ".")
	}
	return shot, failure, nil
}

func failed(message string) *berth.ComputerOutputBerth {
	return &berth.ComputerOutputBerth{Outcome: outcomeFailed, Message: message}
}

// screenshot returns the picture of a container as a data: URL, if it is a PNG or JPEG image of a
// display's size. The container may send anything.
func screenshot(picture []byte) (string, error) {
	if len(picture) == 0 {
		return "", errors.New("it is missing")
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		return "", errors.New("it is no image")
	}
	if min(config.Width, config.Height) < 1 || max(config.Width, config.Height) > maxSide {
		return "", fmt.Errorf("it has %d × %d pixels", config.Width, config.Height)
	}
	return dataURL("image/"+format, picture), nil
}

// cancel ends the call in the container, unless another process will resume it.
func (c *call) cancel(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, tool.ErrDetached) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	return errors.Join(cause, c.tool.exec.Cancel(ctx, c.item.ID))
}

// allOf returns the actions of a call of either tool.
func allOf(c berth.ComputerCall) []berth.ComputerAction {
	if c.Action != nil {
		return []berth.ComputerAction{*c.Action}
	}
	return c.Actions
}

// reason returns the part of an error that the model may see.
func reason(err error) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return "The container stopped answering."
}
