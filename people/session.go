package people

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// TokenPrefix is the prefix of the tokens of sessions.
const TokenPrefix = "sk-berth-person-"

// maxSessions is the number of sessions of one person; a further one ends the oldest.
const maxSessions = 20

// A Refusal is an error for the person who signs in.
type Refusal struct {
	Status  int // of HTTP
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// A Session is what a person has after signing in.
type Session struct {
	Person  *Person
	Tokens  []Token
	Expires time.Time
}

// A Token acts for a person in a project.
type Token struct {
	Secret  string
	Project berth.ProjectID // berth.AdminProject: of an administrator
}

// A record is a stored token. It has the SHA-256 of the secret only, which is also its id.
type record struct {
	Hash    string          `json:"hash"`
	Session string          `json:"session"`
	Person  string          `json:"person"`
	Project berth.ProjectID `json:"project"`
	Created int64           `json:"created_at"`
	Expires int64           `json:"expires_at"`
}

func tokenKey(hash string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindPersonToken, ID: hash}
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// SignIn saves what a provider says of a person and starts a session. The groups of earlier sign-ins count no more.
func (s *Service) SignIn(ctx context.Context, c Claims) (*Session, error) {
	p, err := s.save(ctx, c)
	if err != nil {
		return nil, err
	}
	projects := s.Projects(p)
	if !p.Active() || len(projects) == 0 {
		refused := ErrNoAccess
		if !p.Active() {
			refused = ErrDeactivated
		}
		return nil, errors.Join(refused, s.commit(ctx, p, audit.PersonRefused, refused.Error()))
	}
	return s.start(ctx, p, berth.NewID("sess_"), "", projects)
}

// start starts a session of a person. by is what has asked for it.
func (s *Service) start(ctx context.Context, p *Person, id, by string, projects []berth.ProjectID) (*Session, error) {
	if err := s.sweep(ctx, p.ID); err != nil {
		return nil, err
	}
	now := s.opts.Now()
	session := &Session{Person: p, Expires: now.Add(s.opts.Life)}
	var objects []*store.Object
	for _, project := range projects {
		t := Token{TokenPrefix + rand.Text() + rand.Text(), project}
		r := record{hashOf(t.Secret), id, p.ID, project, now.Unix(), session.Expires.Unix()}
		body, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode token: %w", err)
		}
		objects = append(objects, &store.Object{ObjectKey: tokenKey(r.Hash), CreatedAt: r.Created, ExpiresAt: r.Expires,
			Body: body})
		session.Tokens = append(session.Tokens, t)
	}
	if err := s.commit(ctx, p, audit.PersonSignedIn, by); err != nil {
		return nil, err
	}
	if err := s.opts.Objects.CreateObjects(ctx, house, objects...); err != nil {
		return nil, fmt.Errorf("start session: %w", err)
	}
	return session, nil
}

// SignOut ends the session of a token. A token that has ended already is no error.
func (s *Service) SignOut(ctx context.Context, secret string) error {
	r, err := s.token(ctx, hashOf(secret))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.endSession(ctx, r.Session); err != nil {
		return err
	}
	p, err := s.Get(ctx, r.Person)
	if err != nil {
		return err
	}
	return s.commit(ctx, p, audit.PersonSignedOut, "")
}

// endSession ends one session.
func (s *Service) endSession(ctx context.Context, session string) error {
	records, err := all[record](ctx, s.opts.Objects, store.KindPersonToken)
	if err != nil {
		return err
	}
	return s.delete(ctx, slices.DeleteFunc(records, func(r *record) bool { return r.Session != session }))
}

// EndSessions ends the sessions of a person and returns how many tokens they had.
func (s *Service) EndSessions(ctx context.Context, id string) (int, error) {
	p, err := s.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	n, err := s.endSessions(ctx, id)
	if err != nil {
		return n, err
	}
	return n, s.commit(ctx, p, audit.PersonSignedOut, "operator")
}

func (s *Service) endSessions(ctx context.Context, id string) (int, error) {
	records, err := all[record](ctx, s.opts.Objects, store.KindPersonToken)
	if err != nil {
		return 0, err
	}
	records = slices.DeleteFunc(records, func(r *record) bool { return r.Person != id })
	return len(records), s.delete(ctx, records)
}

// sweep deletes expired tokens of all persons, and the oldest sessions of one who is about to start another.
func (s *Service) sweep(ctx context.Context, person string) error {
	records, err := all[record](ctx, s.opts.Objects, store.KindPersonToken)
	if err != nil {
		return err
	}
	now := s.opts.Now().Unix()
	var ended []*record
	own := map[string][]*record{}
	var order []string // of the person's sessions, the oldest first
	for _, r := range records {
		switch {
		case r.Expires <= now:
			ended = append(ended, r)
		case r.Person == person:
			if own[r.Session] == nil {
				order = append(order, r.Session)
			}
			own[r.Session] = append(own[r.Session], r)
		}
	}
	for _, session := range order[:max(0, len(order)-maxSessions+1)] {
		ended = append(ended, own[session]...)
	}
	return s.delete(ctx, ended)
}

func (s *Service) delete(ctx context.Context, records []*record) error {
	for _, r := range records {
		err := s.opts.Objects.DeleteObject(ctx, house, tokenKey(r.Hash))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("end session: %w", err)
		}
	}
	return nil
}

func (s *Service) token(ctx context.Context, hash string) (*record, error) {
	return get[record](ctx, s.opts.Objects, tokenKey(hash))
}
