package desktop

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Bounds on one call.
const (
	maxActions = 100
	maxText    = 10_000 // characters of a "type"
	maxKeys    = 10     // pressed together
	maxPath    = 1000   // points of a drag
	maxClicks  = 50     // of the wheel, for each direction of a scroll
)

// Times of actions.
const (
	waitTime  = time.Second            // of a "wait"
	dragHold  = 100 * time.Millisecond // at both ends of a drag, with the button pressed
	dragStep  = 8 * time.Millisecond   // between the moves of a drag
	clickHold = 10 * time.Millisecond  // between two clicks of a double click
)

// wheelPixels is the distance that browsers scroll for one click of the wheel.
const wheelPixels = 120

// An Action is one action of a computer_call, in the JSON of OpenAI's API. Coordinates are
// pixels from the top left corner.
type Action struct {
	Type    string   `json:"type"`
	Button  string   `json:"button"`
	X       int      `json:"x"`
	Y       int      `json:"y"`
	ScrollX int      `json:"scroll_x"`
	ScrollY int      `json:"scroll_y"`
	Path    []Point  `json:"path"`
	Keys    []string `json:"keys"`
	Text    string   `json:"text"`
}

// A Point is a place on the screen.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// The buttons of a mouse, by their names in the API.
var buttons = map[string]byte{"": 1, "left": 1, "wheel": 2, "right": 3, "back": 8, "forward": 9}

// A refusal is an action that cannot be carried out. Its text is for the model.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// refuse returns a refusal.
func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// check refuses actions that do not fit the display, before the first is carried out.
func (d *display) check(actions []Action) error {
	if len(actions) > maxActions {
		return refuse("the call has %d actions; %d are allowed", len(actions), maxActions)
	}
	for i, a := range actions {
		if err := d.checkOne(a); err != nil {
			return refuse("action %d: %w", i+1, err)
		}
	}
	return nil
}

func (d *display) checkOne(a Action) error {
	points := a.Path
	switch a.Type {
	case "click":
		if buttons[a.Button] == 0 {
			return fmt.Errorf("there is no button %q", clip(a.Button))
		}
		points = []Point{{a.X, a.Y}}
	case "double_click", "move", "scroll":
		points = []Point{{a.X, a.Y}}
	case "drag":
		if len(a.Path) < 2 || len(a.Path) > maxPath {
			return fmt.Errorf("a drag has %d points; 2 to %d are allowed", len(a.Path), maxPath)
		}
	case "type":
		points = nil
		if n := utf8.RuneCountInString(a.Text); n > maxText {
			return fmt.Errorf("the text has %d characters; %d are allowed in one action", n, maxText)
		}
		if !utf8.ValidString(a.Text) {
			return errors.New("the text is not valid UTF-8")
		}
	case "keypress":
		if len(a.Keys) == 0 {
			return errors.New("a keypress has no keys")
		}
		points = nil
	case "screenshot", "wait":
		points = nil
	default:
		return fmt.Errorf("there is no action of type %q", clip(a.Type))
	}
	for _, p := range points {
		if p.X < 0 || p.Y < 0 || p.X >= d.width || p.Y >= d.height {
			return fmt.Errorf("the place (%d, %d) is not on the display of %d × %d pixels", p.X, p.Y, d.width, d.height)
		}
	}
	_, err := keysOf(a.Keys)
	return err
}

// changes reports whether an action may change the screen.
func (a Action) changes() bool { return a.Type != "screenshot" && a.Type != "wait" }

// act carries out an action that check has accepted. stopped returns an error once the call
// is to end.
func (d *display) act(a Action, stopped func() error) error {
	switch a.Type {
	case "wait":
		return sleep(waitTime, stopped)
	case "screenshot":
		return nil
	case "type":
		return d.typeText(a.Text, stopped)
	}
	keys, err := keysOf(a.Keys)
	if err != nil {
		return err
	}
	return d.holding(keys, func() error {
		if a.Type == "keypress" {
			return nil
		}
		return d.mouse(a, stopped)
	})
}

// holding presses keys, does something, and releases the keys.
func (d *display) holding(keys []keysym, do func() error) error {
	if len(keys) == 0 {
		return do()
	}
	k, err := d.keyboard()
	if err != nil {
		return err
	}
	if err := d.provide(k, keys); err != nil {
		return err
	}
	pressed := 0
	var all []stroke
	for _, sym := range keys {
		all = append(all, k.at[sym])
	}
	shift := k.at[symShift].code
	for _, s := range all {
		if s.shift { // such as ? on a keyboard where it needs shift
			err = errors.Join(err, d.fake(keyPress, shift, 0, 0))
		}
		err = errors.Join(err, d.fake(keyPress, s.code, 0, 0))
		pressed++
	}
	if err == nil {
		err = do()
	}
	for i := pressed - 1; i >= 0; i-- {
		err = errors.Join(err, d.fake(keyRelease, all[i].code, 0, 0))
		if all[i].shift {
			err = errors.Join(err, d.fake(keyRelease, shift, 0, 0))
		}
	}
	return errors.Join(err, d.sync())
}

// mouse carries out an action of the mouse.
func (d *display) mouse(a Action, stopped func() error) error {
	if a.Type == "drag" {
		return d.drag(a.Path, stopped)
	}
	if err := d.fake(motion, 0, a.X, a.Y); err != nil {
		return err
	}
	switch a.Type {
	case "click":
		return d.click(buttons[a.Button])
	case "double_click":
		if err := d.click(1); err != nil {
			return err
		}
		time.Sleep(clickHold)
		return d.click(1)
	case "scroll":
		if err := d.wheel(a.ScrollY, 4, 5); err != nil {
			return err
		}
		return d.wheel(a.ScrollX, 6, 7)
	}
	return d.sync()
}

func (d *display) click(button byte) error {
	if err := d.fake(buttonPress, button, 0, 0); err != nil {
		return err
	}
	if err := d.fake(buttonRelease, button, 0, 0); err != nil {
		return err
	}
	return d.sync()
}

// wheel scrolls by clicks of the wheel, which are the buttons less and more.
func (d *display) wheel(pixels int, less, more byte) error {
	button := more
	if pixels < 0 {
		button, pixels = less, -pixels
	}
	clicks := min(maxClicks, int(math.Ceil(float64(pixels)/wheelPixels)))
	for range clicks {
		if err := d.click(button); err != nil {
			return err
		}
	}
	return nil
}

// drag moves the mouse along a path with the left button pressed. Programs see moves between
// the points, as those of a hand.
func (d *display) drag(path []Point, stopped func() error) error {
	if err := d.fake(motion, 0, path[0].X, path[0].Y); err != nil {
		return err
	}
	if err := d.fake(buttonPress, 1, 0, 0); err != nil {
		return err
	}
	err := sleep(dragHold, stopped)
	if err == nil {
		err = d.along(path, stopped)
	}
	if err == nil {
		err = sleep(dragHold, stopped)
	}
	return errors.Join(err, d.fake(buttonRelease, 1, 0, 0), d.sync())
}

func (d *display) along(path []Point, stopped func() error) error {
	const between = 4
	for i, to := range path[1:] {
		from := path[i]
		for n := 1; n <= between; n++ {
			x, y := from.X+(to.X-from.X)*n/between, from.Y+(to.Y-from.Y)*n/between
			if err := d.fake(motion, 0, x, y); err != nil {
				return err
			}
			if err := sleep(dragStep, stopped); err != nil {
				return err
			}
		}
	}
	return d.sync()
}

// sleep waits, unless the call is to end.
func sleep(wait time.Duration, stopped func() error) error {
	const step = 50 * time.Millisecond
	for wait > 0 {
		if err := stopped(); err != nil {
			return err
		}
		time.Sleep(min(step, wait))
		wait -= step
	}
	return nil
}
