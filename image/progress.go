package image

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Phase is a stage of a build or of Add. A build goes through Unpack and Configure twice:
// for the packages that every Debian has, and for the others.
type Phase string

// The phases of a build.
const (
	Download  Phase = "download"
	Unpack    Phase = "unpack"
	Configure Phase = "configure"
	Finish    Phase = "finish" // run the recipe's commands, read and store the result
)

// The phases of Save.
const (
	Pack  Phase = "pack"  // make a layer of the template's files
	Write Phase = "write" // write the archive
)

// Progress is the progress of a build, of Add or of Save. It is reported at every change of phase,
// and otherwise at most once a second.
type Progress struct {
	Phase       Phase
	Done, Total int    // packages, layers, or megabytes of an image's download; both 0 in Finish; Total may grow
	Step        string // description, such as "unpacking jq"
	Elapsed     time.Duration
}

// tailLines is how many lines of output a failed build's error includes.
const tailLines = 30

// maxLine bounds a line of output. The rest of a longer line is dropped.
const maxLine = 4096

// A meter parses the output of mmdebstrap --verbose and reports progress. It is safe for
// concurrent use.
type meter struct {
	report  func(Progress) // may be nil
	started time.Time

	mu         sync.Mutex
	partial    []byte
	tail       []string
	required   int // packages that every Debian has
	total      int
	done       map[Phase]int
	last       Phase
	lastReport time.Time
}

func newMeter(report func(Progress)) *meter {
	return &meter{report: report, started: time.Now(), done: make(map[Phase]int)}
}

// Write parses output. Lines end with \n, or with \r in progress bars.
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

// finish reports a step of the last phase.
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

// line parses one line of output.
func (m *meter) line(line string) {
	if m.tail = append(m.tail, line); len(m.tail) > tailLines {
		m.tail = m.tail[1:]
	}
	if f := totalLine.FindStringSubmatch(line); f != nil {
		// The first total counts the packages that every Debian has. The others come
		// twice: when they are downloaded and when they are installed.
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

// count reports one more package that has passed a phase.
func (m *meter) count(p Phase, step string) {
	m.done[p]++
	m.step(p, step)
}

// step reports a step, at most once a second within a phase.
func (m *meter) step(p Phase, step string) {
	now := time.Now()
	if m.report == nil || p == m.last && now.Sub(m.lastReport) < time.Second {
		return
	}
	m.last, m.lastReport = p, now
	progress := Progress{Phase: p, Step: step, Elapsed: now.Sub(m.started)}
	if p != Finish {
		progress.Done, progress.Total = m.done[p], m.total
	}
	m.report(progress)
}
