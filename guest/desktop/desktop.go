// Package desktop controls a graphical desktop in the sandbox: it connects to an X server,
// makes events of mouse and keyboard, and takes screenshots.
package desktop

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Number is the number of the X display that a desktop has.
const Number = 0

// Times for which a screenshot waits, so that it shows what the actions caused, and the next
// action, because Chromium 156 loses clicks that another action follows immediately.
const (
	reaction = 70 * time.Millisecond  // for the first change
	quiet    = 35 * time.Millisecond  // without a change
	between  = 250 * time.Millisecond // before the next action
	settled  = 600 * time.Millisecond // at most, if the screen does not come to rest
	ready    = 8 * time.Second        // for the window manager of a new desktop
)

// A Screen is a connection to a desktop. One goroutine uses it at a time.
type Screen struct{ display *display }

// Connect connects to the X server of a display. It does not wait for one.
func Connect(number int) (*Screen, error) {
	d, err := dial(number)
	if err != nil {
		return nil, err
	}
	return &Screen{d}, nil
}

// Close closes the connection.
func (s *Screen) Close() { s.display.close() }

// Alive reports whether the X server answers.
func (s *Screen) Alive() bool { return s.display.sync() == nil }

// Size returns the size of the screen in pixels.
func (s *Screen) Size() (width, height int) { return s.display.width, s.display.height }

// AwaitReady waits until the desktop has its window manager and has been drawn. If that takes too
// long, the desktop is used as it is.
func (s *Screen) AwaitReady(stopped func() error) error {
	for until := time.Now().Add(ready); time.Now().Before(until); {
		ok, err := s.display.managed()
		if err != nil {
			return fmt.Errorf("wait for the window manager: %w", err)
		}
		if ok {
			return s.settle(5 * reaction)
		}
		if err := sleep(20*time.Millisecond, stopped); err != nil {
			return err
		}
	}
	return nil
}

// Act carries out actions in order. An action that does not fit the display is refused before
// the first is carried out; Refused reports that. stopped returns an error once the call is to
// end.
func (s *Screen) Act(actions []Action, stopped func() error) error {
	d := s.display
	if err := d.check(actions); err != nil {
		return err
	}
	for i, a := range actions {
		if err := stopped(); err != nil {
			return err
		}
		last := a.changes() && !slices.ContainsFunc(actions[i+1:], Action.changes)
		if last {
			if err := d.rearm(); err != nil {
				return fmt.Errorf("watch the display: %w", err)
			}
		}
		if err := d.act(a, stopped); err != nil {
			return fmt.Errorf("action %d: %w", i+1, err)
		}
		var err error
		switch {
		case last:
			err = s.settle(reaction)
		case a.changes():
			err = sleep(between, stopped)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the screen has come to rest after it changes, or until it does not change
// for the duration first.
func (s *Screen) settle(first time.Duration) error {
	until := time.Now().Add(settled)
	for wait := first; ; wait = quiet {
		changed, err := s.display.awaitDamage(wait)
		if err != nil {
			return fmt.Errorf("watch the display: %w", err)
		}
		if !changed || time.Now().After(until) {
			return nil
		}
		if err := s.display.rearm(); err != nil {
			return fmt.Errorf("watch the display: %w", err)
		}
	}
}

// Screenshot returns an image of the screen with the pointer, as PNG or JPEG.
func (s *Screen) Screenshot() ([]byte, error) {
	pixels, err := s.display.image()
	if err != nil {
		return nil, fmt.Errorf("take a screenshot: %w", err)
	}
	if err := s.display.drawPointer(pixels); err != nil {
		return nil, fmt.Errorf("read the pointer: %w", err)
	}
	return encode(pixels, s.display.width, s.display.height)
}

// Refused reports whether an error of Act means that an action is invalid. The connection is
// usable then.
func Refused(err error) bool { return errors.As(err, new(refusal)) }
