package desktop

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A keysym is the X11 number of a key's meaning.
type keysym = uint32

const (
	symShift  keysym = 0xffe1
	symReturn keysym = 0xff0d
	symTab    keysym = 0xff09
)

// symbols are the keysyms of keys that models name, in lower case without _ and -.
var symbols = map[string]keysym{
	"ctrl": 0xffe3, "control": 0xffe3, "ctrlleft": 0xffe3, "controlleft": 0xffe3, "ctrlright": 0xffe4,
	"controlright": 0xffe4, "controll": 0xffe3, "controlr": 0xffe4,
	"shift": symShift, "shiftleft": symShift, "shiftl": symShift, "shiftright": 0xffe2, "shiftr": 0xffe2,
	"alt": 0xffe9, "option": 0xffe9, "altleft": 0xffe9, "altl": 0xffe9, "altright": 0xffea, "altr": 0xffea,
	"altgr": 0xfe03,
	"cmd":   0xffeb, "command": 0xffeb, "meta": 0xffeb, "super": 0xffeb, "win": 0xffeb, "windows": 0xffeb,
	"superl": 0xffeb, "superr": 0xffec,
	"enter": symReturn, "return": symReturn, "tab": symTab, "esc": 0xff1b, "escape": 0xff1b, "space": ' ',
	"spacebar":  ' ',
	"backspace": 0xff08, "del": 0xffff, "delete": 0xffff, "insert": 0xff63, "home": 0xff50, "end": 0xff57,
	"pageup": 0xff55, "pgup": 0xff55, "prior": 0xff55, "pagedown": 0xff56, "pgdn": 0xff56, "next": 0xff56,
	"left": 0xff51, "up": 0xff52, "right": 0xff53, "down": 0xff54, "arrowleft": 0xff51, "arrowup": 0xff52,
	"arrowright": 0xff53, "arrowdown": 0xff54,
	"capslock": 0xffe5, "numlock": 0xff7f, "scrolllock": 0xff14, "pause": 0xff13, "printscreen": 0xff61,
	"print": 0xff61, "menu": 0xff67, "contextmenu": 0xff67,
	"plus": '+', "minus": '-', "comma": ',', "period": '.', "slash": '/', "backslash": '\\', "equal": '=',
	"semicolon": ';',
}

func init() {
	for i := range 24 {
		symbols[fmt.Sprintf("f%d", i+1)] = 0xffbe + keysym(i)
	}
}

// symbolOf returns the keysym of a character.
func symbolOf(r rune) keysym {
	switch {
	case r == '\n' || r == '\r':
		return symReturn
	case r == '\t':
		return symTab
	case r >= 0x20 && r < 0x7f || r >= 0xa0 && r <= 0xff:
		return keysym(r)
	}
	return 0x01000000 | keysym(r)
}

// keysOf returns the keysyms of the names of keys that are pressed together. A name may be
// several keys that + joins, such as ctrl+c.
func keysOf(names []string) ([]keysym, error) {
	var all []keysym
	for _, name := range names {
		parts := []string{name}
		if utf8.RuneCountInString(name) > 1 && strings.Contains(name, "+") {
			parts = strings.Split(name, "+")
		}
		for _, part := range parts {
			sym, ok := symbolNamed(part)
			if !ok {
				return nil, fmt.Errorf("there is no key %q", clip(part))
			}
			all = append(all, sym)
		}
	}
	if len(all) > maxKeys {
		return nil, fmt.Errorf("%d keys at once; %d are allowed", len(all), maxKeys)
	}
	return all, nil
}

func symbolNamed(name string) (keysym, bool) {
	if r, n := utf8.DecodeRuneInString(name); n == len(name) && n > 0 && r != utf8.RuneError {
		if r >= 'A' && r <= 'Z' { // models write CTRL and C for the shortcut, which has no shift
			r += 'a' - 'A'
		}
		return symbolOf(r), true
	}
	sym, ok := symbols[strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))]
	return sym, ok
}

// clip shortens a text of a model for a message.
func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}

// A keyboard is the keyboard of a display: which keys have which symbols.
type keyboard struct {
	per  int               // symbols of each key
	at   map[keysym]stroke // where a symbol is
	free []byte            // keycodes without symbols
	next int               // in free, the key that gets the next new symbol
}

// A stroke is a key, perhaps with shift.
type stroke struct {
	code  byte
	shift bool
}

// settleKeys is the time that programs have to receive new symbols of keys.
const settleKeys = 60 * time.Millisecond

// keyboard returns the display's keyboard.
func (d *display) keyboard() (*keyboard, error) {
	if d.keys != nil {
		return d.keys, nil
	}
	count := int(d.maxKey) - int(d.minKey) + 1
	reply, err := d.ask(request(opKeys, 0, []byte{d.minKey, byte(count), 0, 0}), 4*255*256)
	if err != nil {
		return nil, err
	}
	k := &keyboard{per: int(reply[1]), at: map[keysym]stroke{}}
	if k.per < 1 || len(reply) < 32+4*k.per*count {
		return nil, fmt.Errorf("the X server sent an invalid keyboard")
	}
	for i := range count {
		code, empty := d.minKey+byte(i), true
		for level := range k.per {
			sym := order.Uint32(reply[32+4*(i*k.per+level):])
			if sym == 0 {
				continue
			}
			empty = false
			if _, known := k.at[sym]; !known && level < 2 {
				k.at[sym] = stroke{code, level == 1}
			}
		}
		if empty {
			k.free = append(k.free, code)
		}
	}
	d.keys = k
	return k, nil
}

// provide makes sure that keys have all of the symbols. There are at most as many as free keys.
func (d *display) provide(k *keyboard, symbols []keysym) error {
	needed := map[byte]bool{}
	for _, sym := range symbols {
		if s, known := k.at[sym]; known {
			needed[s.code] = true
		}
	}
	changed := false
	for _, sym := range symbols {
		if _, known := k.at[sym]; known {
			continue
		}
		code, ok := k.take(needed)
		if !ok {
			return refuse("the display's keyboard has no free key for the character %q", rune(sym&0xffffff))
		}
		for old, s := range k.at {
			if s.code == code {
				delete(k.at, old)
			}
		}
		k.at[sym] = stroke{code: code}
		pair := append(u32(sym), u32(sym)...) // with and without shift
		if err := d.send(request(opChangeKeys, 1, []byte{code, 2, 0, 0}, pair)); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	if err := d.sync(); err != nil {
		return err
	}
	time.Sleep(settleKeys)
	return nil
}

// take returns a free key that is not needed, and marks it as needed.
func (k *keyboard) take(needed map[byte]bool) (byte, bool) {
	for range k.free {
		code := k.free[k.next%len(k.free)]
		k.next++
		if !needed[code] {
			needed[code] = true
			return code, true
		}
	}
	return 0, false
}

// press presses or releases the key of a symbol that provide has provided.
func (d *display) press(k *keyboard, sym keysym, kind byte) error {
	return d.fake(kind, k.at[sym].code, 0, 0)
}

// typeText types a text.
func (d *display) typeText(text string, stopped func() error) error {
	k, err := d.keyboard()
	if err != nil {
		return err
	}
	runes := []rune(strings.ReplaceAll(text, "\r\n", "\n"))
	for len(runes) > 0 {
		if err := stopped(); err != nil {
			return err
		}
		n := d.batch(k, runes)
		symbols := make([]keysym, n)
		for i, r := range runes[:n] {
			symbols[i] = symbolOf(r)
		}
		if err := d.provide(k, symbols); err != nil {
			return err
		}
		for _, sym := range symbols {
			s := k.at[sym]
			if s.shift {
				err = d.press(k, symShift, keyPress)
			}
			if err == nil {
				err = d.fake(keyPress, s.code, 0, 0)
			}
			if err == nil {
				err = d.fake(keyRelease, s.code, 0, 0)
			}
			if err == nil && s.shift {
				err = d.press(k, symShift, keyRelease)
			}
			if err != nil {
				return err
			}
		}
		if err := d.sync(); err != nil {
			return err
		}
		runes = runes[n:]
	}
	return nil
}

// batch returns how many characters of a text are typed at a time: few enough that programs
// keep up, and that free keys suffice for their symbols.
func (d *display) batch(k *keyboard, runes []rune) int {
	const most = 100
	missing := map[keysym]bool{}
	for n, r := range runes[:min(most, len(runes))] {
		sym := symbolOf(r)
		if s, known := k.at[sym]; !known || isFree(k, s.code) {
			missing[sym] = true
		}
		if len(missing) > max(1, len(k.free)) {
			return n
		}
	}
	return min(most, len(runes))
}

// isFree reports whether a keycode had no symbol at first, so that it can get another one.
func isFree(k *keyboard, code byte) bool {
	for _, c := range k.free {
		if c == code {
			return true
		}
	}
	return false
}
