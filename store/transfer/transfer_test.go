package transfer_test

import (
	"compress/gzip"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
	"github.com/berth-run/berth/store/transfer"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var key = [32]byte{7}

func openFile(t *testing.T, dir string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(context.Background(), filepath.Join(dir, "berth.db"), &sqlite.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func openPostgres(t *testing.T, dir, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(context.Background(), url, &postgres.Options{Keys: filepath.Join(dir, "berth.keys"),
		Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// toPostgres copies the database in a directory, closes it, and opens the copy.
func toPostgres(t *testing.T, dir string, db *sqlite.DB, url string) (*postgres.DB, []transfer.Result) {
	t.Helper()
	var results []transfer.Result
	err := db.Export(context.Background(), func(r transfer.Reader) (err error) {
		results, err = postgres.Import(context.Background(), url, r)
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return openPostgres(t, dir, url), results
}

// toFile copies a database to a new directory, closes it, and opens the copy.
func toFile(t *testing.T, db *postgres.DB, dir string) (*sqlite.DB, []transfer.Result) {
	t.Helper()
	var results []transfer.Result
	err := db.Export(context.Background(), true, func(r transfer.Reader) (err error) {
		if results, err = sqlite.Import(context.Background(), filepath.Join(dir, "berth.db"), r); err != nil {
			return err
		}
		return db.ExportKeys(context.Background(), filepath.Join(dir, "berth.keys"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return openFile(t, dir), results
}

// show returns a value as text, with its type.
func show(v any) string { return fmt.Sprintf("%T(%q)", v, fmt.Sprint(v)) }

// contents returns all rows of a database.
func contents(t *testing.T, export func(func(transfer.Reader) error) error) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := export(func(r transfer.Reader) error {
		for _, table := range transfer.Tables {
			columns, err := r.Columns(context.Background(), table)
			if err != nil {
				return err
			}
			all[table] = []string{}
			for row, err := range r.Rows(context.Background(), table, columns) {
				if err != nil {
					return err
				}
				text := ""
				for i, v := range row {
					text += columns[i].Name + "=" + show(v) + " "
				}
				all[table] = append(all[table], text)
			}
			slices.Sort(all[table])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// There and back: what any test of the suite leaves in a database is the same after a copy to
// PostgreSQL and from there to a file.
func TestThereAndBack(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		dir, url := t.TempDir(), pgtest.URL(t)
		db := openFile(t, dir)
		t.Cleanup(func() {
			before := contents(t, func(f func(transfer.Reader) error) error {
				return db.Export(context.Background(), f)
			})
			there, results := toPostgres(t, dir, db, url)
			if diff := cmp.Diff(before, contents(t, func(f func(transfer.Reader) error) error {
				return there.Export(context.Background(), false, f)
			})); diff != "" {
				t.Errorf("in PostgreSQL (-want +got):\n%s", diff)
			}
			back, again := toFile(t, there, t.TempDir())
			if diff := cmp.Diff(results, again); diff != "" {
				t.Errorf("results (-there +back):\n%s", diff)
			}
			if diff := cmp.Diff(before, contents(t, func(f func(transfer.Reader) error) error {
				return back.Export(context.Background(), f)
			})); diff != "" {
				t.Errorf("back in a file (-want +got):\n%s", diff)
			}
			if err := back.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	})
}

// Copies are databases like others: sealed rows are readable, deleted ones are not, new ones can
// be written, and all can be deleted.
func TestCopyIsUsable(t *testing.T) {
	dir, url := t.TempDir(), pgtest.URL(t)
	storetest.Copied(t, openFile(t, dir), func(s store.Store) store.Store {
		db, _ := toPostgres(t, dir, s.(*sqlite.DB), url)
		return db
	}, func(s store.Store) store.Store {
		db, _ := toFile(t, s.(*postgres.DB), t.TempDir())
		return db
	})
}

// Rows that earlier versions wrote, unsealed or in an earlier form, are readable in a copy.
func TestEarlierRows(t *testing.T) {
	dir := t.TempDir()
	for from, to := range map[string]string{"before.db": "berth.db", "before.keys": "berth.keys"} {
		f, err := os.Open(filepath.Join("../sqlite/testdata", from+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, _ := toPostgres(t, dir, openFile(t, dir), pgtest.URL(t))
	defer db.Close()
	for _, id := range []string{"resp_1", "resp_2"} {
		if events, err := db.Events(t.Context(), "proj_a", berth.ResponseID(id), -1, 10); err != nil ||
			len(events) != 2 || string(events[1].Data) != `{"sequence_number":1}` {
			t.Errorf("events of %s: got %v, %v", id, events, err)
		}
	}
	for _, name := range []string{"box", "clear"} {
		all, _, err := db.ListContainers(t.Context(), "proj_a", name, store.Page{Limit: 10})
		if err != nil || len(all) != 1 || all[0].Body.Name != name {
			t.Fatalf("containers %s: got %v, %v", name, all, err)
		}
		if files, err := db.ContainerFiles(t.Context(), "proj_a", all[0].Body.ID); err != nil || len(files) != 1 {
			t.Errorf("files of container %s: got %v, %v", name, files, err)
		}
		if err := db.DeleteContainer(t.Context(), "proj_a", all[0].Body.ID); err != nil {
			t.Errorf("delete container %s: %v", name, err)
		}
	}
	if _, secret, err := db.GetFile(t.Context(), "proj_a", "file-1"); err != nil || string(secret) != "key of file-1" {
		t.Errorf("key of a file: got %q, %v", secret, err)
	}
}

// Each table of both kinds of database is copied or known not to be.
func TestAllTables(t *testing.T) {
	dir, url := t.TempDir(), pgtest.URL(t)
	if err := errors.Join(openFile(t, dir).Close(), openPostgres(t, t.TempDir(), url).Close()); err != nil {
		t.Fatal(err)
	}
	known := slices.Concat(transfer.Tables, transfer.Local)
	file, err := sql.Open("sqlite", filepath.Join(dir, "berth.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := file.Query("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	found, err := c.Query(t.Context(),
		"SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
	if err != nil {
		t.Fatal(err)
	}
	more, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil || len(more) < len(transfer.Tables) || len(tables) < len(transfer.Tables) {
		t.Fatalf("got %v and %v, %v", tables, more, err)
	}
	for _, table := range append(tables, more...) {
		if !slices.Contains(known, table) {
			t.Errorf("the table %s is neither in Tables nor in Local", table)
		}
	}
}

// A copy that fails leaves nothing, and a database that has something is not changed.
func TestRefused(t *testing.T) {
	dir, url := t.TempDir(), pgtest.URL(t)
	db := openFile(t, dir)
	defer db.Close()
	storetest.Fill(t, db)
	for name, spoil := range map[string]func(transfer.Reader) transfer.Reader{
		"an error":    func(r transfer.Reader) transfer.Reader { return &spoiled{Reader: r, err: errBroken} },
		"a lost row":  func(r transfer.Reader) transfer.Reader { return &spoiled{Reader: r, lose: true} },
		"a lost byte": func(r transfer.Reader) transfer.Reader { return &spoiled{Reader: r, change: true} },
	} {
		// The last two are as if the target had lost something: the digest was taken before.
		err := db.Export(t.Context(), func(r transfer.Reader) error {
			_, err := transfer.Copy(t.Context(), r, &forgetful{spoil(r)})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "table") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	to := filepath.Join(dir, "copy.db")
	if err := os.WriteFile(to+"-wal", []byte("left of another database"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := db.Export(t.Context(), func(r transfer.Reader) error {
		broken := &spoiled{Reader: r, err: errBroken}
		_, err1 := sqlite.Import(t.Context(), to, broken)
		_, err2 := postgres.Import(t.Context(), url, broken)
		if !errors.Is(err1, errBroken) || !errors.Is(err2, errBroken) {
			t.Errorf("an error of the source: got %v, %v", err1, err2)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "copy*")); err != nil || len(left) > 0 {
			t.Errorf("left files: %v, %v", left, err)
		}
		if _, err := postgres.Import(t.Context(), url, r); err != nil {
			t.Errorf("after a copy that failed: %v", err)
		}
		if _, err := postgres.Import(t.Context(), url, r); !errors.Is(err, postgres.ErrNotEmpty) {
			t.Errorf("a database with rows: got %v", err)
		}
		if _, err := sqlite.Import(t.Context(), filepath.Join(dir, "berth.db"), r); err == nil {
			t.Error("a file that exists was replaced")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	claimed := pgtest.URL(t)
	holder, err := postgres.Open(t.Context(), claimed, &postgres.Options{Keys: filepath.Join(t.TempDir(), "k"),
		Claim: true})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	err = db.Export(t.Context(), func(r transfer.Reader) error {
		_, err := postgres.Import(t.Context(), claimed, r)
		return err
	})
	if !errors.Is(err, postgres.ErrClaimed) {
		t.Errorf("a database that a server uses: got %v", err)
	}
}

var errBroken = errors.New("broken")

// spoiled is a Reader whose table responses is not right.
type spoiled struct {
	transfer.Reader
	err          error
	lose, change bool
}

func (s *spoiled) Rows(ctx context.Context, table string, columns []transfer.Column) iter.Seq2[transfer.Row, error] {
	rows := s.Reader.Rows(ctx, table, columns)
	if table != "responses" {
		return rows
	}
	return func(yield func(transfer.Row, error) bool) {
		first := true
		for row, err := range rows {
			if s.err != nil {
				yield(nil, s.err)
				return
			}
			if s.lose && first {
				first = false
				continue
			}
			if s.change && first {
				first = false
				row = slices.Clone(row)
				i := slices.IndexFunc(columns, func(c transfer.Column) bool { return c.Name == "id" })
				row[i] = row[i].(string) + "x"
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// forgetful is a Target that stores nothing, and reads from the Reader.
type forgetful struct{ transfer.Reader }

func (f *forgetful) Insert(ctx context.Context, table string, columns []transfer.Column, rows iter.Seq2[transfer.Row,
	error]) error {
	for _, err := range rows {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *forgetful) SetMark(context.Context, []byte) error { return nil }
