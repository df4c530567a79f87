package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
	"github.com/berth-run/berth/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t testing.TB, url string, opts postgres.Options) *postgres.DB {
	t.Helper()
	if opts.Keys == "" {
		opts.Keys = filepath.Join(t.TempDir(), "berth.keys")
	}
	db, err := postgres.Open(context.Background(), url, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return db
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, pgtest.URL(t), postgres.Options{}) })
}

func TestMembers(t *testing.T) {
	storetest.Members(t, func(t *testing.T) store.Store { return open(t, pgtest.URL(t), postgres.Options{}) })
}

func TestShares(t *testing.T) {
	storetest.Shares(t, func(t *testing.T) store.Store { return open(t, pgtest.URL(t), postgres.Options{}) })
}

// Servers on one database wait for each other's locks, and see each other.
func TestMembersOfServers(t *testing.T) {
	url, keys := pgtest.URL(t), filepath.Join(t.TempDir(), "berth.keys")
	a, b := open(t, url, postgres.Options{Keys: keys}), open(t, url, postgres.Options{Keys: keys})
	for id, db := range map[string]*postgres.DB{"a": a, "b": b} {
		if err := db.JoinMember(t.Context(), store.Member{ID: id}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := b.ListMembers(t.Context()); err != nil || len(list) != 2 || !list[0].Alive() || !list[1].Alive() {
		t.Errorf("got %+v, %v", list, err)
	}
	if err := a.Lock(t.Context(), "work", "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := b.Lock(t.Context(), "work", "b", time.Hour); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a lock of another server: got %v, want a conflict", err)
	}
	if err := a.Unlock(t.Context(), "work", "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.Lock(t.Context(), "work", "b", time.Hour); err != nil {
		t.Errorf("a lock that another server released: %v", err)
	}
}

// exec runs a statement, and returns the first column of its first row.
func execute(t testing.TB, url, statement string, args ...any) (first any) {
	t.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	rows, err := c.Query(context.Background(), statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		first = values[0]
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return first
}

// A server that is killed saved what it reported. All victims and the survivor use the
// same keys.
func TestKilled(t *testing.T) {
	where := os.Getenv("BERTH_STORETEST_VICTIM")
	if where == "" {
		where = pgtest.URL(t) + " " + filepath.Join(t.TempDir(), "berth.keys")
	}
	storetest.Killed(t, where, func(ctx context.Context, where string) (store.Store, error) {
		url, keys, _ := strings.Cut(where, " ")
		return postgres.Open(ctx, url, &postgres.Options{Keys: keys, Claim: true})
	})
}

// A directory of TestSealing has the file that names a database.
func TestSealing(t *testing.T) {
	server := pgtest.Start(t)
	keys := func(dir string) string { return filepath.Join(dir, "berth.keys") }
	var mu sync.Mutex
	urls := map[string]string{}
	urlOf := func(dir string) string {
		mu.Lock()
		defer mu.Unlock()
		if urls[dir] == "" {
			urls[dir] = server.NewDatabase(t)
		}
		return urls[dir]
	}
	storetest.Sealing(t, storetest.Disk{
		Open: func(ctx context.Context, dir string, key [32]byte) (store.Store, error) {
			return postgres.Open(ctx, urlOf(dir), &postgres.Options{Keys: keys(dir), Key: key})
		},
		CopyKeys: func(t *testing.T, from, to string) {
			execute(t, urlOf(to), "TRUNCATE row_keys")
			dump(t, urlOf(from), urlOf(to), "--data-only", "--table=row_keys")
		},
		RemoveKeys: func(t *testing.T, dir string) {
			execute(t, urlOf(dir), "TRUNCATE row_keys, ring")
		},
		Copy: func(t *testing.T, dir string) string {
			to := t.TempDir()
			content, err := os.ReadFile(keys(dir))
			if err := errors.Join(err, os.WriteFile(keys(to), content, 0o600)); err != nil {
				t.Fatal(err)
			}
			dump(t, urlOf(dir), urlOf(to))
			return to
		},
		Content: func(t *testing.T, _ string) (all []byte) {
			execute(t, server.URL(), "CHECKPOINT")
			err := filepath.WalkDir(server.Data(), func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() || strings.Contains(path, "pg_wal") &&
					d.Name() == "archive_status" {
					return err
				}
				content, err := os.ReadFile(path)
				all = append(all, content...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(all, []byte("resp_1")) {
				t.Error("the files have no id of a response; the test would prove nothing")
			}
			return all
		},
	})
}

// dump copies a database, or a part of it, to another.
func dump(t *testing.T, from, to string, options ...string) {
	t.Helper()
	content, err := exec.Command("pg_dump", append(options, "--dbname", from)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	load := exec.Command("psql", "--quiet", "--set=ON_ERROR_STOP=1", to)
	load.Stdin = bytes.NewReader(content)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Open names the fault, and no error has the password.
func TestRefused(t *testing.T) {
	url := pgtest.URL(t)
	later := pgtest.URL(t)
	open(t, later, postgres.Options{})
	execute(t, later, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)")
	escaped := strings.SplitN(strings.TrimPrefix(url, "postgres://berth:"), "@", 2)[0]
	for name, tc := range map[string]struct{ url, want string }{
		"not a URL":        {"mysql://x", "the URL is not valid"},
		"a broken URL":     {strings.Replace(url, "127.0.0.1", "127.0.0.1:x", 1), "the URL is not valid"},
		"another password": {strings.Replace(url, escaped, "wr0ng-secret", 1), "password authentication failed"},
		"no database":      {strings.Replace(url, "berth_test_", "berth_none_", 1), "does not exist"},
		"no server":        {"postgres://berth:wr0ng-secret@127.0.0.1:1/x", "refused"},
		"a later version":  {later, "later version of Berth"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := postgres.Open(t.Context(), tc.url, &postgres.Options{Keys: filepath.Join(t.TempDir(), "keys")})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err != nil && (strings.Contains(err.Error(), escaped) || strings.Contains(err.Error(),
				pgtest.Password) || strings.Contains(err.Error(), "wr0ng-secret")) {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// The last checkpoint of each audit record stays, and never goes back.
func TestCheckpoints(t *testing.T) {
	db := open(t, pgtest.URL(t), postgres.Options{})
	one := store.Checkpoint{Origin: "one", Server: "a", PublicKey: "key 1", Size: 3, Signed: "three"}
	two := store.Checkpoint{Origin: "two", Server: "b", PublicKey: "key 2", Size: 1, Signed: "one"}
	later := one
	later.Size, later.Signed = 5, "five"
	for _, step := range []struct {
		save store.Checkpoint
		err  error
	}{{two, nil}, {one, nil}, {later, nil}, {later, nil}, {one, store.ErrConflict}} {
		if err := db.SaveCheckpoint(t.Context(), step.save); !errors.Is(err, step.err) {
			t.Errorf("save %+v: got %v, want %v", step.save, err, step.err)
		}
	}
	if got, err := db.ListCheckpoints(t.Context()); err != nil || !slices.Equal(got, []store.Checkpoint{later, two}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
