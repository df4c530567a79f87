package document

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/jail"
	"github.com/berth-run/berth/vectorstore"
)

// Command is the first argument with which a program runs Main with the others.
const Command = "read-document"

// Limits of a child.
const (
	childTime   = 2 * time.Minute
	childCPU    = 60        // seconds
	childMemory = 768 << 20 // bytes
)

// Exit statuses of a child.
const (
	exitUnreadable = 3 // stderr is an Unreadable as JSON
	exitUnlocked   = 4 // it could not give up its privileges, and has not read the file
)

// A Child describes the program that reads one file.
type Child struct {
	Path string // default: this program
	CPU  int    // seconds that it may compute; default 60
}

// text runs a child that reads a file.
func (c Child) text(ctx context.Context, extension string, content io.Reader) (string, error) {
	c.CPU = cmp.Or(c.CPU, childCPU)
	ctx, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	cmd := jail.Command(ctx, c.Path, childMemory, Command, extension, strconv.Itoa(c.CPU))
	in := &countingReader{r: io.LimitReader(content, maxParsed+1)}
	out, failure := &limitedBuffer{most: maxText + 1}, &limitedBuffer{most: 4 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, failure
	err := cmd.Run()
	if in.err != nil {
		return "", fmt.Errorf("read file: %w", in.err)
	}
	var exit *exec.ExitError
	switch {
	case in.n > maxParsed:
		return "", tooLarge(maxParsed)
	case err == nil:
		return out.String(), nil
	case errors.As(err, &exit) && exit.ExitCode() == exitUnreadable:
		var reason vectorstore.Unreadable
		if json.Unmarshal(failure.Bytes(), &reason) == nil {
			return "", &reason
		}
	case errors.As(err, &exit) && exit.ExitCode() == exitUnlocked:
		return "", fmt.Errorf("start reader of documents: %s", bytes.TrimSpace(failure.Bytes()))
	case errors.As(err, &exit):
		return "", invalid("The file could not be read with %d MB of memory in %d seconds.", childMemory>>20, c.CPU)
	}
	return "", fmt.Errorf("run reader of documents: %w", err)
}

// A countingReader reader records what was read, because a child may end before it has read all.
type countingReader struct {
	r   io.Reader
	n   int
	err error
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// A limitedBuffer buffer drops what exceeds its limit.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), l.most-l.Len())])
	return len(p), nil
}

// Main reads the file on stdin and writes its text to stdout. It gives up all that it does
// not need first. args are the extension of the file's name and the seconds that Main may
// compute. It returns the exit status.
func Main(args []string) int {
	if len(args) != 2 {
		return 1
	}
	extension := strings.ToLower(args[0])
	seconds, err := strconv.Atoi(args[1])
	if err == nil {
		err = jail.Enter(jail.Limits{CPU: seconds, Memory: childMemory})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed to drop privileges:", err)
		return exitUnlocked
	}
	content, err := io.ReadAll(io.LimitReader(os.Stdin, maxParsed))
	if err != nil || parsers[extension] == nil {
		return 1
	}
	out, err := parse(extension, content)
	if reason, ok := errors.AsType[*vectorstore.Unreadable](err); ok {
		_ = json.NewEncoder(os.Stderr).Encode(reason)
		return exitUnreadable
	}
	if err != nil {
		return 1
	}
	if _, err := io.WriteString(os.Stdout, out); err != nil {
		return 1
	}
	return 0
}
