// Command berth serves OpenAI's Responses API with containers for its tools, and is its command
// line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/console/markdown"
	"github.com/berth-run/berth/tool/program/javascript"
	"github.com/berth-run/berth/vectorstore/document"
)

// version is set by the build.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == document.Command { // started by a document.Child
		os.Exit(document.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == markdown.Command { // started by markdown.Render
		os.Exit(markdown.Main())
	}
	if len(os.Args) > 1 && os.Args[1] == javascript.Command { // started by a javascript.Runner
		os.Exit(javascript.Main(os.Args[2:]))
	}
	os.Exit(Main(os.Args[1:]))
}

// Main runs the command line and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process immediately
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(onTerminal(os.Stdout))
	root.SetErr(&filter{w: os.Stderr})
	err := root.ExecuteContext(ctx)
	if exit, ok := errors.AsType[exitError](err); ok {
		return int(exit)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(root.ErrOrStderr(), "berth: interrupted")
		return exitInterrupt
	}
	if err != nil {
		// The error may quote a guest: indent it, so that no line looks like another message.
		fmt.Fprintln(root.ErrOrStderr(), "berth:", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "\n  "))
		if _, ok := errors.AsType[usageError](err); ok {
			return exitUsage
		}
		return exitFailed
	}
	return 0
}

// An exitError is the exit code of a command that has reported its error already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "A server for OpenAI's Responses API with sandboxed containers",
		Long: `Berth serves OpenAI's Responses API with a computer for the model: a shell tool,
containers that live as long as the work, files, and state on the server.

  berth image build          build the base template, once
  berth serve                serve on http://127.0.0.1:8080
  berth run "task"           run a task and show its progress

Environment:
  BERTH_STATE      state directory            (--state)
  BERTH_CONFIG     configuration file         (--config)
  BERTH_URL        URL of the server          (--url)    default: of berth login, or http://127.0.0.1:8080
  BERTH_API_KEY    key for that server        default: of berth login; no other key is ever sent there
  NO_COLOR         if set, do not colour output
  OPENAI_BASE_URL  upstream of berth serve, unless --config names others
  OPENAI_API_KEY   key for that upstream`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"work", "Work with a server:", []*cobra.Command{newRun(), newResponse(), newConversation(), newSession(),
			newBatch(), newSchedule(), newFile(), newVectorStore(), newPrompt(), newSkill(), newTrace(), newModels(),
			newMCP(), newLogin(), newLogout(), newWhoAmI(), newContext()}},
		{"container", "Containers:", []*cobra.Command{newCreate(), newPs(), newInspect(), newExec(), newAttach(),
			newCp(), newPort(), newSSHKey(), newSSHProxy(), newDesktop(), newLogs(), newTop(),
			newPause(), newResume(), newFork(), newSnapshot(), newVolume(), newUp(), newDown(), newRm()}},
		{"operate", "Operate a server:", []*cobra.Command{newServe(), newConfig(), newStop(), newDoctor(), newImage(),
			newKey(), newUser(), newEndUser(), newRetention(), newHold(), newProject(), newUsage(), newWebhook(),
			newAudit(), newBackup(), newRestore(), newStore(), newBlobs(), newDB(), newUpgrade(), newVersion(),
			newMan()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.id
			root.AddCommand(cmd)
		}
	}
	root.InitDefaultHelpCmd()
	strictHelp(root)
	root.InitDefaultCompletionCmd()
	strict(root)
	completeFlags(root)
	return root
}
