// Command coding-agent has a model repair a Python module in a container. The response is completed
// only if the tests pass.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const task = "test_roman.py fails. Find the mistake in roman.py and correct it. Do not change the test."

// steps is what the model "scripted" runs. A language model gets the task only.
const steps = "\n```sh\nsed -i 's/total = 0$/total = previous = 0/' roman.py && cat roman.py\n```\n"

var (
	//go:embed roman.py
	module string
	//go:embed test_roman.py
	test string
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "coding-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client := openai.NewClient(
		option.WithBaseURL(cmp.Or(os.Getenv("OPENAI_BASE_URL"), "http://127.0.0.1:8080/v1")),
		option.WithAPIKey(cmp.Or(os.Getenv("OPENAI_API_KEY"), "none")))
	box, err := client.Containers.New(ctx, openai.ContainerNewParams{Name: "coding-agent"})
	if err != nil {
		return err
	}
	defer func() { _ = client.Containers.Delete(context.WithoutCancel(ctx), box.ID) }()
	for name, content := range map[string]string{"roman.py": module, "test_roman.py": test} {
		if _, err := client.Containers.Files.New(ctx, box.ID,
			openai.ContainerFileNewParams{File: openai.File(strings.NewReader(content), name,
				"text/x-python")}); err != nil {
			return err
		}
	}

	model, input := cmp.Or(os.Getenv("BERTH_MODEL"), "scripted"), task
	if model == "scripted" {
		input += steps
	}
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input)},
		Tools: []responses.ToolUnionParam{{OfShell: &responses.FunctionShellToolParam{
			Environment: responses.FunctionShellToolEnvironmentUnionParam{
				OfContainerReference: &responses.ContainerReferenceParam{ContainerID: box.ID}},
		}}},
	},
		option.WithJSONSet("berth.checks", map[string]any{"commands": []string{"python3 -m unittest -q"},
			"max_rounds": 3}),
		option.WithJSONSet("berth.budget", map[string]any{"max_turns": 20, "max_seconds": 600}))
	if err != nil {
		return err
	}
	if checks := show(response); checks == 0 {
		return fmt.Errorf("the response is %s, and no check has run", response.Status)
	}
	if response.Status != responses.ResponseStatusCompleted {
		return fmt.Errorf("the response is %s: %s", response.Status, response.IncompleteDetails.Reason)
	}
	repaired, err := download(ctx, client, box.ID, "/mnt/data/roman.py")
	if err != nil {
		return err
	}
	fmt.Printf("%s; roman.py:\n%s", response.Status, repaired)
	return nil
}

// show prints the commands of a response and returns how many calls were checks.
func show(r *responses.Response) (checks int) {
	for _, item := range r.Output {
		if item.Type != "shell_call" {
			continue
		}
		prefix := "$"
		if strings.Contains(item.RawJSON(), `"check_round"`) {
			prefix = "check $"
			checks++
		}
		for _, command := range item.AsShellCall().Action.Commands {
			fmt.Println(prefix, command)
		}
	}
	return checks
}

// download returns the content of a container's file.
func download(ctx context.Context, client openai.Client, container, path string) (string, error) {
	files := client.Containers.Files.ListAutoPaging(ctx, container, openai.ContainerFileListParams{})
	for files.Next() {
		if files.Current().Path != path {
			continue
		}
		resp, err := client.Containers.Files.Content.Get(ctx, container, files.Current().ID)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		content, err := io.ReadAll(resp.Body)
		return string(content), err
	}
	if err := files.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s is not in the container", path)
}
