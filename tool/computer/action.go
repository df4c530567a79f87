package computer

import (
	"errors"
	"fmt"
	"math"

	"github.com/berth-run/berth"
)

// A modelAction action is an action as a model writes it: any field may be missing, and
// coordinates may have fractions.
type modelAction struct {
	Type    string         `json:"type"`
	Button  string         `json:"button,omitempty"`
	X       *float64       `json:"x,omitempty"`
	Y       *float64       `json:"y,omitempty"`
	ScrollX *float64       `json:"scroll_x,omitempty"`
	ScrollY *float64       `json:"scroll_y,omitempty"`
	Path    []writtenPoint `json:"path,omitempty"`
	Keys    []string       `json:"keys,omitempty"`
	Text    *string        `json:"text,omitempty"`
}

type writtenPoint struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

var buttons = map[string]bool{"left": true, "right": true, "wheel": true, "back": true, "forward": true}

// action returns the action with exactly the fields of its type. The display of screen
// bounds coordinates, if it is known.
func (w modelAction) action(screen berth.ComputerTool) (berth.ComputerAction, error) {
	out := berth.ComputerAction{Type: w.Type}
	var err error
	switch w.Type {
	case berth.ActionClick:
		if out.Button = w.Button; out.Button == "" {
			out.Button = "left"
		}
		if !buttons[out.Button] {
			return out, fmt.Errorf("there is no button %q; use left, right, wheel, back or forward", w.Button)
		}
		out.Keys = held(w.Keys)
		err = w.at(&out, screen)
	case berth.ActionDoubleClick:
		keys := w.Keys
		out.Keys = &keys // the wire requires the field; it may be null
		err = w.at(&out, screen)
	case berth.ActionMove:
		out.Keys = held(w.Keys)
		err = w.at(&out, screen)
	case berth.ActionScroll:
		out.Keys, out.ScrollX, out.ScrollY = held(w.Keys), whole(w.ScrollX), whole(w.ScrollY)
		err = w.at(&out, screen)
	case berth.ActionDrag:
		out.Keys = held(w.Keys)
		err = w.drag(&out, screen)
	case berth.ActionKeypress:
		if len(w.Keys) == 0 {
			return out, errors.New(`a keypress needs "keys"`)
		}
		out.Keys = &w.Keys
	case berth.ActionType:
		if w.Text == nil {
			return out, errors.New(`type needs "text"`)
		}
		out.Text = w.Text
	case berth.ActionScreenshot, berth.ActionWait:
	default:
		err = fmt.Errorf("there is no action of type %q", w.Type)
	}
	return out, err
}

// held returns the keys that are held during an action, or nil.
func held(keys []string) *[]string {
	if len(keys) == 0 {
		return nil
	}
	return &keys
}

// at sets the coordinates.
func (w modelAction) at(out *berth.ComputerAction, screen berth.ComputerTool) error {
	if w.X == nil || w.Y == nil {
		return fmt.Errorf(`%s needs "x" and "y"`, w.Type)
	}
	out.X, out.Y = whole(w.X), whole(w.Y)
	return within(*out.X, *out.Y, screen)
}

// drag sets the path.
func (w modelAction) drag(out *berth.ComputerAction, screen berth.ComputerTool) error {
	if len(w.Path) < 2 {
		return errors.New(`a drag needs a "path" of at least two points`)
	}
	for _, p := range w.Path {
		point := berth.Point{X: *whole(&p.X), Y: *whole(&p.Y)}
		if err := within(point.X, point.Y, screen); err != nil {
			return err
		}
		out.Path = append(out.Path, point)
	}
	return nil
}

// within refuses a place that is not on the display.
func within(x, y int, screen berth.ComputerTool) error {
	if x < 0 || y < 0 {
		return fmt.Errorf("the place (%d, %d) is not on the display", x, y)
	}
	if w, h := screen.DisplayWidth, screen.DisplayHeight; w > 0 && h > 0 && (x >= w || y >= h) {
		return fmt.Errorf("the place (%d, %d) is not on the display of %d × %d pixels", x, y, w, h)
	}
	return nil
}

// maxPixels bounds a number that a model writes.
const maxPixels = 1 << 20

// whole rounds a number of pixels; nil counts as zero.
func whole(f *float64) *int {
	n := 0
	if f != nil {
		n = int(math.Round(min(max(*f, -maxPixels), maxPixels)))
	}
	return &n
}
