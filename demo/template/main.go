// Command template builds the base template for make demo while the other programs are compiled: it needs few packages.
//
//	go run ./demo/template STATE
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/image"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: template STATE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "template:", err)
		os.Exit(1)
	}
}

// run builds the base template into a state directory, unless that has it in the form that this program makes.
func run(ctx context.Context, state string) error {
	images, err := image.Open(filepath.Join(state, "images"), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	recipe := image.Base()
	if t, err := images.Get(recipe.Name); err == nil && t.Recipe == recipe.Digest() {
		return nil
	}
	var last time.Time
	_, err = images.Build(ctx, recipe, func(p image.Progress) {
		if now := time.Now(); now.Sub(last) >= 5*time.Second {
			last = now
			fmt.Printf("template: %s %d of %d packages, %.0f s\n", p.Phase, p.Done, p.Total, p.Elapsed.Seconds())
		}
	})
	return err
}
