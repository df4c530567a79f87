package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Keep says which backups are retained: all of a time, and then the last of each hour, day and week for longer ones.
type Keep struct{ All, Hourly, Daily, Weekly time.Duration }

// Expired returns the names of the backups that are not retained. The last backup always is.
func (k Keep) Expired(names []string, now time.Time) (expired []string) {
	last := map[string]bool{} // periods whose last backup was seen
	for i, name := range slices.Backward(names) {
		made, err := Time(name)
		if err != nil {
			continue
		}
		age := now.Sub(made)
		retained := i == len(names)-1 || age <= k.All
		year, week := made.ISOWeek()
		for _, tier := range []struct {
			period string
			life   time.Duration
		}{{made.Format("2006-01-02T15"), k.Hourly}, {made.Format("2006-01-02"), k.Daily},
			{fmt.Sprintf("%d week %d", year, week), k.Weekly}} {
			if age <= tier.life && !last[tier.period] {
				retained = true
			}
			last[tier.period] = true
		}
		if !retained {
			expired = append(expired, name)
		}
	}
	slices.Reverse(expired)
	return expired
}

// grace is how long a pack that no backup uses is left: longer than any backup takes.
const grace = 24 * time.Hour

// Pruned counts what a Prune removed.
type Pruned struct {
	Names []string // of the backups
	Packs int
	Bytes int64 // of the packs
}

// Prune removes the backups that are not retained, and packs that no other one uses. It removes no pack unless the
// manifests of all backups are readable. known are the backups that the caller has made; if one of them is missing
// from the repository, Prune returns ErrDamaged and removes nothing. forget, if it is not nil, is called before any is
// removed: a repetition after a crash does not know them. The caller is the writer.
func (r *Repository) Prune(ctx context.Context, w Writer, keep Keep, known []string, forget func(names []string) error,
	now time.Time) (done Pruned, err error) {
	if err := r.check(ctx, w.ID); err != nil {
		return done, err
	}
	names, err := r.List(ctx)
	if err != nil {
		return done, err
	}
	for _, name := range known {
		if !slices.Contains(names, name) {
			return done, fmt.Errorf("%w: %s does not list the backup %s", ErrDamaged, r.at.Name, name)
		}
	}
	expired := keep.Expired(names, now)
	used := map[string]bool{}
	for _, name := range names {
		if slices.Contains(expired, name) {
			continue
		}
		packs, err := r.packsOf(ctx, name)
		if err != nil {
			return done, fmt.Errorf("nothing is pruned: %w", err)
		}
		for _, pack := range packs {
			used[pack] = true
		}
	}
	if forget != nil && len(expired) > 0 {
		if err := forget(expired); err != nil {
			return done, err
		}
	}
	for _, name := range expired {
		if err := ignoreMissing(r.at.Backups.Remove(ctx, name)); err != nil {
			return done, fmt.Errorf("remove the backup %s: %w", name, err)
		}
		delete(r.packs, name)
		done.Names = append(done.Names, name)
	}
	return done, r.prunePacks(ctx, w, used, now, &done)
}

// packsOf returns the packs that a backup uses.
func (r *Repository) packsOf(ctx context.Context, name string) ([]string, error) {
	if packs, ok := r.packs[name]; ok {
		return packs, nil
	}
	m, err := r.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	var packs []string
	for pack := range m.Packs {
		packs = append(packs, pack)
	}
	r.packs[name] = packs
	return packs, nil
}

// atOnce is how many packs are removed between two looks at who the writer is.
const atOnce = 100

func (r *Repository) prunePacks(ctx context.Context, w Writer, used map[string]bool, now time.Time,
	done *Pruned) error {
	var unused []string
	sizes := map[string]int64{}
	for stored, err := range r.at.Packs.All(ctx) {
		if err != nil {
			return fmt.Errorf("list packs of %s: %w", r.at.Name, err)
		}
		name, _, _ := strings.Cut(stored.Key, ".") // also what an interrupted write left
		if !used[name] && now.Sub(stored.Written) > grace {
			unused = append(unused, stored.Key)
			sizes[stored.Key] = stored.Size
		}
	}
	for i, name := range unused {
		if i%atOnce == 0 {
			if err := r.check(ctx, w.ID); err != nil {
				return err
			}
		}
		if err := ignoreMissing(r.at.Packs.Remove(ctx, name)); err != nil {
			return fmt.Errorf("remove the pack %s: %w", name, err)
		}
		done.Packs++
		done.Bytes += sizes[name]
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
