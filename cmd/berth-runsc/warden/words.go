package warden

import (
	"os"
)

// wordsLimit bounds the part of a log that is returned.
const wordsLimit = 2048

// lastWords returns the ends of the sandbox's logs, which are untrusted: the sandbox may have written to them.
func lastWords() string {
	words := ""
	for _, name := range []string{"runsc.log", "panic.log"} {
		f, err := os.Open(runDir + "/log/" + name)
		if err != nil {
			continue
		}
		if fi, err := f.Stat(); err == nil && fi.Size() > 0 {
			buf := make([]byte, min(fi.Size(), wordsLimit))
			n, _ := f.ReadAt(buf, fi.Size()-int64(len(buf)))
			words += name + ": " + string(buf[:n]) + "\n"
		}
		f.Close()
	}
	return words
}
