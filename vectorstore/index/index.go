// Package index finds passages of text: by their words with BM25, and by their vectors.
//
// An Index is in memory only. The words of a text would reveal it, so they must not reach
// the disk unsealed; the owner of the texts rebuilds an Index from their sealed form.
package index

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	_ "modernc.org/sqlite" // SQLite with FTS5
)

// maxTerms bounds the words of a query.
const maxTerms = 64

// A Passage is a text with a key, which must be unique and above 0. Vector is nil if the
// passage can be found by its words only.
type Passage struct {
	Key    int64
	Name   string // of its file; its words count too
	Text   string
	Vector []float32 // of length 1
}

// A Hit is a passage that a search found. Higher scores are better; those of different
// kinds of searches, or of different queries, cannot be compared.
type Hit struct {
	Key   int64
	Score float64
}

// An Index holds passages. Its methods must not be called concurrently, except searches
// with searches.
type Index struct {
	db       *sql.DB
	passages int
	vectors  map[int64][]float32
}

// New returns an empty index. The caller must close it.
func New(ctx context.Context) (*Index, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	db.SetMaxOpenConns(1) // each connection would have a database of its own
	_, err = db.ExecContext(ctx, `
PRAGMA temp_store = memory;
CREATE VIRTUAL TABLE passages USING fts5(name, text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');`)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("create index: %w", err)
	}
	return &Index{db: db, vectors: map[int64][]float32{}}, nil
}

// Close releases the index.
func (x *Index) Close() error {
	if err := x.db.Close(); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	return nil
}

// Add adds passages.
func (x *Index) Add(ctx context.Context, passages []Passage) error {
	return x.write(ctx, `INSERT INTO passages (rowid, name, text) VALUES (?, ?, ?)`,
		func(exec func(...any) error) error {
			for _, p := range passages {
				if err := exec(p.Key, p.Name, p.Text); err != nil {
					return err
				}
				x.passages++
				x.SetVector(p.Key, p.Vector)
			}
			return nil
		})
}

// SetVector sets the vector of a passage. A vector that is nil or 0 is ignored.
func (x *Index) SetVector(key int64, v []float32) {
	if slices.ContainsFunc(v, func(f float32) bool { return f != 0 }) {
		x.vectors[key] = v
	}
}

// Remove removes passages.
func (x *Index) Remove(ctx context.Context, keys []int64) error {
	return x.write(ctx, `DELETE FROM passages WHERE rowid = ?`, func(exec func(...any) error) error {
		for _, k := range keys {
			if err := exec(k); err != nil {
				return err
			}
			x.passages--
			delete(x.vectors, k)
		}
		return nil
	})
}

func (x *Index) write(ctx context.Context, statement string, each func(exec func(...any) error) error) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("change index: %w", err)
	}
	defer tx.Rollback()
	prepared, err := tx.PrepareContext(ctx, statement)
	if err != nil {
		return fmt.Errorf("change index: %w", err)
	}
	defer prepared.Close()
	err = each(func(args ...any) error {
		if _, err := prepared.ExecContext(ctx, args...); err != nil {
			return fmt.Errorf("write passage: %w", err)
		}
		return nil
	})
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("change index: %w", err)
	}
	return nil
}

// Text returns up to limit passages that contain words of a query, the best first, and those
// with the score of the last of them. accept selects passages; nil accepts all. A score is between 0 and 1: the
// passage's BM25 score as a share of the highest that a passage could have, which would consist of the query's words.
func (x *Index) Text(ctx context.Context, query string, limit int, accept func(int64) bool) ([]Hit, error) {
	words := wordsOf(query)
	if len(words) == 0 || x.passages == 0 {
		return nil, nil
	}
	highest, err := x.highest(ctx, words)
	if err != nil {
		return nil, err
	}
	match := strings.Join(words, " OR ")
	rows, err := x.db.QueryContext(ctx,
		`SELECT rowid, bm25(passages, 2.0, 1.0) AS score FROM passages WHERE passages MATCH ? ORDER BY score`, match)
	if err != nil {
		return nil, fmt.Errorf("search index: %w", err)
	}
	defer rows.Close()
	var hits []Hit
	for rows.Next() {
		var h Hit
		if err := rows.Scan(&h.Key, &h.Score); err != nil {
			return nil, fmt.Errorf("search index: %w", err)
		}
		h.Score = min(1, -h.Score/highest)
		if len(hits) >= limit && (limit <= 0 || h.Score < hits[limit-1].Score) {
			break
		}
		if accept == nil || accept(h.Key) {
			hits = append(hits, h)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("search index: %w", err)
	}
	return hits, nil
}

// Vector returns up to limit passages whose vectors are the closest to one of length 1, and
// those with the score of the last of them. Scores are the cosines.
func (x *Index) Vector(vector []float32, limit int, accept func(int64) bool) []Hit {
	hits := make([]Hit, 0, len(x.vectors))
	for key, v := range x.vectors {
		if len(v) == len(vector) && (accept == nil || accept(key)) {
			hits = append(hits, Hit{key, dot(v, vector)})
		}
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return int(a.Key - b.Key)
	})
	n := min(max(limit, 0), len(hits))
	for n > 0 && n < len(hits) && hits[n].Score == hits[n-1].Score {
		n++
	}
	return hits[:n]
}

func dot(a, b []float32) float64 {
	var sum float32
	for i, v := range a {
		sum += v * b[i]
	}
	return float64(sum)
}

// The constants of FTS5's BM25: the limit of the weight of a word that is repeated, and the
// weight of a word that more than half of the passages have.
const (
	repeated  = 1.2 + 1 // k1 + 1
	leastRare = 1e-6
)

// highest returns the highest score of a passage by FTS5's formula.
func (x *Index) highest(ctx context.Context, words []string) (sum float64, err error) {
	for _, w := range words {
		var n float64
		if err := x.db.QueryRowContext(ctx, `SELECT count(*) FROM passages WHERE passages MATCH ?`,
			w).Scan(&n); err != nil {
			return 0, fmt.Errorf("count passages: %w", err)
		}
		rare := math.Log((float64(x.passages) - n + 0.5) / (n + 0.5))
		sum += repeated * max(rare, leastRare)
	}
	return sum, nil
}

// wordsOf returns the words of a query as FTS5 expressions: quoted, so that no word is an
// operator. Words that most texts have are left out, unless there are no others.
func wordsOf(query string) []string {
	words := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)
	})
	var kept, common []string
	for _, w := range words {
		switch {
		case slices.Contains(kept, w) || slices.Contains(common, w):
		case stopWords[w]:
			common = append(common, w)
		default:
			kept = append(kept, w)
		}
	}
	if len(kept) == 0 {
		kept = common
	}
	kept = kept[:min(len(kept), maxTerms)]
	for i, w := range kept {
		kept[i] = `"` + w + `"`
	}
	return kept
}

// stopWords are the words of English questions that say nothing about their subject.
var stopWords = func() map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(`a about an and are as at be by can could do does did for from had has have how i if in into is it its me my
		not of on or our should so that the their them then there these they this to was we were what when where which who why will with would you your`) {
		set[w] = true
	}
	return set
}()
