// Command tools is the second act of `make demo`. With OpenAI's client it has the data set
// analysed by the code interpreter, and asks a question of the files in a vector store.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// chart is where the chart of the code interpreter goes.
const chart = "demo-out/weather.png"

func main() {
	if len(os.Args) != 3 || os.Args[1] != "code" && os.Args[1] != "search" {
		fmt.Fprintln(os.Stderr, "usage: tools code|search MODEL, with OPENAI_BASE_URL and OPENAI_API_KEY set")
		os.Exit(2)
	}
	d := &demo{client: openai.NewClient(), model: os.Args[2]}
	act := d.code
	if os.Args[1] == "search" {
		act = d.search
	}
	ctx := context.Background()
	if err := errors.Join(act(ctx), d.cleanUp(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	client  openai.Client
	model   string
	cleanup []func(context.Context) error // deletes what was made
}

// cleanUp deletes the files, the container and the vector store.
func (d *demo) cleanUp(ctx context.Context) error {
	var errs []error
	for _, remove := range d.cleanup {
		errs = append(errs, remove(ctx))
	}
	return errors.Join(errs...)
}

// code analyses the data set with the code interpreter and writes its chart to demo-out.
func (d *demo) code(ctx context.Context) error {
	data, err := d.upload(ctx, "demo/bikes.csv")
	if err != nil {
		return err
	}
	auto := responses.ToolCodeInterpreterContainerCodeInterpreterContainerAutoParam{FileIDs: []string{data}}
	r, err := d.respond(ctx, "demo/4-code.md",
		responses.ToolUnionParam{OfCodeInterpreter: &responses.ToolCodeInterpreterParam{
			Container: responses.ToolCodeInterpreterContainerUnionParam{OfCodeInterpreterToolAuto: &auto}}},
		responses.ResponseIncludableCodeInterpreterCallOutputs)
	if err != nil {
		return err
	}
	d.cleanup = append(d.cleanup, func(ctx context.Context) error {
		return d.client.Containers.Delete(ctx, r.Tools[0].AsCodeInterpreter().Container.OfString)
	})
	var drawn []byte
	for _, item := range r.Output {
		if item.Type != "code_interpreter_call" {
			continue
		}
		call := item.AsCodeInterpreterCall()
		fmt.Printf("%s\n", strings.TrimSpace(call.Code))
		for _, out := range call.Outputs {
			if out.Type == "logs" {
				fmt.Printf("→ %s\n", strings.ReplaceAll(strings.TrimSpace(out.Logs), "\n", "\n  "))
				continue
			}
			_, encoded, _ := strings.Cut(out.URL, ";base64,")
			if drawn, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				return fmt.Errorf("decode the chart: %w", err)
			}
			fmt.Printf("→ an image of %d bytes: %s\n", len(drawn), chart)
		}
	}
	if !bytes.HasPrefix(drawn, []byte("\x89PNG")) {
		return errors.New("the code has drawn no PNG")
	}
	return os.WriteFile(chart, drawn, 0o644)
}

// search adds Berth's manual and the notes on the data set to a vector store, and asks a
// question that one of them answers.
func (d *demo) search(ctx context.Context) error {
	store, err := d.client.VectorStores.New(ctx, openai.VectorStoreNewParams{Name: openai.String("demo")})
	if err != nil {
		return fmt.Errorf("create the vector store: %w", err)
	}
	d.cleanup = append(d.cleanup, func(ctx context.Context) error {
		_, err := d.client.VectorStores.Delete(ctx, store.ID)
		return err
	})
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		return err
	}
	var ids []string
	for _, path := range append(paths, "demo/README.md") {
		id, err := d.upload(ctx, path)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	batch, err := d.client.VectorStores.FileBatches.NewAndPoll(ctx, store.ID,
		openai.VectorStoreFileBatchNewParams{FileIDs: ids}, 50)
	if err != nil {
		return fmt.Errorf("add files: %w", err)
	}
	fmt.Printf("vector store: %d files are read\n", batch.FileCounts.Completed)
	question, err := os.ReadFile("demo/5-search.md")
	if err != nil {
		return err
	}
	fmt.Printf("question: %s\n", strings.SplitN(string(question), "\n", 2)[0])
	r, err := d.respond(ctx, "demo/5-search.md",
		responses.ToolUnionParam{OfFileSearch: &responses.FileSearchToolParam{VectorStoreIDs: []string{store.ID}}},
		responses.ResponseIncludableFileSearchCallResults)
	if err != nil {
		return err
	}
	for _, item := range r.Output {
		if item.Type == "file_search_call" {
			call := item.AsFileSearchCall()
			fmt.Printf("searched for %q: %d passages\n", call.Queries, len(call.Results))
		}
	}
	fmt.Printf("answer: %s\n", r.OutputText())
	cited := 0
	for _, item := range r.Output {
		for _, content := range item.Content {
			for _, a := range content.Annotations {
				cited++
				fmt.Printf("→ cites %s (%s)\n", a.Filename, a.FileID)
			}
		}
	}
	if cited == 0 {
		return errors.New("the answer cites no file")
	}
	return nil
}

// upload uploads a file and returns its id.
func (d *demo) upload(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	file, err := d.client.Files.New(ctx, openai.FileNewParams{File: f, Purpose: openai.FilePurposeAssistants})
	if err != nil {
		return "", fmt.Errorf("upload %s: %w", path, err)
	}
	d.cleanup = append(d.cleanup, func(ctx context.Context) error {
		_, err := d.client.Files.Delete(ctx, file.ID)
		return err
	})
	return file.ID, nil
}

// respond sends a task with a tool. Of the task's file, a real model gets the text above the
// blocks.
func (d *demo) respond(ctx context.Context, path string, tool responses.ToolUnionParam,
	include responses.ResponseIncludable) (*responses.Response, error) {
	task, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := string(task)
	if d.model != "scripted" {
		text, _, _ = strings.Cut(text, "\n```")
	}
	r, err := d.client.Responses.New(ctx, responses.ResponseNewParams{Model: d.model,
		Tools:   []responses.ToolUnionParam{tool},
		Input:   responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
		Include: []responses.ResponseIncludable{include}})
	if err != nil {
		return nil, fmt.Errorf("create a response: %w", err)
	}
	if r.Status != responses.ResponseStatusCompleted {
		reason, _ := json.Marshal(r.Error)
		return nil, fmt.Errorf("the response is %s: %s", r.Status, reason)
	}
	return r, nil
}
