package image

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Phase is what a build is doing, or who adds an image. In a build Unpack and
// Configure come twice, for what every Debian has and for the rest.
type Phase string

// The phases of a build.
const (
	Download  Phase = "download"
	Unpack    Phase = "unpack"
	Configure Phase = "configure"
	Finish    Phase = "finish" // run the recipe's commands, read and keep what was built
)

// Progress is where a build is. It is told at every change of phase and else at
// most once a second.
type Progress struct {
	Phase       Phase
	Done, Total int    // packages, layers, or megabytes of an image's download; both 0 in Finish. Total may grow
	Step        string // what is being done, in words
	Elapsed     time.Duration
}

// tailLines is how much of a failed build's output its error shows.
const tailLines = 30

// maxLine bounds a line of the output, of which the rest is dropped.
const maxLine = 4096

// A meter reads the output of mmdebstrap --verbose and tells of the progress. It
// may be written from another goroutine.
type meter struct {
	tell  func(Progress) // may be nil
	began time.Time

	mu       sync.Mutex
	partial  []byte
	tail     []string
	required int // packages that every Debian has
	total    int
	done     map[Phase]int
	last     Phase
	lastTold time.Time
}

func newMeter(tell func(Progress)) *meter {
	return &meter{tell: tell, began: time.Now(), done: make(map[Phase]int)}
}

// Write takes output. Lines end with \n, or with \r where a bar is drawn over.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rest := p; len(rest) > 0; {
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			m.partial = append(m.partial, rest[:min(len(rest), maxLine-len(m.partial))]...)
			break
		}
		m.partial = append(m.partial, rest[:min(i, maxLine-len(m.partial))]...)
		if line := strings.TrimSpace(string(m.partial)); line != "" {
			m.line(line)
		}
		m.partial, rest = m.partial[:0], rest[i+1:]
	}
	return len(p), nil
}

// output returns the last lines.
func (m *meter) output() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.tail, "\n")
}

// finish tells of a step of the last phase.
func (m *meter) finish(step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = ""
	m.step(Finish, step)
}

var (
	// Get:7 http://deb.debian.org/debian bookworm/main amd64 jq amd64 1.6-2.1 [64.9 kB]
	getLine = regexp.MustCompile(`^Get:\d+ \S+ \S+ \S+ (\S+) \S+ \S+ \[`)
	// Unpacking jq (1.6-2.1) ...
	packageLine = regexp.MustCompile(`^(Unpacking|Setting up) (\S+) \(`)
	// 0 upgraded, 69 newly installed, 0 to remove and 0 not upgraded.
	totalLine = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed,`)
)

// line takes one line of output.
func (m *meter) line(line string) {
	if m.tail = append(m.tail, line); len(m.tail) > tailLines {
		m.tail = m.tail[1:]
	}
	if f := totalLine.FindStringSubmatch(line); f != nil {
		// First come those that every Debian has. The others are counted twice:
		// when they are downloaded, and when they are installed.
		n, _ := strconv.Atoi(f[1])
		if m.required == 0 {
			m.required = n
			n = 0
		}
		m.total = m.required + n
	} else if f := getLine.FindStringSubmatch(line); f != nil {
		m.count(Download, "downloading "+f[1])
	} else if f := packageLine.FindStringSubmatch(line); f != nil && f[1] == "Unpacking" {
		m.count(Unpack, "unpacking "+f[2])
	} else if f != nil {
		m.count(Configure, "setting up "+f[2])
	} else if strings.HasPrefix(line, "I: running apt-get update") {
		m.step(Download, "reading package lists")
	} else if strings.HasPrefix(line, "I: extracting archives") {
		m.step(Unpack, "extracting the required packages")
	} else if strings.HasPrefix(line, "I: running --customize-hook") {
		m.step(Finish, "running the recipe's commands")
	}
}

// count tells of one more package that is past a phase.
func (m *meter) count(p Phase, step string) {
	m.done[p]++
	m.step(p, step)
}

// step tells, unless it was told just now of the same phase.
func (m *meter) step(p Phase, step string) {
	now := time.Now()
	if m.tell == nil || p == m.last && now.Sub(m.lastTold) < time.Second {
		return
	}
	m.last, m.lastTold = p, now
	progress := Progress{Phase: p, Step: step, Elapsed: now.Sub(m.began)}
	if p != Finish {
		progress.Done, progress.Total = m.done[p], m.total
	}
	m.tell(progress)
}
