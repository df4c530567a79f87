package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
)

// batchEnd is a batch's last state, once it has one.
func batchEnd(t *testing.T, s *server, id string) *openai.Batch {
	t.Helper()
	b, err := s.client().Batches.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBatchKilled kills and stops the server while a batch runs. Every command of the batch runs
// once, and every request has one result.
func TestBatchKilled(t *testing.T) {
	s := newServer(t)
	c := s.client()
	box, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	const requests = 24
	var input strings.Builder
	for i := range requests {
		body, err := json.Marshal(map[string]any{"model": "scripted",
			"input": fence(fmt.Sprintf("echo %d >>/mnt/data/ran; sleep 0.3", i)),
			"tools": []any{map[string]any{"type": "shell", "environment": map[string]any{"type": "container_reference",
				"container_id": box.ID}}}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&input, `{"custom_id":"%d","method":"POST","url":"/v1/responses","body":%s}`+"\n", i, body)
	}
	f, err := c.Files.New(t.Context(), openai.FileNewParams{File: openai.File(strings.NewReader(input.String()),
		"in.jsonl", "application/jsonl"), Purpose: openai.FilePurposeBatch})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Batches.New(t.Context(),
		openai.BatchNewParams{CompletionWindow: openai.BatchNewParamsCompletionWindow24h,
			Endpoint: openai.BatchNewParamsEndpointV1Responses, InputFileID: f.ID})
	if err != nil {
		t.Fatal(err)
	}
	for i, done := range []int64{1, 4, 8, 14, 20} {
		s.waitUntil("some requests have a result", func() bool {
			return batchEnd(t, s, b.ID).RequestCounts.Completed >= done
		})
		if i%2 == 0 {
			s.kill()
		} else {
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = s.cmd.Wait()
		}
		s.start()
	}
	s.waitUntil("the batch has ended", func() bool {
		b = batchEnd(t, s, b.ID)
		return b.Status == openai.BatchStatusCompleted || b.Status == openai.BatchStatusFailed
	})
	c = s.client()
	if b.RequestCounts.Completed != requests || b.RequestCounts.Total != requests {
		t.Errorf("got %s", b.RawJSON())
	}
	if n := len(fileLines(t, c, b.OutputFileID)); n != requests {
		t.Errorf("the output has %d lines, want %d", n, requests)
	}
	got, stderr, err := s.berth("exec", box.ID, "--", "cat", "/mnt/data/ran")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	ran := strings.Fields(got)
	slices.Sort(ran)
	if len(ran) != requests || len(slices.Compact(ran)) != requests {
		t.Errorf("the commands that ran are %v, want each of %d once", ran, requests)
	}
}

func fileLines(t *testing.T, c *openai.Client, id string) []string {
	t.Helper()
	content, err := c.Files.Content(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Body.Close()
	text, err := io.ReadAll(content.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
