package jupyter

import "strings"

// EndCode is the code of a call that ends the process of its kernel, with all variables. Other code contains
// no NUL.
const EndCode = "\x00end"

// Instance returns the name of another process of a kernel, beside the one that the kernel's own name means. It
// starts in a directory, by default the user's home, and displays typed charts and data (formatters.py). id has
// no slash.
func Instance(kernel, id, dir string) string { return kernel + "/" + id + "/" + dir }

// ParseInstance returns the parts of a name of Instance. own is false for the name of a kernel.
func ParseInstance(name string) (kernel, dir string, own bool) {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 {
		return name, "", false
	}
	return parts[0], parts[2], true
}

// wrapped starts code that Wrap returned.
const wrapped = "\x00wrapped\n"

// Wrap returns the code of a call that runs before and after its code, silently.
func Wrap(before, code, after string) string {
	return wrapped + before + "\x00" + code + "\x00" + after
}

// Unwrap returns the parts of a result of Wrap, or only code.
func Unwrap(text string) (before, code, after string) {
	rest, ok := strings.CutPrefix(text, wrapped)
	parts := strings.Split(rest, "\x00")
	if !ok || len(parts) != 3 {
		return "", text, ""
	}
	return parts[0], parts[1], parts[2]
}
